//! Scans a directory for the host.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, FileType, OFlags, Stat, fstat, statat};
use rustix::io::{Errno, Result};

use super::entry::kind;
use super::parent::{is_hidden, open_in, reopen};
use super::secret_matcher::SecretMatcher;
use super::walk::{TreeWalk, WalkEntry, WalkLimits, is_foreign, is_gone};
use crate::os::blocking::CancelFlag;
use crate::protocol::body::encoded_len;
use crate::protocol::{self, FileKind, MAX_WALKED, ScanEntry};

/// Limit of reported entries.
const MAX_ENTRIES: u64 = 100_000;

/// Bytes that are read of a file in which values are searched for, at most.
const MAX_FILE: u64 = 16 << 20;

/// Bytes of a reply beside its entries, at most.
const ENVELOPE: usize = 16;

/// A scan takes no longer.
const MAX_TIME: Duration = Duration::from_secs(600);

/// Selects the reported entries, and the secrets to search for in them.
#[derive(Debug)]
struct ScanFilter {
    since_ns: Option<i128>,
    prune: Vec<Vec<u8>>,
    depth: usize,
    names: Option<Vec<Vec<u8>>>,
    sought: Option<SecretMatcher>,
    max_file: u64,
    max_entries: u64,
}

/// A scan under way.
#[derive(Debug)]
pub(crate) struct Scan {
    wanted: ScanFilter,
    walk: TreeWalk,
    /// The start, as the caller's path.
    path: Vec<u8>,
    /// The start, as a path from the root; it differs where the caller's path leads through links.
    inside: Vec<u8>,
    told: ScanOutput,
}

/// Collected entries.
#[derive(Debug, Default)]
struct ScanOutput {
    entries: Vec<ScanEntry>,
    /// Encoded.
    bytes: usize,
    more: bool,
}

/// The directory that a scan starts at.
pub(super) struct ScanRoot<'a> {
    pub(super) dir: &'a OwnedFd,
    /// Its path as the caller gave it.
    pub(super) path: &'a str,
    /// Its path from the root.
    pub(super) inside: Vec<u8>,
}

impl Scan {
    pub(super) fn begin(
        root: ScanRoot<'_>,
        walk: &protocol::ScanRequest,
        sought: Option<SecretMatcher>,
    ) -> Result<Self> {
        let ScanRoot { dir, path, inside } = root;
        let bytes = |all: &[String]| all.iter().map(|it| it.clone().into_bytes()).collect();
        let wanted = ScanFilter {
            since_ns: walk.since_ms.map(|it| i128::from(it) * 1_000_000),
            prune: bytes(&walk.prune),
            depth: walk.depth.map_or(usize::MAX, |it| it as usize),
            names: walk.names.as_deref().map(bytes),
            sought,
            max_file: walk.holding.as_ref().map_or(0, |it| it.max_file.min(MAX_FILE)),
            max_entries: walk.max_entries.min(MAX_ENTRIES),
        };
        let path = path.trim_end_matches('/').as_bytes().to_vec();
        let until = Instant::now() + Duration::from_millis(walk.within_ms).min(MAX_TIME);
        let walk = TreeWalk::begin(dir, WalkLimits::everything(until), None, &CancelFlag::default())?;
        let told = ScanOutput::default();
        Ok(Self { wanted, walk, path, inside, told })
    }

    /// Scans for a while; returns whether it is complete.
    pub(crate) fn go(&mut self, turn: Duration) -> bool {
        let turn = Instant::now() + turn;
        while (self.told.entries.len() as u64) < self.wanted.max_entries {
            if !self.walk.is_at_its_end() && Instant::now() >= turn {
                return false;
            }
            let (wanted, inside) = (&self.wanted, &self.inside);
            let enters = |name: &[u8], path: &[u8]| wanted.enters(name, path) && !is_hidden(&below(inside, path));
            let Some(met) = self.walk.next(&enters) else {
                self.told.more |= !self.walk.is_complete();
                return true;
            };
            match self.take(&met) {
                Ok(walked) => walked.into_iter().for_each(|it| self.told.add(it)),
                Err(errno) => self.told.more |= !is_gone(errno) && !is_foreign(errno),
            }
        }
        self.told.more = true;
        true
    }

