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
use crate::protocol::{self, FileKind, MAX_SCAN_REPLY, ScanEntry};

const MAX_ENTRIES: u64 = 100_000;

/// How much of a file is read when searching for values, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// Bytes of a reply besides its entries, at most.
const ENVELOPE: usize = 16;

/// Longest duration of a scan.
const MAX_TIME: Duration = Duration::from_secs(600);

/// Selects the reported entries, and the secrets to search for in them.
#[derive(Debug)]
struct ScanFilter {
    since_ns: Option<i128>,
    prune: Vec<Vec<u8>>,
    depth: usize,
    names: Option<Vec<Vec<u8>>>,
    matcher: Option<SecretMatcher>,
    max_file: u64,
    max_entries: u64,
}

/// A scan in progress.
#[derive(Debug)]
pub(crate) struct Scan {
    filter: ScanFilter,
    walk: TreeWalk,
    /// The start, as the caller's path.
    path: Vec<u8>,
    /// The start, as a path from the root; it differs if the caller's path contains links.
    inside: Vec<u8>,
    output: ScanOutput,
}

/// The entries found so far.
#[derive(Debug, Default)]
struct ScanOutput {
    entries: Vec<ScanEntry>,
    /// Their encoded length.
    bytes: usize,
    more: bool,
}

/// The directory where a scan starts.
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
        matcher: Option<SecretMatcher>,
    ) -> Result<Self> {
        let ScanRoot { dir, path, inside } = root;
        let bytes = |all: &[String]| all.iter().map(|it| it.clone().into_bytes()).collect();
        let filter = ScanFilter {
            since_ns: walk.since_ms.map(|it| i128::from(it) * 1_000_000),
            prune: bytes(&walk.prune),
            depth: walk.depth.map_or(usize::MAX, |it| it as usize),
            names: walk.names.as_deref().map(bytes),
            matcher,
            max_file: walk.holding.as_ref().map_or(0, |it| it.max_file.min(MAX_FILE)),
            max_entries: walk.max_entries.min(MAX_ENTRIES),
        };
        let path = path.trim_end_matches('/').as_bytes().to_vec();
        let until = Instant::now() + Duration::from_millis(walk.within_ms).min(MAX_TIME);
        let walk = TreeWalk::begin(dir, WalkLimits::everything(until), None, &CancelFlag::default())?;
        let output = ScanOutput::default();
        Ok(Self { filter, walk, path, inside, output })
    }

    /// Scans for a time slice; returns whether the scan is finished.
    pub(crate) fn run(&mut self, time_slice: Duration) -> bool {
        let slice_end = Instant::now() + time_slice;
        while (self.output.entries.len() as u64) < self.filter.max_entries {
            if !self.walk.is_finished() && Instant::now() >= slice_end {
                return false;
            }
            let (filter, inside) = (&self.filter, &self.inside);
            let enters = |name: &[u8], path: &[u8]| filter.enters(name, path) && !is_hidden(&below(inside, path));
            let Some(entry) = self.walk.next(&enters) else {
                self.output.more |= !self.walk.is_complete();
                return true;
            };
            match self.select(&entry) {
                Ok(walked) => walked.into_iter().for_each(|it| self.output.add(it)),
                Err(errno) => self.output.more |= !is_gone(errno) && !is_foreign(errno),
            }
        }
        self.output.more = true;
        true
    }

    /// Returns the found entries, and whether there may be more.
    pub(crate) fn end(self) -> (Vec<ScanEntry>, bool) {
        (self.output.entries, self.output.more)
    }

    /// Returns the entry if the filter selects it.
    fn select(&self, entry: &WalkEntry) -> Result<Option<ScanEntry>> {
        let stat = statat(&entry.dir, entry.name.as_slice(), AtFlags::SYMLINK_NOFOLLOW)?;
        let (filter, kind) = (&self.filter, kind(&stat));
        let is_selected_kind = match kind {
            FileKind::Special => false,
            FileKind::Dir => {
                filter.matcher.is_none() && filter.names.is_some() && !is_hidden(&below(&self.inside, &entry.path))
            }
            FileKind::Link => filter.matcher.is_none(),
            FileKind::File => filter.matcher.is_none() || stat.st_size.cast_unsigned() <= filter.max_file,
        };
        if !is_selected_kind || !filter.takes(&entry.name, &stat) {
            return Ok(None);
        }
        // A single file may also be a mount.
        let found = open_in(entry.dir.as_fd(), &entry.name, OFlags::PATH)?;
        let contains = filter.matcher.as_ref().map_or(Ok(true), |it| self.contains_value(&found, it))?;
        Ok(contains.then(|| self.scan_entry(&entry.path, &stat)))
    }

    /// Whether a file contains a value. The file is opened for reading only if it is still a regular file, so that a pipe
    /// which replaced it is not opened.
    fn contains_value(&self, found: &OwnedFd, matcher: &SecretMatcher) -> Result<bool> {
        if !FileType::from_raw_mode(fstat(found)?.st_mode).is_file() {
            return Ok(false);
        }
        let file = File::from(reopen(found, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let mut content = Vec::new();
        let read = file.take(self.filter.max_file).read_to_end(&mut content);
        read.map_err(|err| Errno::from_io_error(&err).unwrap_or(Errno::IO))?;
        Ok(matcher.is_in(&content))
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

/// Joins an absolute path and a path below it; the root directory is the empty path here.
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
            // A program can set the modification time; the kernel sets the change time.
            let status = nanoseconds(stat.st_ctime, stat.st_ctime_nsec as i64);
            content.max(status) >= since
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
        if self.bytes + bytes > MAX_SCAN_REPLY - ENVELOPE {
            self.more = true;
        } else {
            self.bytes += bytes;
            self.entries.push(entry);
        }
    }
}

#[cfg(test)]
mod tests;
