//! Going through all that is below a directory.
//!
//! Directories are opened in the one above them, never by a link and never across a mount. So whoever swaps a name
//! meanwhile hides what is its own, and leads nobody anywhere.

use std::fs::File;
use std::io::Read as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat, fstat, openat, openat2, statat};
use rustix::io::{Errno, Result};

use super::entry::kind;
use super::place::{is_hidden, reopen};
use super::sought::Sought;
use crate::wire::{Kind, MAX_WALKED, Walk, Walked};

/// Directories open at once, and so how deep a walk goes. What is deeper is not met, and that is said.
const MAX_DEPTH: usize = 128;

/// Entries that are told, at most.
const MAX_ENTRIES: u64 = 100_000;

/// Bytes that are read of a file in which values are searched for, at most.
const MAX_FILE: u64 = 16 << 20;

/// A walk takes no longer.
const MAX_TIME: Duration = Duration::from_secs(600);

/// What entries are told, and what is searched for in them.
#[derive(Debug)]
struct Wanted {
    since_ns: Option<i128>,
    prune: Vec<Vec<u8>>,
    depth: usize,
    names: Option<Vec<Vec<u8>>>,
    sought: Option<Sought>,
    max_file: u64,
    max_entries: u64,
}

/// A walk under way.
#[derive(Debug)]
pub(crate) struct Walker {
    wanted: Wanted,
    levels: Vec<Level>,
    /// Of the directory that the last level is, as the caller names it.
    path: Vec<u8>,
    /// The same from the root; it differs where the caller's path leads through links.
    inside: Vec<u8>,
    until: Instant,
    told: Told,
}

/// A directory on the way down.
#[derive(Debug)]
struct Level {
    entries: Dir,
    /// Bytes of `path` and `inside` before its own name was added.
    before: (usize, usize),
}

/// What was met, as it will be sent.
#[derive(Debug)]
struct Told {
    json: Vec<u8>,
    count: u64,
    more: bool,
}

impl Walker {
    /// `path` is where the directory is to the caller, and where it is from the root.
    pub(super) fn begin(
        dir: &OwnedFd,
        (path, inside): (&str, Vec<u8>),
        walk: &Walk,
        sought: Option<Sought>,
    ) -> Result<Self> {
        let bytes = |all: &[String]| all.iter().map(|it| it.clone().into_bytes()).collect();
        let wanted = Wanted {
            since_ns: walk.since_ms.map(|it| i128::from(it) * 1_000_000),
            prune: bytes(&walk.prune),
            depth: walk.depth.map_or(usize::MAX, |it| it as usize),
            names: walk.names.as_deref().map(bytes),
            sought,
            max_file: walk.holding.as_ref().map_or(0, |it| it.max_file.min(MAX_FILE)),
            max_entries: walk.max_entries.min(MAX_ENTRIES),
        };
        let fd = openat(dir, ".", DIRECTORY, Mode::empty())?;
        let levels = vec![Level { entries: Dir::new(fd)?, before: (0, 0) }];
        let path = path.trim_end_matches('/').as_bytes().to_vec();
        let until = Instant::now() + Duration::from_millis(walk.within_ms).min(MAX_TIME);
        let told = Told { json: b"[".to_vec(), count: 0, more: false };
        Ok(Self { wanted, levels, path, inside, until, told })
    }

    /// Goes on for a while; whether it is over.
    pub(crate) fn go(&mut self, turn: Duration) -> bool {
        let turn = Instant::now() + turn;
        while let Some(level) = self.levels.last_mut() {
            let now = Instant::now();
            if self.told.count >= self.wanted.max_entries || now >= self.until {
                self.told.more = true;
                return true;
            }
            if now >= turn {
                return false;
            }
            match level.entries.next() {
                None => self.leave(),
                // A directory that somebody empties meanwhile, or a disk that fails: the rest of it is not met.
                Some(Err(_)) => {
                    self.told.more = true;
                    self.leave();
                }
                Some(Ok(entry)) => match entry.file_name().to_bytes() {
                    b"." | b".." => {}
                    name => self.meet(name),
                },
            }
        }
        true
    }

    /// JSON, an array of [`Walked`]; and whether there may be more.
    pub(crate) fn end(self) -> (Vec<u8>, bool) {
        let Told { mut json, more, .. } = self.told;
        json.push(b']');
        (json, more)
    }

    fn leave(&mut self) {
        if let Some(Level { before: (path, inside), .. }) = self.levels.pop() {
            self.path.truncate(path);
            self.inside.truncate(inside);
        }
    }

