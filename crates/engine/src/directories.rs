//! The layout of the data directory.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use coracle_host::temporary::is_own_name;

/// The data directory of one engine. All of it is on one file system, so that a rename can move files within it.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    root: PathBuf,
}

impl Directories {
    /// Opens the directory, and creates missing parts, accessible to this user only.
    ///
    /// # Errors
    /// If another user may write to the directory, and so could change containers.
    pub(crate) fn open(root: &Path) -> io::Result<Self> {
        let it = Self { root: root.to_owned() };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(root)?;
        let meta = std::fs::metadata(root)?;
        if meta.uid() != rustix::process::geteuid().as_raw() || meta.mode() & 0o022 != 0 {
            let why = format!(
                "another user may write to `{}`: give it to this user, close it with `chmod go-w`, or name another directory \
                 with `engine_data`",
                root.display()
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        for dir in [it.containers().join("names"), it.store(), it.networks(), it.volumes(), it.trash(), it.pending()] {
            std::fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
        }
        Ok(it)
    }

    /// One directory for each container, named by its id. `names`, next to them, has links from names to ids.
    pub(crate) fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    /// Images and layers.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// The record of the ids that own its files.
    pub(crate) fn ids_file(&self) -> PathBuf {
        self.root.join("ids.json")
    }

    /// Records of networks.
    pub(crate) fn networks(&self) -> PathBuf {
        self.root.join("networks")
    }

    /// Volumes.
    pub(crate) fn volumes(&self) -> PathBuf {
        self.root.join("volumes")
    }

    /// Directories that are about to be deleted.
    pub(crate) fn trash(&self) -> PathBuf {
        self.root.join("trash")
    }

    /// Operations in progress.
    pub(crate) fn pending(&self) -> PathBuf {
        self.root.join("pending")
    }

    /// Held while one process repairs what others left.
    pub(crate) fn repair_lock(&self) -> PathBuf {
        self.root.join("repair.lock")
    }
}

/// Removes temporary files that a dead process did not rename. The caller must ensure that no living process writes there.
pub(crate) fn remove_unfinished_files(dir: &Path) -> io::Result<()> {
    for entry in std::fs::read_dir(dir)? {
        let entry = entry?;
        if is_own_name(&entry.file_name()) && entry.file_type()?.is_file() {
            std::fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_directory_that_others_may_write_to_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        for (mode, is_opened) in [(0o700, true), (0o755, true), (0o770, false), (0o707, false)] {
            std::fs::set_permissions(dir.path(), Permissions::from_mode(mode)).unwrap();
            assert_eq!(Directories::open(dir.path()).is_ok(), is_opened, "{mode:o}");
        }
    }
}
