//! Removes files and directory trees.
//!
//! Names are resolved only in an open directory, and a directory is opened only if it is one, on the same mount. If a link
//! replaces a directory concurrently, the link itself is removed.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, renameat, unlinkat};
use rustix::io::{Errno, Result};

use super::dir::{Entries, all};
use super::parent::enter;
use super::walk::is_gone;
use crate::atomic::temporary_name;

/// Directories open at once. A deeper one is moved up and removed there, so depth costs neither stack nor descriptors.
const MAX_DEPTH: usize = 32;

/// Limit of repeated scans of a directory: a process may fill it as fast as it is emptied. Each [`MAX_DEPTH`] of depth
/// needs one scan.
const MAX_ROUNDS: usize = 1_000_000;

/// Removes an entry; with `recursive`, also a directory that is not empty.
pub(super) fn remove(dir: &OwnedFd, name: &[u8], recursive: bool) -> Result<()> {
    match unlinkat(dir, name, AtFlags::empty()) {
        Err(Errno::ISDIR) if recursive => TreeRemoval::begin(dir.as_fd(), name)?.go(),
        Err(Errno::ISDIR) => unlinkat(dir, name, AtFlags::REMOVEDIR),
        done => done,
    }
}

/// An open directory on the current path.
#[derive(Debug)]
struct RemovalLevel {
    name: Vec<u8>,
    fd: OwnedFd,
    entries: Entries,
}

impl RemovalLevel {
    fn open(above: BorrowedFd<'_>, name: &[u8]) -> Result<Self> {
        let fd = enter(above, name)?;
        Ok(Self { name: name.to_vec(), entries: all(&fd)?, fd })
    }
}

/// A removal in progress.
#[derive(Debug)]
pub(crate) struct TreeRemoval<'a> {
    above: BorrowedFd<'a>,
    levels: Vec<RemovalLevel>,
    rounds: usize,
    /// How many files and links were removed, and how many directories.
    removed: (u64, u64),
}

impl<'a> TreeRemoval<'a> {
    pub(crate) fn begin(above: BorrowedFd<'a>, name: &[u8]) -> Result<Self> {
        Ok(Self { above, levels: vec![RemovalLevel::open(above, name)?], rounds: 0, removed: (0, 0) })
    }

    fn go(mut self) -> Result<()> {
        while self.advance()? {}
        Ok(())
    }

    /// How many files and links were removed so far, and how many directories.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.removed
    }

    /// Performs the next step. Returns whether there was one.
    pub(crate) fn advance(&mut self) -> Result<bool> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        match level.entries.next() {
            Some(entry) => {
                let below = self.step(&entry?.name)?;
                self.levels.extend(below);
            }
            None => self.remove_last()?,
        }
        Ok(true)
    }

    /// Removes an entry of the last level, or returns the level to descend into.
    fn step(&mut self, name: &[u8]) -> Result<Option<RemovalLevel>> {
        let fd = self.levels[self.levels.len() - 1].fd.as_fd();
        let done = match unlinkat(fd, name, AtFlags::empty()) {
            Err(Errno::ISDIR) if self.levels.len() < MAX_DEPTH => RemovalLevel::open(fd, name).map(Some),
            Err(Errno::ISDIR) => renameat(fd, name, &self.levels[0].fd, temporary_name()?).map(|()| None),
            Ok(()) => {
                self.removed.0 += 1;
                Ok(None)
            }
            Err(errno) => Err(errno),
        };
        done.or_else(|errno| skippable(errno).map(|()| None))
    }

    /// Removes the last level, or scans it once more if entries remain: entries that were moved or created there, and
    /// entries that a file system omits from a listing during removal.
    fn remove_last(&mut self) -> Result<()> {
        let Some(mut last) = self.levels.pop() else { return Ok(()) };
        let above = self.levels.last().map_or(self.above, |it| it.fd.as_fd());
        match unlinkat(above, &last.name, AtFlags::REMOVEDIR) {
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.rounds < MAX_ROUNDS => {
                last.entries = all(&last.fd)?;
                self.rounds += 1;
                self.levels.push(last);
                Ok(())
            }
            Ok(()) => {
                self.removed.1 += 1;
                Ok(())
            }
            Err(errno) => skippable(errno),
        }
    }
}

/// Skips an entry that was removed or replaced; if it still exists, the next scan finds it.
fn skippable(errno: Errno) -> Result<()> {
    if is_gone(errno) { Ok(()) } else { Err(errno) }
}

#[cfg(test)]
mod tests {
    use rustix::fs::{CWD, Mode, OFlags, mkdirat, open, openat};

    use super::*;

    #[test]
    fn depth_costs_neither_stack_nor_descriptors() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut deepest = openat(CWD, dir.path(), flags, Mode::empty()).unwrap();
        for _ in 0..5000 {
            mkdirat(&deepest, "deep", Mode::RWXU).unwrap();
            deepest = openat(&deepest, "deep", flags, Mode::empty()).unwrap();
        }
        let above = open(dir.path(), flags, Mode::empty()).unwrap();
        let mut descent = TreeRemoval::begin(above.as_fd(), b"deep").unwrap();
        while descent.advance().unwrap() {
            assert!(descent.levels.len() <= MAX_DEPTH);
        }
        assert!(!dir.path().join("deep").exists());
    }
}