    /// What was met, and whether there may be more.
    pub(crate) fn end(self) -> (Vec<ScanEntry>, bool) {
        (self.told.entries, self.told.more)
    }

    /// The entry if the filter selects it.
    fn take(&self, met: &WalkEntry) -> Result<Option<ScanEntry>> {
        let stat = statat(&met.dir, met.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
        let (wanted, kind) = (&self.wanted, kind(&stat));
        let of_this_kind = match kind {
            FileKind::Special => false,
            FileKind::Dir => {
                wanted.sought.is_none() && wanted.names.is_some() && !is_hidden(&below(&self.inside, &met.path))
            }
            FileKind::Link => wanted.sought.is_none(),
            FileKind::File => wanted.sought.is_none() || stat.st_size.cast_unsigned() <= wanted.max_file,
        };
        if !of_this_kind || !wanted.takes(&met.name, &stat) {
            return Ok(None);
        }
        // A single file may be a mount, too.
        let there = open_in(met.dir.as_fd(), &met.name, OFlags::PATH)?;
        let holds = wanted.sought.as_ref().map_or(Ok(true), |it| self.holds(&there, it))?;
        Ok(holds.then(|| self.scan_entry(&met.path, &stat)))
    }

    /// Whether a file holds a value. It is opened for reading only when it is still a file: a pipe that came in its place
    /// is not touched.
    fn holds(&self, there: &OwnedFd, sought: &SecretMatcher) -> Result<bool> {
        if !FileType::from_raw_mode(fstat(there)?.st_mode).is_file() {
            return Ok(false);
        }
        let file = File::from(reopen(there, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let mut content = Vec::new();
        let read = file.take(self.wanted.max_file).read_to_end(&mut content);
        read.map_err(|err| Errno::from_io_error(&err).unwrap_or(Errno::IO))?;
        Ok(sought.is_in(&content))
    }

    fn scan_entry(&self, path: &[u8], stat: &Stat) -> ScanEntry {
        let text = String::from_utf8(below(&self.path, path));
        let odd = text.is_err();
        let path = text.unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned());
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let changed_ns = i64::try_from(nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64)).unwrap_or_default();
        ScanEntry { path, odd, kind: kind(stat), size, mode: stat.st_mode & 0o7777, changed_ns }
    }
}

/// An absolute path; `/` as a directory is nothing here.
fn below(dir: &[u8], path: &[u8]) -> Vec<u8> {
    [dir, b"/", path].concat()
}

impl ScanFilter {
    fn enters(&self, name: &[u8], path: &[u8]) -> bool {
        let depth = path.split(|it| *it == b'/').count();
        let is_pruned = |it: &Vec<u8>| it == name || it.strip_prefix(b"/") == Some(path);
        depth < self.depth && !self.prune.iter().any(is_pruned)
    }

    /// Whether the filter selects an entry by its name and its times.
    fn takes(&self, name: &[u8], stat: &Stat) -> bool {
        let changed = |since| {
            let content = nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64);
            // A program may set the one; the other is the kernel's.
            let any = nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64);
            content.max(any) >= since
        };
        self.names.as_ref().is_none_or(|all| all.iter().any(|it| it == name)) && self.since_ns.is_none_or(changed)
    }
}

fn nanoseconds(seconds: i64, rest: i64) -> i128 {
    i128::from(seconds) * 1_000_000_000 + i128::from(rest)
}

impl ScanOutput {
    fn add(&mut self, entry: ScanEntry) {
        let bytes = encoded_len(&entry);
        if self.bytes + bytes > MAX_WALKED - ENVELOPE {
            self.more = true;
        } else {
            self.bytes += bytes;
            self.entries.push(entry);
        }
    }
}

#[cfg(test)]
mod tests;
