//! Backs up files of a directory that are about to change, to restore all of them if one cannot be written.

use std::ffi::{OsStr, OsString};
use std::fs::{DirBuilder, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

use coracle_types::Ids;

use super::tree::{DirHandle, FileIdentity, Node};

/// The state of some files before a change.
#[derive(Debug)]
pub struct TreeBackup {
    tree: DirHandle,
    /// The directory of the copies, which have the names of the files.
    copies: PathBuf,
    entries: Vec<BackupEntry>,
}

/// A file that cannot be copied or restored.
#[derive(Debug)]
pub struct BackupError {
    /// Its path in the tree.
    pub path: PathBuf,
    /// The reason.
    pub source: io::Error,
}

/// A name before a change.
#[derive(Debug)]
struct BackupEntry {
    path: PathBuf,
    /// Number of its parent directories that existed.
    dirs: usize,
    was: PriorState,
}

/// What existed under a name.
#[derive(Debug)]
enum PriorState {
    Absent,
    Dir,
    Link(OsString),
    File { stamp: FileIdentity, mode: u32, owner: Ids },
}

impl TreeBackup {
    /// Copies the existing files into a new directory that only this user can read.
    ///
    /// # Errors
    /// For a file that cannot be copied; then there are no copies.
    pub fn create(tree: DirHandle, mut paths: Vec<PathBuf>, copies: PathBuf) -> Result<Self, BackupError> {
        let made = DirBuilder::new().recursive(true).mode(0o700).create(&copies);
        made.map_err(|source| BackupError { path: copies.clone(), source })?;
        // Directories precede their files. A file that becomes a link is listed twice.
        paths.sort();
        paths.dedup();
        let mut backup = Self { tree, copies, entries: Vec::new() };
        for path in paths {
            match backup.read(&path) {
                Ok(entry) => backup.entries.push(entry),
                Err(source) => {
                    backup.discard();
                    return Err(BackupError { path, source });
                }
            }
        }
        Ok(backup)
    }

    /// The directory of the copies.
    #[must_use]
    pub fn copies(&self) -> &Path {
        &self.copies
    }

    /// Removes the copies.
    pub fn discard(&self) {
        if let Err(err) = std::fs::remove_dir_all(&self.copies) {
            tracing::warn!(%err, copies = %self.copies.display(), "cannot remove copies of files");
        }
    }

    /// Restores all files that `may_differ`, and removes the copies. Returns those that cannot be restored; then the
    /// copies stay.
    #[must_use]
    pub fn restore(&self, may_differ: impl Fn(&Path) -> bool) -> Vec<BackupError> {
        let is_new = |entry: &&BackupEntry| matches!(entry.was, PriorState::Absent);
        let (new, old): (Vec<_>, Vec<_>) = self.entries.iter().partition(is_new);
        // New files first: one may have the name of a directory that existed.
        let order = new.into_iter().rev().chain(old).filter(|entry| may_differ(&entry.path));
        let put_back = |entry: &BackupEntry| {
            self.put_back(entry).err().map(|source| BackupError { path: entry.path.clone(), source })
        };
        let failed: Vec<_> = order.filter_map(put_back).collect();
        if failed.is_empty() {
            self.discard();
        }
        failed
    }

    fn read(&self, path: &Path) -> io::Result<BackupEntry> {
        let (above, name) = split(path)?;
        let (mut dir, mut dirs) = (self.tree.clone(), 0);
        for part in &above {
            if dir.entry_kind(part)? != Some(Node::Dir) {
                return Ok(BackupEntry { path: path.to_owned(), dirs, was: PriorState::Absent });
            }
            dir = dir.enter(part)?;
            dirs += 1;
        }
        let was = match dir.entry_kind(name)? {
            None => PriorState::Absent,
            Some(Node::Dir) => PriorState::Dir,
            Some(Node::Link) => PriorState::Link(dir.link(name)?),
            Some(Node::File) => self.copy(&dir, name, path)?,
            Some(Node::Other) => return Err(io::Error::other("it is no regular file")),
        };
        Ok(BackupEntry { path: path.to_owned(), dirs, was })
    }

    fn copy(&self, dir: &DirHandle, name: &OsStr, path: &Path) -> io::Result<PriorState> {
        let mut from = dir.open(name)?;
        let meta = from.file.metadata()?;
        let to = self.copies.join(path);
        if let Some(above) = to.parent() {
            std::fs::create_dir_all(above)?;
        }
        let mode = (from.mode & 0o777) | 0o600;
        let mut copy = OpenOptions::new().write(true).create_new(true).mode(mode).open(to)?;
        io::copy(&mut from.file, &mut copy)?;
        let owner = Ids { uid: meta.uid(), gid: meta.gid() };
        Ok(PriorState::File { stamp: from.stamp, mode: from.mode, owner })
    }

    fn put_back(&self, entry: &BackupEntry) -> io::Result<()> {
        let (above, name) = split(&entry.path)?;
        if matches!(entry.was, PriorState::Absent) {
            return self.remove_new(&above, name, entry.dirs);
        }
        let dir = above.iter().try_fold(self.tree.clone(), |dir, part| dir.enter_or_make(part))?;
        match &entry.was {
            PriorState::Absent => Ok(()),
            PriorState::Dir if dir.entry_kind(name)? == Some(Node::Dir) => Ok(()),
            PriorState::Dir => {
                clear(&dir, name)?;
                dir.enter_or_make(name).map(drop)
            }
            PriorState::Link(target) => {
                if dir.entry_kind(name)? == Some(Node::Link) && dir.link(name)? == *target {
                    return Ok(());
                }
                clear(&dir, name)?;
                dir.create_link(name, target)
            }
            // It was not reached, or its directory cannot be written to.
            PriorState::File { stamp, .. } if dir.stamp(name)?.as_ref() == Some(stamp) => Ok(()),
            PriorState::File { mode, owner, .. } => {
                clear(&dir, name)?;
                let copy = || File::open(self.copies.join(&entry.path));
                let as_owned = dir.replace_as(name, (*mode, Some(*owner)), &mut copy()?);
                // Only root can change the owner of a file.
                as_owned.or_else(|_| dir.replace(name, *mode, &mut copy()?))
            }
        }
    }

    /// Removes a file that did not exist, and the directories that were created for it.
    fn remove_new(&self, above: &[&OsStr], name: &OsStr, dirs: usize) -> io::Result<()> {
        let mut open = vec![self.tree.clone()];
        for (here, part) in above.iter().enumerate() {
            if open[here].entry_kind(part)? != Some(Node::Dir) {
                break;
            }
            open.push(open[here].enter(part)?);
        }
        if let Some(dir) = open.get(above.len()) {
            clear(dir, name)?;
        }
        for depth in (dirs..open.len() - 1).rev() {
            // Other new files may still be in it: the last one removes it.
            if open[depth].remove_dir(above[depth]).is_err() {
                break;
            }
        }
        Ok(())
    }
}

/// Splits a path into its directories and its last part.
fn split(path: &Path) -> io::Result<(Vec<&OsStr>, &OsStr)> {
    let parts = path.components().map(|it| match it {
        Component::Normal(part) => Some(part),
        _ => None,
    });
    let mut above = parts.collect::<Option<Vec<_>>>().unwrap_or_default();
    let name = above.pop().ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "it is no path of a file"))?;
    Ok((above, name))
}

