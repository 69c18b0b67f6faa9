//! Removal of directories, whatever lies in them.

use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use coracle_runtime::host::tree::DirHandle;
use coracle_runtime::random_hex;

use crate::ids::Privileges;

/// Removes a directory in another one, with its content.
pub(crate) fn remove_entry(dir: BorrowedFd<'_>, name: &CStr) -> io::Result<()> {
    let dir = DirHandle::from(File::from(dir.try_clone_to_owned()?));
    dir.remove_all(OsStr::from_bytes(name.to_bytes()))
}

/// Directories that are about to be deleted, on the file system of the data directory.
#[derive(Clone, Debug)]
pub(crate) struct Trash {
    pub(crate) dir: std::path::PathBuf,
    pub(crate) privileges: Privileges,
}

impl Trash {
    /// Takes a directory away at once, so that nobody finds a half of it, and then deletes it. A missing one is no error.
    pub(crate) fn discard(&self, path: &Path) -> io::Result<()> {
        match self.take(path)? {
            Some(name) => self.delete(OsStr::new(&name)),
            None => Ok(()),
        }
    }

    /// Takes a directory away; [`delete`](Self::delete) or a later process deletes it.
    pub(crate) fn take(&self, path: &Path) -> io::Result<Option<String>> {
        let name = random_hex::<16>();
        match std::fs::rename(path, self.dir.join(&name)) {
            Ok(()) => Ok(Some(name)),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Deletes what was taken away. Another process may do the same.
    pub(crate) fn delete(&self, name: &OsStr) -> io::Result<()> {
        let dir = DirHandle::from(File::open(&self.dir)?);
        self.privileges.run_as_owner(|| match dir.remove_all(name) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            done => done,
        })
    }

    /// Deletes what dead processes left here. The number of directories.
    pub(crate) fn empty(&self) -> io::Result<u64> {
        let mut count = 0;
        for entry in std::fs::read_dir(&self.dir)? {
            self.delete(&entry?.file_name())?;
            count += 1;
        }
        Ok(count)
    }
}
