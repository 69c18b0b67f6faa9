//! The layout of the data directory.

use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use coracle_host::temporary::is_own_name;

/// The data directory of one engine. Its parts lie on one file system, so that a rename moves things between them.
#[derive(Clone, Debug)]
pub(crate) struct Directories {
    root: PathBuf,
}

impl Directories {
    /// Creates what is missing, for this user alone.
    ///
    /// # Errors
    /// When another user may write to the directory: what a container consists of is read from it.
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

    /// One directory for each container, named by its id; `names` beside them leads from names to ids.
    pub(crate) fn containers(&self) -> PathBuf {
        self.root.join("containers")
    }

    /// Images and layers.
    pub(crate) fn store(&self) -> PathBuf {
        self.root.join("store")
    }

    /// Who the owners of its files are.
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

    /// What is about to be deleted.
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

/// Removes files that a dead process did not rename to their names. The caller knows that no living one writes there.
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