/// Removes what has the name.
fn clear(dir: &DirHandle, name: &OsStr) -> io::Result<()> {
    match dir.entry_kind(name)? {
        None => Ok(()),
        Some(Node::Dir) => dir.remove_dir(name),
        Some(_) => dir.remove(name),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use crate::fs::HostPath;

    use super::*;

    fn backup(tree: &Path, state: &Path, paths: &[&str]) -> Result<TreeBackup, BackupError> {
        let dir = DirHandle::from_path(&HostPath::open(tree).unwrap()).unwrap();
        TreeBackup::create(dir, paths.iter().map(PathBuf::from).collect(), state.join("apply/1"))
    }

    #[test]
    fn all_changed_files_are_restored() {
        let (checkout, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let at = |name: &str| checkout.path().join(name);
        std::fs::create_dir_all(at("d/e")).unwrap();
        for name in ["a", "d/e/x", "run", "same"] {
            std::fs::write(at(name), name).unwrap();
        }
        std::fs::set_permissions(at("run"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("nowhere", at("link")).unwrap();
        let paths = ["a", "d", "d/e/x", "link", "new/deep/file", "run", "same", "a", "a/b"];
        let backup = backup(checkout.path(), state.path(), &paths).unwrap();
        assert_eq!(state.path().join("apply/1").metadata().unwrap().permissions().mode() & 0o777, 0o700);
        // As git leaves it: some are gone, some new, and a directory became a file.
        for name in ["a", "link", "run"] {
            std::fs::remove_file(at(name)).unwrap();
        }
        std::fs::remove_dir_all(at("d")).unwrap();
        std::fs::write(at("d"), "file").unwrap();
        std::fs::write(at("link"), "file").unwrap();
        for dir in ["a", "new/deep"] {
            std::fs::create_dir_all(at(dir)).unwrap();
        }
        std::fs::write(at("a/b"), "").unwrap();
        std::fs::write(at("new/deep/file"), "").unwrap();
        assert!(backup.restore(|_| true).is_empty());
        for name in ["a", "d/e/x", "run", "same"] {
            assert_eq!(std::fs::read_to_string(at(name)).unwrap(), name);
        }
        assert_eq!(at("run").metadata().unwrap().permissions().mode() & 0o777, 0o755);
        assert_eq!(std::fs::read_link(at("link")).unwrap(), Path::new("nowhere"));
        assert!(!at("new").exists() && !state.path().join("apply/1").exists());
    }

    #[test]
    fn copies_stay_if_a_file_cannot_be_restored() {
        let (checkout, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = checkout.path().join("d/a");
        std::fs::create_dir(checkout.path().join("d")).unwrap();
        std::fs::write(&file, "mine").unwrap();
        let backup = backup(checkout.path(), state.path(), &["d/a"]).unwrap();
        // A file replaced its directory.
        std::fs::remove_dir_all(checkout.path().join("d")).unwrap();
        std::fs::write(checkout.path().join("d"), "").unwrap();
        let failed = backup.restore(|_| true);
        assert_eq!(failed.iter().map(|it| it.path.as_path()).collect::<Vec<_>>(), [Path::new("d/a")]);
        assert_eq!(std::fs::read_to_string(backup.copies().join("d/a")).unwrap(), "mine");
    }

    #[test]
    fn a_file_that_cannot_be_copied_is_reported_before_anything_changes() {
        let (checkout, state) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for path in ["../a", "/a", ""] {
            assert!(backup(checkout.path(), state.path(), &[path]).is_err(), "{path}");
            assert!(!state.path().join("apply/1").exists());
        }
    }
}
