//! Walks the tree below a directory.
//!
//! Each directory is opened relative to its parent, without following links or entering mounts. If a name is swapped during
//! the walk, that tree may be missed, but the walk cannot leave the root.

use std::cmp::Ordering;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};
use std::vec::IntoIter;

use rustix::fs::{FileType, Mode, openat};
use rustix::io::{Errno, Result};

use super::dir::{DirEntry, Entries, READ, all, join, kind};
use super::gitignore::IgnoreRules;
use super::parent::enter;
use crate::atomic::{is_temporary, remove_leftover};
use crate::os::blocking::CancelFlag;
use crate::protocol::workspace::SearchLimits;

/// Directories open at once, and the greatest depth. A walk that reaches it is reported as incomplete.
pub(super) const MAX_DEPTH: usize = 128;

/// Limit of entries, also if the request has a higher one.
const MAX_ENTRIES: usize = 1_000_000;

/// Longest duration of a walk.
const MAX_TIME: Duration = Duration::from_secs(120);

/// Limits of a walk.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WalkLimits {
    pub(crate) order: WalkOrder,
    pub(crate) temporaries: Temporaries,
    /// Whether mounts are entered. Then a directory that cannot be opened makes the walk incomplete.
    pub(crate) mounts: bool,
    /// Limit of entries.
    pub(crate) entries: usize,
    pub(crate) until: Instant,
}

/// The order of entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WalkOrder {
    /// Sorted by the parts of paths. All names of a directory are in memory at once, up to the remaining limit.
    Sorted,
    /// The file system's order.
    Any,
}

/// How files with a temporary name are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temporaries {
    /// Skipped.
    Skipped,
    /// Reported like other entries: users can give a file such a name.
    Shown,
    /// Skipped, and removed if older than that time, in nanoseconds since 1970.
    Removed(i128),
}

impl WalkLimits {
    /// Limits for a workspace.
    pub(crate) fn sorted(bounds: SearchLimits) -> Self {
        let until = Instant::now() + Duration::from_millis(bounds.within_ms).min(MAX_TIME);
        let entries = (bounds.entries as usize).min(MAX_ENTRIES);
        Self { order: WalkOrder::Sorted, temporaries: Temporaries::Skipped, mounts: false, entries, until }
    }

    /// Everything on one file system.
    pub(crate) fn everything(until: Instant) -> Self {
        let (order, temporaries) = (WalkOrder::Any, Temporaries::Shown);
        Self { order, temporaries, mounts: false, entries: usize::MAX, until }
    }
}

/// A walk in progress.
#[derive(Debug)]
pub(crate) struct TreeWalk {
    pub(super) levels: Vec<WalkLevel>,
    /// Path from the start to the directory of the last level.
    path: Vec<u8>,
    /// Git's ignore rules, if they apply.
    ignored: Option<IgnoreRules>,
    limits: WalkLimits,
    stop: CancelFlag,
    complete: bool,
    /// The first directory whose names were not all read; the walk is incomplete after it.
    frontier: Option<Vec<u8>>,
}

/// An open directory on the current path.
#[derive(Debug)]
pub(super) struct WalkLevel {
    dir: Arc<OwnedFd>,
    entries: LevelEntries,
    /// Length of the path without this directory's name.
    before: usize,
}

#[derive(Debug)]
enum LevelEntries {
    Sorted(IntoIter<DirEntry>),
    Any(Entries),
}

/// An entry of a walk; a directory is entered after it was reported.
#[derive(Debug)]
pub(crate) struct WalkEntry {
    pub(crate) dir: Arc<OwnedFd>,
    pub(crate) name: Vec<u8>,
    pub(crate) kind: FileType,
    /// Path from the start of the walk.
    pub(crate) path: Vec<u8>,
}

/// Selects the directories to enter, by name and by path from the start.
pub(crate) type DirectoryFilter<'a> = &'a dyn Fn(&[u8], &[u8]) -> bool;

