//! Files of a stack while it exists: names of those that its services bind, and its secrets, which are in memory of this
//! host and never on a disk.

use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use coracle_types::ProjectName;

use crate::store::own_directory;
use crate::{Record, Store, StoreError};

/// A file system in memory that every Linux has.
const MEMORY: &str = "/dev/shm";

impl Store {
    /// Creates an empty directory for names of files that services of a container's stack bind. It is removed with the
    /// stack.
    ///
    /// # Errors
    /// If it cannot be created.
    pub fn create_bound_files(&self, record: &Record) -> Result<PathBuf, StoreError> {
        let dir = self.root().join("stack").join(record.record_id.as_str());
        std::fs::create_dir(&dir).map_err(StoreError::io(&dir))?;
        Ok(dir)
    }

    /// Creates an empty directory in memory for the secrets of a stack, closed to other users. Removes that of an
    /// earlier stack with the same name.
    ///
    /// # Errors
    /// [`StoreError::Io`] on a machine without such a file system.
    pub fn create_secret_files(&self, project: &ProjectName) -> Result<PathBuf, StoreError> {
        let above = self.secret_files();
        let failed = StoreError::io(&above);
        if !is_in_memory(Path::new(MEMORY)) {
            return Err(failed(io::Error::other("it is no file system in memory")));
        }
        own_directory(&above)?;
        std::fs::set_permissions(&above, PermissionsExt::from_mode(0o700)).map_err(&failed)?;
        self.remove_secret_files(project);
        let dir = above.join(project.as_str());
        std::fs::create_dir(&dir).map_err(&failed)?;
        Ok(dir)
    }

    /// Removes them. The stack is gone.
    pub(crate) fn remove_secret_files(&self, project: &ProjectName) {
        let dir = self.secret_files().join(project.as_str());
        match std::fs::remove_dir_all(&dir) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => {
                tracing::warn!(dir = %dir.display(), %err, "the secrets of a stack stay in memory");
            }
            _ => {}
        }
    }

    /// Only a holder of this state directory's key knows the name, so no other process can take it.
    fn secret_files(&self) -> PathBuf {
        let digest = self.signer().digest(b"files of secrets");
        Path::new(MEMORY).join(format!("coracle-{}", digest.get(..32).unwrap_or(&digest)))
    }
}

#[cfg(target_os = "linux")]
fn is_in_memory(dir: &Path) -> bool {
    /// The kernel's number of tmpfs.
    const TMPFS: u64 = 0x0102_1994;
    rustix::fs::statfs(dir).is_ok_and(|stat| u64::try_from(stat.f_type).is_ok_and(|kind| kind == TMPFS))
}

#[cfg(not(target_os = "linux"))]
fn is_in_memory(_: &Path) -> bool {
    false
}
