//! Going through what is below a directory, sorted by the parts of paths.
//!
//! Directories are opened in the one above them, never by a link and never across a mount. So whoever swaps a name
//! meanwhile hides what is its own, and leads nobody anywhere.

use std::cmp::Ordering;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use rustix::fs::{FileType, Mode, openat};
use rustix::io::{Errno, Result};

use super::dir::{Entry, READ, all, kind};
use super::ignored::Ignored;
use super::item::join;
use super::{Stop, Tried};
use crate::files::enter;
use crate::os::atomic::{is_temporary, remove_leftover};
use crate::wire::space::Bounds;

/// Directories open at once, and so how deep a walk goes. What is deeper is not met, and that is said.
const MAX_DEPTH: usize = 128;

/// A walk meets no more, whatever was asked for.
const MAX_ENTRIES: usize = 1_000_000;

/// And takes no longer.
const MAX_TIME: Duration = Duration::from_secs(120);

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk<'a> {
    levels: Vec<Level>,
    /// From where the walk began to the directory that the last level is.
    path: Vec<u8>,
    /// What git would leave out, if that is asked for.
    ignored: Option<Ignored>,
    left: usize,
    until: Instant,
    stop: &'a Stop,
    complete: bool,
    /// A directory that was not met whole was begun with; what came after this is not all there is.
    frontier: Option<Vec<u8>>,
    /// What was left over before that time, in nanoseconds since 1970, is removed on the way.
    sweep: Option<i128>,
}

#[derive(Debug)]
struct Level {
    dir: Arc<OwnedFd>,
    entries: IntoIter<Entry>,
    /// Bytes of the path before its own name was added.
    before: usize,
}

/// An entry that was met; directories are gone into after they were told.
#[derive(Debug)]
pub(super) struct Met {
    pub(super) dir: Arc<OwnedFd>,
    pub(super) name: Vec<u8>,
    pub(super) kind: FileType,
    /// From where the walk began.
    pub(super) path: Vec<u8>,
}

/// Which directories are gone into, by name and by path from where the walk began.
pub(super) type Enters<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

impl<'a> Walk<'a> {
    pub(super) fn begin(dir: &OwnedFd, ignored: Option<Ignored>, bounds: Bounds, stop: &'a Stop) -> Tried<Self> {
        let until = Instant::now() + Duration::from_millis(bounds.within_ms).min(MAX_TIME);
        let left = (bounds.entries as usize).min(MAX_ENTRIES);
        let (levels, path, frontier, sweep) = (Vec::new(), Vec::new(), None, None);
        let mut walk = Self { levels, path, ignored, left, until, stop, complete: true, frontier, sweep };
        walk.open(openat(dir, ".", READ, Mode::empty())?, 0)?;
        Ok(walk)
    }

    /// Goes through all of it, and removes what was left over before a time.
    pub(super) fn sweep(dir: &OwnedFd, since: i128, bounds: Bounds, stop: &'a Stop) -> Tried<()> {
        // The directory that a walk begins at is opened with it, and so would not be swept.
        let nothing = Bounds { entries: 0, ..bounds };
        let mut walk = Self { sweep: Some(since), ..Self::begin(dir, None, nothing, stop)? };
        walk.levels.clear();
        (walk.left, walk.complete) = (bounds.entries as usize, true);
        walk.open(openat(dir, ".", READ, Mode::empty())?, 0)?;
        while walk.next(&|_, _| true).is_some() {}
        Ok(())
    }

    /// The next entry.
    pub(super) fn next(&mut self, enters: Enters<'_>) -> Option<Met> {
        loop {
            let level = self.levels.last_mut()?;
            let Some(entry) = level.entries.next() else {
                self.leave();
                continue;
            };
            let dir = level.dir.clone();
            if self.left == 0 || self.is_over() {
                self.breaks(Some(join(&self.path, &entry.name)));
                self.levels.clear();
                return None;
            }
            self.left -= 1;
            let (kind, path) = (kind(&dir, &entry), join(&self.path, &entry.name));
            let is_dir = kind == FileType::Directory;
            if self.ignored.as_ref().is_some_and(|it| it.leaves_out(&path, is_dir)) {
                continue;
            }
            if is_dir && enters(&entry.name, &path) {
                self.go_into(&dir, &entry.name);
            }
            return Some(Met { dir, name: entry.name, kind, path });
        }
    }

    /// Whether its time is up, or nobody waits for it.
    pub(super) fn is_over(&self) -> bool {
        self.stop.is_set() || Instant::now() >= self.until
    }

    pub(super) fn until(&self) -> Instant {
        self.until
    }

    /// Whether everything was met so far.
    pub(super) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The path before which everything was met, if not all was.
    pub(super) fn frontier(self) -> Option<Vec<u8>> {
        self.frontier
    }

    fn breaks(&mut self, at: Option<Vec<u8>>) {
        self.complete = false;
        if self.frontier.is_none() {
            self.frontier = Some(at.unwrap_or_else(|| self.path.clone()));
        }
    }

    fn go_into(&mut self, dir: &Arc<OwnedFd>, name: &[u8]) {
        let before = self.path.len();
        self.path = join(&self.path, name);
        let done = match self.levels.len() {
            MAX_DEPTH.. => Err(Errno::NAMETOOLONG),
            _ => enter(dir.as_fd(), name).and_then(|dir| self.open(dir, before)),
        };
        if let Err(errno) = done {
            // It went or became something else, is mounted, or is not for us.
            let harmless = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::XDEV, Errno::ACCESS, Errno::PERM];
            if !harmless.contains(&errno) {
                self.breaks(None);
            }
            self.path.truncate(before);
        }
    }

    fn open(&mut self, dir: OwnedFd, before: usize) -> Result<()> {
        let mut entries = Vec::new();
        for entry in all(&dir)? {
            match entry {
                Ok(entry) if is_temporary(&entry.name) => {
                    if let Some(since) = self.sweep {
                        remove_leftover(&dir, &entry.name, since);
                    }
                }
                Ok(_) if entries.len() >= self.left => {
                    self.breaks(None);
                    break;
                }
                Ok(entry) => entries.push(entry),
                // A directory that somebody empties meanwhile, or a disk that fails: the rest of it is not met.
                Err(_) => {
                    self.breaks(None);
                    break;
                }
            }
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        if let Some(ignored) = &mut self.ignored {
            ignored.enter(&dir, &self.path);
        }
        self.levels.push(Level { dir: Arc::new(dir), entries: entries.into_iter(), before });
        Ok(())
    }

    fn leave(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.before);
        }
        if let Some(ignored) = &mut self.ignored {
            ignored.leave();
        }
    }
}

/// Compares paths part by part.
pub(super) fn by_parts(one: &[u8], other: &[u8]) -> Ordering {
    one.split(|it| *it == b'/').cmp(other.split(|it| *it == b'/'))
}