impl TreeWalk {
    /// Starts a walk of a directory.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    pub(crate) fn begin(
        dir: &OwnedFd,
        limits: WalkLimits,
        ignored: Option<IgnoreRules>,
        stop: &CancelFlag,
    ) -> Result<Self> {
        let (levels, path, stop) = (Vec::new(), Vec::new(), stop.clone());
        let mut walk = Self { levels, path, ignored, limits, stop, complete: true, frontier: None };
        walk.open(openat(dir, ".", READ, Mode::empty())?, 0)?;
        Ok(walk)
    }

    /// The next entry.
    pub(crate) fn next(&mut self, enters: DirectoryFilter<'_>) -> Option<WalkEntry> {
        loop {
            let entry = self.next_entry()?;
            let dir = self.levels.last()?.dir.clone();
            if self.limits.entries == 0 || self.is_over() {
                self.mark_incomplete(Some(join(&self.path, &entry.name)));
                self.levels.clear();
                return None;
            }
            self.limits.entries -= 1;
            let (kind, path) = (kind(&dir, &entry), join(&self.path, &entry.name));
            let is_dir = kind == FileType::Directory;
            if self.ignored.as_ref().is_some_and(|it| it.ignores(&path, is_dir)) {
                continue;
            }
            if is_dir && enters(&entry.name, &path) {
                self.enter_dir(&dir, &entry.name);
            }
            return Some(WalkEntry { dir, name: entry.name, kind, path });
        }
    }

    /// Whether the deadline has passed or the caller cancelled.
    pub(crate) fn is_over(&self) -> bool {
        self.stop.is_set() || Instant::now() >= self.limits.until
    }

    /// Whether all entries were returned.
    pub(super) fn is_finished(&self) -> bool {
        self.levels.is_empty()
    }

    pub(crate) fn until(&self) -> Instant {
        self.limits.until
    }

    /// Whether no entry was skipped so far.
    pub(crate) fn is_complete(&self) -> bool {
        self.complete
    }

    /// The path before which the walk is complete, if it is not complete as a whole.
    pub(crate) fn frontier(self) -> Option<Vec<u8>> {
        self.frontier
    }

    /// The next entry of the innermost directory that has one.
    fn next_entry(&mut self) -> Option<DirEntry> {
        loop {
            let level = self.levels.last_mut()?;
            let next = match &mut level.entries {
                LevelEntries::Sorted(entries) => entries.next().map(Ok),
                LevelEntries::Any(entries) => entries.next(),
            };
            match next {
                Some(Ok(entry)) if self.limits.order == WalkOrder::Sorted || self.shows(&entry) => return Some(entry),
                Some(Ok(_)) => {}
                Some(Err(_)) => {
                    self.mark_incomplete(None);
                    self.leave_directory();
                }
                None => self.leave_directory(),
            }
        }
    }

    fn mark_incomplete(&mut self, at: Option<Vec<u8>>) {
        self.complete = false;
        if self.frontier.is_none() {
            self.frontier = Some(at.unwrap_or_else(|| self.path.clone()));
        }
    }

    fn enter_dir(&mut self, dir: &Arc<OwnedFd>, name: &[u8]) {
        let before = self.path.len();
        self.path = join(&self.path, name);
        let done = match self.levels.len() {
            MAX_DEPTH.. => Err(Errno::NAMETOOLONG),
            _ if self.limits.mounts => openat(dir, name, READ, Mode::empty()),
            _ => enter(dir.as_fd(), name),
        };
        if let Err(errno) = done.and_then(|dir| self.open(dir, before)) {
            if !is_gone(errno) && (self.limits.mounts || !is_foreign(errno)) {
                self.mark_incomplete(None);
            }
            self.path.truncate(before);
        }
    }

    fn open(&mut self, dir: OwnedFd, before: usize) -> Result<()> {
        let entries = match self.limits.order {
            WalkOrder::Any => LevelEntries::Any(all(&dir)?),
            WalkOrder::Sorted => LevelEntries::Sorted(self.sorted(&dir)?.into_iter()),
        };
        if let Some(ignored) = &mut self.ignored {
            ignored.enter(&dir, &self.path);
        }
        self.levels.push(WalkLevel { dir: Arc::new(dir), entries, before });
        Ok(())
    }

    fn sorted(&mut self, dir: &OwnedFd) -> Result<Vec<DirEntry>> {
        let mut entries = Vec::new();
        for entry in all(dir)? {
            match entry {
                Ok(entry) if !self.shows(&entry) => {
                    if let Temporaries::Removed(since) = self.limits.temporaries {
                        remove_leftover(dir, &entry.name, since);
                    }
                }
                Ok(entry) if entries.len() < self.limits.entries => entries.push(entry),
                // The directory was removed concurrently, or the disk failed: its other entries are skipped.
                _ => {
                    self.mark_incomplete(None);
                    break;
                }
            }
        }
        entries.sort_unstable_by(|one, other| one.name.cmp(&other.name));
        Ok(entries)
    }

    fn shows(&self, entry: &DirEntry) -> bool {
        self.limits.temporaries == Temporaries::Shown || !is_temporary(&entry.name)
    }

    fn leave_directory(&mut self) {
        if let Some(level) = self.levels.pop() {
            self.path.truncate(level.before);
        }
        if let Some(ignored) = &mut self.ignored {
            ignored.leave_directory();
        }
    }
}

/// Whether the entry was removed or replaced.
pub(super) fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Whether the entry is a mount, or not accessible.
pub(super) fn is_foreign(errno: Errno) -> bool {
    matches!(errno, Errno::XDEV | Errno::ACCESS | Errno::PERM)
}

/// Compares paths part by part.
pub(crate) fn by_parts(one: &[u8], other: &[u8]) -> Ordering {
    one.split(|it| *it == b'/').cmp(other.split(|it| *it == b'/'))
}
