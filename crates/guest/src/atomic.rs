//! Files whose content is replaced atomically.
//!
//! **Invariant:** opening a name returns the complete old content or the complete new one.
//! **Invariant:** a file that a killed guest leaves behind has a temporary name, which listings omit and the next guest
//! removes.

mod leftovers;

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};

use rustix::fs::{
    AtFlags, Mode, OFlags, RenameFlags, fsync, linkat, openat, renameat, renameat_with, statat, unlinkat,
};
use rustix::io::{Errno, Result};

pub(crate) use self::leftovers::{Leftovers, nanoseconds, remove_leftover};
use self::leftovers::{mark_in_use, unmark};

/// What is on the disk once the new content has its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durability {
    /// The content and the name.
    All,
    /// The content. The caller [syncs](sync_dir) the name: after a crash before that, the file has either content.
    Content,
    /// Nothing: the file system has no disk.
    Nothing,
}

/// The new content of a file, under a temporary name until it is committed. Dropping it uncommitted removes the file.
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
    /// Creates an empty file for a name in that directory.
    ///
    /// # Errors
    /// Fails if the kernel refuses a call.
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

    /// Renames the file to `name`; with `replace`, over an existing file.
    ///
    /// # Errors
    /// Fails if the kernel refuses a call; [`Errno::EXIST`] without `replace` if the name exists.
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
            // If the removal fails, the temporary name marks the file as a leftover.
            let _ = unlinkat(&self.dir, &self.name, AtFlags::empty());
        }
    }
}

/// Returns a random name, which listings [omit](is_temporary).
///
/// # Errors
/// Fails if the system has no randomness.
pub(crate) fn temporary_name() -> Result<String> {
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|_| Errno::IO)?;
    Ok(format!(".coracle-{}.tmp", hex::encode(random)))
}

/// Whether it is the temporary name of a file.
pub(crate) fn is_temporary(name: &[u8]) -> bool {
    let digits = name.strip_prefix(b".coracle-").and_then(|rest| rest.strip_suffix(b".tmp"));
    let is_lower_hex = |byte: &u8| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase();
    digits.is_some_and(|digits| digits.len() == 16 && digits.iter().all(is_lower_hex))
}

/// Opens a directory for syncing, if the user may read it.
///
/// # Errors
/// Fails if the kernel refuses the call.
pub(crate) fn read_dir(dir: impl AsFd) -> Result<OwnedFd> {
    openat(dir, ".", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

/// Syncs the names in a directory to the disk.
fn sync_dir(dir: impl AsFd) -> Result<()> {
    match read_dir(dir).and_then(fsync) {
        // A directory that may be written but not read, or a file system that needs no sync.
        Err(Errno::ACCESS | Errno::INVAL) => Ok(()),
        done => done,
    }
}

/// Renames within a directory, to a name that must be free.
///
/// # Errors
/// Fails if the kernel refuses a call; [`Errno::EXIST`] if the name exists.
pub(crate) fn rename_new(dir: impl AsFd, from: &[u8], to: &[u8]) -> Result<()> {
    let dir = dir.as_fd();
    match renameat_with(dir, from, dir, to, RenameFlags::NOREPLACE) {
        // Some file systems of desktop virtual machines do not support the flag; a hard link never replaces a file.
        Err(Errno::INVAL | Errno::NOSYS) => match linkat(dir, from, dir, to, AtFlags::empty()) {
            Err(Errno::PERM | Errno::ISDIR) => rename_dir(dir, from, to),
            linked => linked.and_then(|()| unlinkat(dir, from, AtFlags::empty())),
        },
        done => done,
    }
}

/// A directory cannot have a hard link, so this is not atomic: if a directory of that name is created concurrently, it is
/// replaced, which is possible only while it is empty.
fn rename_dir(dir: impl AsFd, from: &[u8], to: &[u8]) -> Result<()> {
    match statat(&dir, to, AtFlags::SYMLINK_NOFOLLOW) {
        Err(Errno::NOENT) => renameat(&dir, from, &dir, to),
        existing => existing.and(Err(Errno::EXIST)),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Write as _;

    use super::*;

    #[test]
    fn content_is_replaced_atomically_and_no_temporary_file_remains() {
        let dir = tempfile::tempdir().unwrap();
        let (path, held) = (dir.path().join("f"), File::open(dir.path()).unwrap());
        let create = |content: &[u8]| {
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
            create(content.as_bytes()).commit(b"f", replace, durability).unwrap();
            assert_eq!(fs::read_to_string(&path).unwrap(), content);
        }
        drop(create(b"dropped"));
        assert_eq!(create(b"taken").commit(b"f", false, Durability::All).unwrap_err(), Errno::EXIST);
        fs::create_dir(dir.path().join("d")).unwrap();
        assert!(create(b"no file").commit(b"d", true, Durability::All).is_err());
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), fs::read_dir(dir.path()).unwrap().count()), ("c", 2));
    }
}
