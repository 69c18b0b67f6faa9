//! Files and directories that lie beside their target on the host until they are complete. Each has a note in the state
//! directory, which says whose it is: so what a killed process left is found and removed later.
//!
//! **Invariant:** nothing is removed that a note does not name, or whose directory is not the one that the note was made for.

use std::io;
use std::path::{Path, PathBuf};

use cap_fs_ext::DirExt as _;
use cap_std::ambient_authority;
use cap_std::fs::{Dir, MetadataExt as _};
use coracle_types::{ProcessId, random_hex};
use serde::{Deserialize, Serialize};

use super::request::cannot_spool;
use crate::{Result, Store};

/// A name on the host that is removed again, by this process or by a later one.
#[derive(Debug)]
pub(super) struct UnfinishedName {
    dir: Dir,
    name: String,
    note: PathBuf,
}

/// What a process left on the host when it was killed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AbandonedCopy {
    /// Its path.
    pub path: PathBuf,
    note: PathBuf,
}

#[derive(Debug, Deserialize, Serialize)]
struct Note {
    dir: PathBuf,
    name: String,
    owner: ProcessId,
    /// Device and inode of the directory: its path may lead elsewhere later.
    device: u64,
    inode: u64,
}

impl UnfinishedName {
    /// A fresh name in a directory, noted in `notes`. Nothing has it yet.
    pub(super) fn reserve(notes: &Path, dir: &Dir, path: &Path) -> Result<Self> {
        let unfinished = || -> io::Result<Self> {
            let id = random_hex::<8>();
            let name = format!(".coracle-{id}.tmp");
            let meta = dir.dir_metadata()?;
            let owner = ProcessId::current();
            let note = Note { dir: path.to_owned(), name: name.clone(), owner, device: meta.dev(), inode: meta.ino() };
            std::fs::create_dir_all(notes)?;
            let at = notes.join(id);
            coracle_host::fs::replace(&at, &serde_json::to_vec(&note)?)?;
            Ok(Self { dir: dir.try_clone()?, name, note: at })
        };
        unfinished().map_err(cannot_spool)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.name
    }

    /// Removes what has the name, if anything has.
    pub(super) fn clear(self) -> Result<()> {
        self.remove().map_err(cannot_spool)
    }

    fn remove(&self) -> io::Result<()> {
        remove(&self.dir, &self.name)?;
        std::fs::remove_file(&self.note).or_else(none_if_missing)
    }
}

impl Drop for UnfinishedName {
    fn drop(&mut self) {
        if let Err(err) = self.remove() {
            tracing::debug!(name = self.name, %err, "an unfinished copy stays for now");
        }
    }
}

impl Store {
    /// Where notes of unfinished copies are. No container has it mounted.
    #[must_use]
    pub fn unfinished_copies(&self) -> PathBuf {
        self.root().join("copies")
    }
}

/// What processes left that have ended.
#[must_use]
pub fn abandoned_copies(notes: &Path) -> Vec<AbandonedCopy> {
    let entries = std::fs::read_dir(notes).into_iter().flatten().filter_map(io::Result::ok);
    let abandoned = |entry: std::fs::DirEntry| {
        // A note that another version wrote is not understood, and stays.
        let note: Note = serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok()?;
        let is_plain = !note.name.contains('/') && note.name.starts_with(".coracle-");
        let copy = AbandonedCopy { path: note.dir.join(&note.name), note: entry.path() };
        (is_plain && !note.owner.alive()).then_some(copy)
    };
    entries.filter_map(abandoned).collect()
}

impl AbandonedCopy {
    /// Removes it and its note. Succeeds if it, or its directory, is already removed.
    ///
    /// # Errors
    /// If it cannot be removed.
    pub fn remove(&self) -> io::Result<()> {
        let note: Note = serde_json::from_slice(&std::fs::read(&self.note)?)?;
        match Dir::open_ambient_dir(&note.dir, ambient_authority()) {
            Ok(dir) => {
                let meta = dir.dir_metadata()?;
                if (meta.dev(), meta.ino()) == (note.device, note.inode) {
                    remove(&dir, &note.name)?;
                }
            }
            Err(err) => none_if_missing(err)?,
        }
        std::fs::remove_file(&self.note).or_else(none_if_missing)
    }
}

/// Removes what processes left that have ended, as far as that is possible.
pub(super) fn sweep(notes: &Path) {
    for copy in abandoned_copies(notes) {
        if let Err(err) = copy.remove() {
            tracing::warn!(path = %copy.path.display(), %err, "what a copy left cannot be removed");
        }
    }
}

fn remove(dir: &Dir, name: &str) -> io::Result<()> {
    match dir.symlink_metadata(name) {
        Ok(meta) if meta.is_dir() => dir.open_dir_nofollow(name)?.remove_open_dir_all(),
        Ok(_) => dir.remove_file(name),
        Err(err) => none_if_missing(err),
    }
}

fn none_if_missing(err: io::Error) -> io::Result<()> {
    if err.kind() == io::ErrorKind::NotFound { Ok(()) } else { Err(err) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reserved(notes: &Path, dir: &Path) -> UnfinishedName {
        let open = Dir::open_ambient_dir(dir, ambient_authority()).unwrap();
        UnfinishedName::reserve(notes, &open, dir).unwrap()
    }

    /// As a process leaves it that is killed.
    fn killed(notes: &Path, dir: &Path) -> PathBuf {
        let unfinished = reserved(notes, dir);
        let mut note: Note = serde_json::from_slice(&std::fs::read(&unfinished.note).unwrap()).unwrap();
        note.owner.start += 1;
        std::fs::write(&unfinished.note, serde_json::to_vec(&note).unwrap()).unwrap();
        let path = dir.join(unfinished.as_str());
        std::mem::forget(unfinished);
        path
    }

    fn count(dir: &Path) -> usize {
        dir.read_dir().unwrap().count()
    }

    #[test]
    fn what_a_killed_copy_left_is_removed_and_what_goes_on_stays() {
        let (notes, dir) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let file = killed(notes.path(), dir.path());
        std::fs::write(&file, "half").unwrap();
        let tree = killed(notes.path(), dir.path());
        std::fs::create_dir_all(tree.join("a/b")).unwrap();
        let never_made = killed(notes.path(), dir.path());
        let running = reserved(notes.path(), dir.path());
        std::fs::create_dir(dir.path().join(running.as_str())).unwrap();
        std::fs::write(notes.path().join("of-a-newer-version"), "{}").unwrap();
        let mut found: Vec<_> = abandoned_copies(notes.path()).into_iter().map(|copy| copy.path).collect();
        let mut expected = vec![file, tree, never_made];
        found.sort();
        expected.sort();
        assert_eq!(found, expected);
        sweep(notes.path());
        assert_eq!((count(dir.path()), count(notes.path())), (1, 2));
        running.clear().unwrap();
        assert_eq!((count(dir.path()), count(notes.path())), (0, 1));
    }

    #[test]
    fn a_directory_that_was_exchanged_is_left_alone() {
        let (notes, above) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (dir, other) = (above.path().join("dir"), above.path().join("other"));
        std::fs::create_dir(&dir).unwrap();
        std::fs::create_dir(&other).unwrap();
        let left = killed(notes.path(), &dir);
        std::fs::write(other.join(left.file_name().unwrap()), "of another user").unwrap();
        std::fs::remove_dir(&dir).unwrap();
        std::os::unix::fs::symlink(&other, &dir).unwrap();
        sweep(notes.path());
        assert_eq!((count(&other), count(notes.path())), (1, 0));
    }
}
