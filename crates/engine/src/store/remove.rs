//! Removal of directories, whatever lies in them.

use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use coracle_runtime::host::tree::{DirHandle, Node};
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
    pub(crate) dir: PathBuf,
    pub(crate) privileges: Privileges,
}

impl Trash {
    /// Takes a directory away at once, so that nobody finds a half of it, and then deletes it. A missing one is no error.
    pub(crate) fn discard(&self, path: &Path) -> io::Result<()> {
        self.take(path)?.map_or(Ok(()), |name| self.delete(&[name]))
    }

    /// Takes a directory away; [`delete`](Self::delete) or a later process deletes it.
    pub(crate) fn take(&self, path: &Path) -> io::Result<Option<OsString>> {
        let name = random_hex::<16>();
        match std::fs::rename(path, self.dir.join(&name)) {
            Ok(()) => Ok(Some(name.into())),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Deletes what was taken away. Another process may do the same.
    pub(crate) fn delete(&self, names: &[OsString]) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let dir = DirHandle::from(File::open(&self.dir)?);
        self.privileges.run_as_owner(|| names.iter().try_for_each(|it| delete_one(&dir, it)))
    }

    /// Deletes what processes left here that died before they had deleted it: entries of at least that age. The number.
    pub(crate) fn empty(&self, age: Duration) -> io::Result<u64> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            // The rename into the trash is the last change of the entry itself; deletion changes its times again.
            let changed = entry.metadata().map(|it| UNIX_EPOCH + Duration::from_secs(it.ctime().unsigned_abs()));
            let is_old = changed.is_ok_and(|it| it.elapsed().is_ok_and(|it| it >= age));
            names.extend(is_old.then(|| entry.file_name()));
        }
        self.delete(&names)?;
        Ok(names.len() as u64)
    }
}

fn delete_one(dir: &DirHandle, name: &OsStr) -> io::Result<()> {
    let removed = match dir.entry_kind(name)? {
        Some(Node::Dir) => dir.remove_all(name),
        Some(_) => dir.remove(name),
        None => Ok(()),
    };
    removed.or_else(|err| if err.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(err) })
}
