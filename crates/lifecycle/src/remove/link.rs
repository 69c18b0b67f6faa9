//! Clears the directory that was a container's link directory.
//!
//! Root inside could put anything into it. Names are only opened relative to an open directory, and a link is removed
//! and not followed. Depth and number of the entries are bounded.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::path::Path;

use coracle_types::random_hex;
use rustix::fs::{AtFlags, CWD, Dir, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::{Errno, Result};

/// Directories open at once. A deeper one is moved up and removed there.
const MAX_DEPTH: usize = 32;

/// Entries that one removal looks at.
pub(super) const MAX_ENTRIES: usize = 1_000_000;

/// Removes a directory with its content. If some of it cannot be removed, or it has more than `most` entries, it is
/// renamed next to its place, so that leftovers of a removed container block nothing.
pub(super) fn clear(above: &Path, name: &str, most: usize) {
    let Err(errno) = remove(above, name, most) else { return };
    let aside = format!(".trash-{}", random_hex::<8>());
    let left = if std::fs::rename(above.join(name), above.join(&aside)).is_ok() { &aside } else { name };
    tracing::warn!(path = %above.join(left).display(), %errno, "a directory of a container stays");
}

/// The same, without setting anything aside.
pub(super) fn remove(above: &Path, name: &str, most: usize) -> Result<()> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let above = openat(CWD, above, flags, Mode::empty())?;
    match Level::open(above.as_fd(), name.as_bytes()) {
        Err(Errno::NOENT) => Ok(()),
        top => TreeRemoval { above, levels: vec![top?], left: most, failed: None }.go(),
    }
}

/// A directory on the way down.
struct Level {
    name: Vec<u8>,
    fd: OwnedFd,
    entries: Dir,
    /// Something of it went, or came to it, since it was last gone through.
    changed: bool,
}

impl Level {
    fn open(above: BorrowedFd<'_>, name: &[u8]) -> Result<Self> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let fd = openat(above, name, flags, Mode::empty())?;
        Ok(Self { name: name.to_vec(), entries: Dir::read_from(&fd)?, fd, changed: false })
    }

    fn next(&mut self) -> Option<Result<Vec<u8>>> {
        let mut names = self.entries.by_ref().map(|it| it.map(|entry| entry.file_name().to_bytes().to_vec()));
        names.find(|it| it.as_ref().map_or(true, |name| name != b"." && name != b".."))
    }
}

struct TreeRemoval {
    above: OwnedFd,
    levels: Vec<Level>,
    /// Entries that may still be looked at.
    left: usize,
    /// Why something stays.
    failed: Option<Errno>,
}

impl TreeRemoval {
    fn go(mut self) -> Result<()> {
        while self.advance()? {}
        self.failed.map_or(Ok(()), Err)
    }

    /// Does the next step; whether there was one.
    fn advance(&mut self) -> Result<bool> {
        let Some(level) = self.levels.last_mut() else { return Ok(false) };
        let Some(name) = level.next() else { return self.remove_level().map(|()| true) };
        self.left = self.left.checked_sub(1).ok_or(Errno::TOOBIG)?;
        match name.and_then(|name| self.step(&name)) {
            Ok(below) => self.levels.extend(below),
            Err(errno) => self.failed = Some(errno),
        }
        Ok(true)
    }

    /// Removes an entry of the last level, or gives the level that it is.
    fn step(&mut self, name: &[u8]) -> Result<Option<Level>> {
        let last = self.levels.len() - 1;
        let fd = self.levels[last].fd.as_fd();
        match unlinkat(fd, name, AtFlags::empty()) {
            // Not every system tells a directory by the first of these.
            Err(Errno::ISDIR | Errno::PERM) if last + 1 < MAX_DEPTH => match Level::open(fd, name) {
                // Root inside has closed it, possibly under an id that this process cannot become. It can be removed if
                // it is empty.
                Err(Errno::ACCESS) => unlinkat(fd, name, AtFlags::REMOVEDIR)?,
                level => return level.map(Some),
            },
            Err(Errno::ISDIR | Errno::PERM) => {
                renameat(fd, name, &self.levels[0].fd, random_hex::<16>())?;
                self.levels[0].changed = true;
            }
            done => done?,
        }
        self.levels[last].changed = true;
        Ok(None)
    }

    /// Removes the last level, or goes through it once more when something is left in it and something else went: what
    /// was moved there, and what a file system leaves out of a listing while entries go.
    fn remove_level(&mut self) -> Result<()> {
        let Some(mut last) = self.levels.pop() else { return Ok(()) };
        let above = self.levels.last().map_or(self.above.as_fd(), |it| it.fd.as_fd());
        match unlinkat(above, &last.name, AtFlags::REMOVEDIR) {
            Ok(()) => match self.levels.last_mut() {
                Some(above) => above.changed = true,
                // What failed on the way has gone in the end.
                None => self.failed = None,
            },
            Err(Errno::NOTEMPTY | Errno::EXIST) if last.changed => {
                (last.entries, last.changed) = (Dir::read_from(&last.fd)?, false);
                self.levels.push(last);
            }
            Err(errno) => self.failed = Some(errno),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use rustix::fs::mkdirat;

    use super::*;

    fn names(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> =
            fs::read_dir(dir).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn depth_costs_nothing_and_a_link_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let outside = dir.path().join("outside");
        fs::create_dir_all(outside.join("content")).unwrap();
        fs::create_dir(dir.path().join("link")).unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let mut deepest = openat(CWD, dir.path().join("link"), flags, Mode::empty()).unwrap();
        for level in 0..5000 {
            if level % 100 == 0 {
                rustix::fs::symlinkat(&outside, &deepest, "way out").unwrap();
            }
            mkdirat(&deepest, "deep", Mode::RWXU).unwrap();
            deepest = openat(&deepest, "deep", flags, Mode::empty()).unwrap();
        }
        remove(dir.path(), "link", MAX_ENTRIES).unwrap();
        assert_eq!(names(dir.path()), ["outside"]);
        assert_eq!(names(&outside), ["content"]);
    }

    #[test]
    fn what_is_too_much_is_set_aside_and_the_name_is_free() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("link")).unwrap();
        for file in 0..20 {
            fs::write(dir.path().join("link").join(file.to_string()), "").unwrap();
        }
        clear(dir.path(), "link", 10);
        let [left] = &*names(dir.path()) else { panic!("one is left") };
        assert!(left.starts_with(".trash-"), "{left}");
        clear(dir.path(), "link", 10);
        assert_eq!(names(&dir.path().join(left)).len(), 10);
    }
}
