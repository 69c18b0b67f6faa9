//! Records which images and layers running processes use, for garbage collection and removal.
//!
//! A hold is a locked file with one id per line. Its lock ends with its process, so a file that can be locked belongs to a
//! dead process. Files are created, extended and read under the store's lock.

use std::collections::BTreeSet;
use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use coracle_types::random_hex;

/// A hold of this process, until it is dropped.
#[derive(Debug)]
pub(super) struct Hold {
    pub(super) id: String,
    path: PathBuf,
    file: File,
    is_abandoned: bool,
}

impl Hold {
    pub(super) fn new(dir: &Path) -> io::Result<Self> {
        let id = random_hex::<16>();
        let path = dir.join(&id);
        let file = File::options().append(true).read(true).create_new(true).mode(0o600).open(&path)?;
        file.lock()?;
        Ok(Self { id, path, file, is_abandoned: false })
    }

    /// Releases the hold but leaves its file, as a dead process would, which shows that a collection is due.
    pub(super) fn abandon(mut self) {
        self.is_abandoned = true;
    }

    /// Adds an image or a layer to the hold.
    pub(super) fn add(&mut self, id: &str) -> io::Result<()> {
        self.file.write_all(format!("{id}\n").as_bytes())
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if !self.is_abandoned {
            // Errors are ignored: a file that stays counts as that of a dead process.
            let _ = std::fs::remove_file(&self.path);
        }
        // Unlocked explicitly, since a child that was forked meanwhile has a duplicate of the file.
        let _ = self.file.unlock();
    }
}

/// The holds of all processes.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Images and layers.
    pub(super) ids: BTreeSet<String>,
    /// The names of holds of running processes, which are also those of their temporary directories.
    pub(super) live: BTreeSet<String>,
    /// Files of processes that died: the only sign that a collection is due. A complete collection removes them.
    pub(super) dead: Vec<PathBuf>,
}

impl Holds {
    /// Reads the holds.
    pub(super) fn read(dir: &Path) -> io::Result<Self> {
        let mut it = Self::default();
        for entry in std::fs::read_dir(dir)? {
            let entry = entry?;
            it.read_one(&entry.path()).or_else(|err| match err.kind() {
                // Its process ended meanwhile.
                io::ErrorKind::NotFound => Ok(()),
                _ => Err(err),
            })?;
        }
        Ok(it)
    }

    /// Removes the holds of dead processes. Another process may do so concurrently.
    pub(super) fn remove_dead(&self) -> io::Result<()> {
        self.dead.iter().try_for_each(|it| match std::fs::remove_file(it) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(err),
            _ => Ok(()),
        })
    }

    fn read_one(&mut self, path: &Path) -> io::Result<()> {
        let mut file = File::open(path)?;
        match file.try_lock_shared() {
            Ok(()) => {
                self.dead.push(path.to_owned());
                return Ok(());
            }
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(err)) => return Err(err),
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        self.ids.extend(text.lines().map(str::to_owned));
        self.live.extend(path.file_name().map(|it| it.to_string_lossy().into_owned()));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::{Hold, Holds};

    #[test]
    fn a_hold_counts_until_it_is_dropped_or_its_process_ends() {
        let dir = tempfile::tempdir().unwrap();
        let mut hold = Hold::new(dir.path()).unwrap();
        hold.add("sha256:a").unwrap();
        hold.add("sha256:b").unwrap();
        std::fs::write(dir.path().join("dead"), "sha256:c\n").unwrap();
        let holds = Holds::read(dir.path()).unwrap();
        assert_eq!(holds.ids.iter().collect::<Vec<_>>(), ["sha256:a", "sha256:b"]);
        assert_eq!(holds.live.iter().collect::<Vec<_>>(), [&hold.id]);
        // Reading does not remove it: it is the sign that a collection is due.
        assert_eq!(
            (&holds.dead, &Holds::read(dir.path()).unwrap().dead),
            (&vec![dir.path().join("dead")], &holds.dead)
        );
        holds.remove_dead().unwrap();
        holds.remove_dead().unwrap();
        drop(hold);
        let holds = Holds::read(dir.path()).unwrap();
        assert!(holds.live.is_empty() && holds.dead.is_empty());
        Hold::new(dir.path()).unwrap().abandon();
        assert_eq!(Holds::read(dir.path()).unwrap().dead.len(), 1);
    }
}