    fn meet(&mut self, name: &[u8]) {
        let Some(level) = self.levels.last() else { return };
        let done = level.entries.fd().and_then(|dir| match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if kind(&stat) == Kind::Dir => self.meet_dir(name, &stat),
            Ok(stat) => self.meet_file(name, &stat).map(|told| (told, None)),
            Err(errno) => Err(errno),
        });
        match done {
            Ok((told, below)) => {
                if let Some(told) = told {
                    self.told.add(&told);
                }
                if let Some(entries) = below {
                    let before = (self.path.len(), self.inside.len());
                    self.levels.push(Level { entries, before });
                    for path in [&mut self.path, &mut self.inside] {
                        path.push(b'/');
                        path.extend_from_slice(name);
                    }
                }
            }
            // It went or became something else, is mounted, or is not for us.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::PERM) => {}
            Err(_) => self.told.more = true,
        }
    }

    fn meet_dir(&self, name: &[u8], stat: &Stat) -> Result<(Option<Walked>, Option<Dir>)> {
        if is_hidden(&[&self.inside, &b"/"[..], name].concat()) {
            return Ok((None, None));
        }
        let wanted = &self.wanted;
        let entered = !wanted.prune.iter().any(|it| it == name) && self.levels.len() < wanted.depth;
        let is_told = wanted.sought.is_none() && wanted.names.is_some() && wanted.takes(name, stat);
        if !entered && !is_told {
            return Ok((None, None));
        }
        let dir = self.open(name, DIRECTORY)?;
        let told = is_told.then(|| self.told(name, stat));
        if entered && self.levels.len() >= MAX_DEPTH {
            return told.map_or(Err(Errno::NAMETOOLONG), |told| Ok((Some(told), None)));
        }
        let below = entered.then(|| Dir::new(dir)).transpose()?;
        Ok((told, below))
    }

    fn meet_file(&self, name: &[u8], stat: &Stat) -> Result<Option<Walked>> {
        let kind = kind(stat);
        if kind == Kind::Special || !self.wanted.takes(name, stat) {
            return Ok(None);
        }
        let Some(sought) = &self.wanted.sought else {
            // A single file may be a mount, too.
            self.open(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            return Ok(Some(self.told(name, stat)));
        };
        if kind != Kind::File || stat.st_size.cast_unsigned() > self.wanted.max_file {
            return Ok(None);
        }
        // It is opened for reading only when it is still a file: a pipe that came in its place is not touched.
        let there = self.open(name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
        if !FileType::from_raw_mode(fstat(&there)?.st_mode).is_file() {
            return Ok(None);
        }
        let file = File::from(reopen(&there, OFlags::RDONLY | OFlags::NONBLOCK)?);
        let mut content = Vec::new();
        let read = file.take(self.wanted.max_file).read_to_end(&mut content);
        read.map_err(|err| Errno::from_io_error(&err).unwrap_or(Errno::IO))?;
        Ok(sought.is_in(&content).then(|| self.told(name, stat)))
    }

    fn open(&self, name: &[u8], flags: OFlags) -> Result<OwnedFd> {
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        let above = self.levels.last().ok_or(Errno::NOENT)?.entries.fd()?;
        openat2(above.as_fd(), name, flags, Mode::empty(), how)
    }

    fn told(&self, name: &[u8], stat: &Stat) -> Walked {
        let path = [&self.path, &b"/"[..], name].concat();
        let text = String::from_utf8(path);
        let odd = text.is_err();
        let path = text.unwrap_or_else(|err| String::from_utf8_lossy(err.as_bytes()).into_owned());
        let size = u64::try_from(stat.st_size).unwrap_or_default();
        let changed_ns = i64::try_from(nanoseconds(stat.st_mtime, stat.st_mtime_nsec as i64)).unwrap_or_default();
        Walked { path, odd, kind: kind(stat), size, mode: stat.st_mode & 0o7777, changed_ns }
    }
}

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Wanted {
    /// Whether an entry is one of those that are told, by its name and its times.
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

impl Told {
    fn add(&mut self, walked: &Walked) {
        let before = self.json.len();
        if self.count > 0 {
            self.json.push(b',');
        }
        serde_json::to_writer(&mut self.json, walked).expect("an entry has string keys only");
        if self.json.len() >= MAX_WALKED {
            self.json.truncate(before);
            self.more = true;
        } else {
            self.count += 1;
        }
    }
}

#[cfg(test)]
mod tests;
