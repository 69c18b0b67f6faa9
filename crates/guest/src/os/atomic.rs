//! Files that get a new content at once.
//!
//! **Invariant:** opening a name gives the complete old content or the complete new one.
//! **Invariant:** a file that a killed guest leaves behind has a temporary name, which listings omit and the next guest
//! removes.

mod leftovers;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{AtFlags, Mode, OFlags, RenameFlags};
use rustix::fs::{fsync, linkat, openat, renameat, renameat_with, statat, unlinkat};
use rustix::io::{Errno, Result};

pub(crate) use self::leftovers::{Leftovers, nanoseconds, remove_leftover};
use self::leftovers::{mark_in_use, unmark};

/// What is on the disk when a new content gets its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// Content and name.
    All,
    /// The content. To [sync](sync_dir) the name is left to the caller: until then a machine that dies has either content.
    Content,
    /// Nothing: there is no disk.
    Nothing,
}

/// A new content of a file, under a temporary name until it is committed. Without that it goes when this is dropped.
#[derive(Debug)]
pub(crate) struct AtomicFile<D: AsFd> {
    temporary: Temporary<D>,
    file: File,
}

#[derive(Debug)]
struct Temporary<D: AsFd> {
    dir: D,
    name: String,
    renamed: bool,
}

impl<D: AsFd> AtomicFile<D> {
    /// An empty one for a name in that directory.
    ///
    /// # Errors
    /// The kernel's.
    pub(crate) fn create(dir: D, mode: Mode) -> Result<Self> {
        let name = temporary_name()?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&dir, &name, flags, mode)?);
        mark_in_use(&file);
        Ok(Self { temporary: Temporary { dir, name, renamed: false }, file })
    }

    pub(crate) fn file(&mut self) -> &mut File {
        &mut self.file
    }

    /// Gives it its name; `replace`: in place of what has that now.
    ///
    /// # Errors
    /// The kernel's; [`Errno::EXIST`] without `replace`.
    pub(crate) fn commit(self, name: &[u8], replace: bool, durability: Durability) -> Result<File> {
        let Self { mut temporary, file } = self;
        if durability != Durability::Nothing {
            fsync(&file)?;
        }
        let (dir, from) = (&temporary.dir, temporary.name.as_str());
        match replace {
            true => renameat(dir, from, dir, name)?,
            false => rename_new(dir, from.as_bytes(), name)?,
        }
        temporary.renamed = true;
        unmark(&file);
        if durability == Durability::All {
            sync_dir(&temporary.dir)?;
        }
        Ok(file)
    }
}

impl<D: AsFd> Drop for Temporary<D> {
    fn drop(&mut self) {
        if !self.renamed {
            // A file that cannot be removed keeps its temporary name, which marks it as a leftover.
            let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

/// A random name, which listings [leave out](is_temporary).
///
/// # Errors
/// There is no randomness.
pub(crate) fn temporary_name() -> Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    Ok(format!(".coracle-{}.tmp", hex::encode(random)))
}

/// Whether it is one of the names that files have before their own.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".coracle-").and_then(|it| it.strip_suffix(b".tmp"));
    digits.is_some_and(|it| it.len() == 16 && it.iter().all(|it| it.is_ascii_hexdigit() && !it.is_ascii_uppercase()))
}

/// A directory as it can be synced, where the user may read it.
///
/// # Errors
/// The kernel's.
pub(crate) fn read_dir(dir: impl AsFd) -> Result<OwnedFd> {
    openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Puts the names in a directory on the disk.
fn sync_dir(dir: impl AsFd) -> Result<()> {
    match read_dir(dir).and_then(fsync) {
        // A directory that may be written but not read, and file systems that sync by themselves.
        Err(Errno::ACCESS | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// Renames within a directory, to a name that is free.
///
/// # Errors
/// The kernel's; [`Errno::EXIST`] for one that is taken.
pub(crate) fn rename_new(dir: impl AsFd, from: &[u8], to: &[u8]) -> Result<()> {
    let dir = dir.as_fd();
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // Not every file system of a desktop's virtual machine knows the flag; a second name is never a replacement.
        Err(Errno::INVAL | Errno::NOSYS) => match linkat(dir, from, dir, to, AtFlags::empty()) {
            Err(Errno::PERM | Errno::ISDIR) => rename_dir(dir, from, to),
            linked => linked.and_then(|()| unlinkat(dir, from, AtFlags::empty())),
        },
        done => done,
    }
}

/// A directory has no second name, so this is not atomic: a concurrent creation under that name loses an empty
/// directory at most.
fn rename_dir(dir: impl AsFd, from: &[u8], to: &[u8]) -> Result<()> {
    match statat(&dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(&dir, from, &dir, to),
        there => there.and(Err(Errno::EXIST)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_name_has_the_old_content_until_it_has_the_new_one_and_nothing_is_left_beside() {
        let dir = tempfile::tempdir().unwrap();
        let (path, held) = (dir.path().join("f"), File::open(dir.path()).unwrap());
        let begin = |content: &[u8]| {
            let mut new = AtomicFile::create(&held, Mode::RUSR | Mode::WUSR).unwrap();
            new.file().write_all(content).unwrap();
            assert!(
                fs::read_dir(dir.path()).unwrap().any(|it| is_temporary(it.unwrap().file_name().as_encoded_bytes()))
            );
            new
        };
        for (content, replace, durability) in
            [("a", false, Durability::All), ("b", true, Durability::Content), ("c", true, Durability::Nothing)]
        {
            begin(content.as_bytes()).commit(b"f", replace, durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        drop(begin(b"dropped"));
        assert_eq!(begin(b"taken").commit(b"f", false, Durability::All).unwrap_err(), Errno::EXIST);
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(begin(b"no file").commit(b"d", true, Durability::All).is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), fs::read_dir(dir.path()).unwrap().count()), ("c", 2));
    }
}
