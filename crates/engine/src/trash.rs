//! Directories that are about to be deleted.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use coracle_host::tree::{DirHandle, Node};
use coracle_types::random_hex;

use crate::directories::Directories;
use crate::ids::Privileges;
use crate::owner;

/// The age at which an entry counts as abandoned, although its process still runs. Younger entries are being deleted.
const ABANDONED: Duration = Duration::from_secs(60);

/// Directories that are about to be deleted, on the file system of the data directory. Each is named after the process
/// that deletes it.
#[derive(Clone, Debug)]
pub(crate) struct Trash {
    pub(crate) dir: PathBuf,
    privileges: Privileges,
}

impl Trash {
    pub(crate) fn new(directories: &Directories, privileges: &Privileges) -> Self {
        Self { dir: directories.trash(), privileges: privileges.clone() }
    }

    /// Moves a directory to the trash, so that no process finds it half deleted, and deletes it. A missing directory is no
    /// error.
    pub(crate) fn discard(&self, path: &Path) -> io::Result<()> {
        self.take(path)?.map_or(Ok(()), |name| self.delete(&[name]))
    }

    /// Moves a directory to the trash; [`delete`](Self::delete) or a later process deletes it.
    pub(crate) fn take(&self, path: &Path) -> io::Result<Option<OsString>> {
        let name = format!("{}.{}", owner::this_process(), random_hex::<16>());
        match std::fs::rename(path, self.dir.join(&name)) {
            Ok(()) => Ok(Some(name.into())),
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(err) => Err(err),
        }
    }

    /// Deletes directories in the trash. Another process may do so concurrently.
    pub(crate) fn delete(&self, names: &[OsString]) -> io::Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let dir = DirHandle::from(File::open(&self.dir)?);
        self.privileges.run_as_owner(|| {
            // A directory that cannot be deleted does not stop the others.
            let ends: Vec<_> = names.iter().map(|it| delete_one(&dir, it)).collect();
            ends.into_iter().collect()
        })
    }

    /// Deletes directories whose process died before it had deleted them. Returns their number.
    pub(crate) fn empty(&self) -> io::Result<u64> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let entry = entry?;
            let name = entry.file_name();
            names.extend((owner_has_died(&name) || is_old(&entry)).then_some(name));
        }
        self.delete(&names)?;
        Ok(names.len() as u64)
    }
}

fn owner_has_died(name: &OsStr) -> bool {
    name.to_str().and_then(|it| owner::has_died(it.split_once('.')?.0)).unwrap_or(false)
}

fn is_old(entry: &std::fs::DirEntry) -> bool {
    // The rename into the trash is the last change of the entry itself; deletion changes its times again.
    let changed = entry.metadata().map(|it| UNIX_EPOCH + Duration::from_secs(it.ctime().unsigned_abs()));
    changed.is_ok_and(|it| it.elapsed().is_ok_and(|it| it >= ABANDONED))
}

fn delete_one(dir: &DirHandle, name: &OsStr) -> io::Result<()> {
    let removed = match dir.entry_kind(name)? {
        Some(Node::Dir) => dir.remove_all(name),
        Some(_) => dir.remove(name),
        None => Ok(()),
    };
    removed.or_else(|err| if err.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(err) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_dead_process_left_is_deleted_at_once_and_what_a_living_one_deletes_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories::open(dir.path()).unwrap();
        let trash = Trash::new(&directories, &Privileges::detect());
        let one = dir.path().join("one");
        std::fs::create_dir(&one).unwrap();
        let taken = trash.take(&one).unwrap().unwrap();
        for left in ["1-0-another.x", "of-no-process"] {
            std::fs::create_dir_all(trash.dir.join(left).join("below")).unwrap();
        }
        assert_eq!(trash.empty().unwrap(), 1);
        assert!(trash.dir.join(&taken).exists() && trash.dir.join("of-no-process").exists());
        // A name that cannot be deleted does not stop the others.
        assert!(trash.delete(&["n".repeat(300).into(), taken]).is_err());
        assert_eq!(std::fs::read_dir(&trash.dir).unwrap().count(), 1);
    }
}
