//! The directory of one container.

use std::fs::Permissions;
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use coracle_protocol::paths;
use coracle_types::parse_stored;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::config::ContainerConfig;
use crate::tree_history::CheckpointDir;

/// Directories of the kernel and the guest in every container, which are not its own files.
pub(crate) const KERNEL: [&str; 4] = [paths::DIR, "/proc", "/sys", "/dev"];

/// What a container consists of on the disk.
#[derive(Clone, Debug)]
pub(crate) struct ContainerDir(PathBuf);

impl ContainerDir {
    pub(crate) fn at(path: PathBuf) -> Self {
        Self(path)
    }

    /// Creates an empty directory, which gets its final name only once it is complete.
    pub(crate) fn create(path: PathBuf) -> io::Result<Self> {
        let it = Self(path);
        // An overlay's root directory has the permissions of the upper directory.
        for (dir, mode) in [(it.path().to_owned(), 0o700), (it.upper(), 0o755), (it.work(), 0o700), (it.root(), 0o700)]
        {
            std::fs::DirBuilder::new().mode(mode).create(&dir)?;
            // The umask of the caller may have taken more.
            std::fs::set_permissions(dir, Permissions::from_mode(mode))?;
        }
        std::fs::DirBuilder::new().mode(0o700).create(it.files())?;
        Ok(it)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Held while the container is started, stopped or removed.
    pub(crate) fn lock(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Held while the container is frozen.
    pub(crate) fn freeze_lock(&self) -> PathBuf {
        self.0.join("freeze.lock")
    }

    fn config_file(&self) -> PathBuf {
        self.0.join("config.json")
    }

    /// The commands that run in it, where there is no control group.
    pub(crate) fn execs(&self) -> PathBuf {
        self.0.join("execs")
    }

    /// Changes to the image's files.
    pub(crate) fn upper(&self) -> PathBuf {
        self.0.join("upper")
    }

    /// The kernel's, beside `upper`.
    pub(crate) fn work(&self) -> PathBuf {
        self.0.join("work")
    }

    /// Saved states of `upper`.
    pub(crate) fn checkpoints(&self) -> CheckpointDir {
        CheckpointDir::at(self.0.join("checkpoints"))
    }

    /// An empty directory at which the child attaches the root file system, for itself alone.
    pub(crate) fn root(&self) -> PathBuf {
        self.0.join("root")
    }

    /// `hosts`, `resolv.conf` and `hostname`, which are bound into the container.
    pub(crate) fn files(&self) -> PathBuf {
        self.0.join("files")
    }

    /// The number of a user-mode stack.
    pub(crate) fn network_pid_file(&self) -> PathBuf {
        self.0.join("network.pid")
    }

    /// The last start: see [`RunRecord`](super::state::RunRecord).
    pub(crate) fn run_file(&self) -> PathBuf {
        self.0.join("run.json")
    }

    /// The line of `/proc/PID/stat` of PID 1, which it wrote itself.
    pub(crate) fn process_file(&self) -> PathBuf {
        self.0.join("process")
    }

    /// The exit code of PID 1, which it wrote itself.
    pub(crate) fn exit_file(&self) -> PathBuf {
        self.0.join("exit")
    }

    /// What its network consists of.
    pub(crate) fn network_file(&self) -> PathBuf {
        self.0.join("network.json")
    }

    /// Exists while an OCI runtime starts the container, whose network is recorded before its program starts.
    pub(crate) fn starting_file(&self) -> PathBuf {
        self.0.join("starting")
    }

    /// The output of PID 1, if that is a program of the image.
    pub(crate) fn log_file(&self) -> PathBuf {
        self.0.join("log")
    }

    /// The result of its health checks.
    pub(crate) fn health_file(&self) -> PathBuf {
        self.0.join("health.json")
    }

    /// Removes files that were not renamed to their names.
    pub(crate) fn remove_unfinished_files(&self) -> io::Result<()> {
        crate::directories::remove_unfinished_files(&self.0)
    }

    pub(crate) fn config(&self) -> io::Result<Option<ContainerConfig>> {
        read_json(&self.config_file())
    }

    pub(crate) fn write_config(&self, config: &ContainerConfig) -> io::Result<()> {
        write_json(&self.config_file(), config)
    }
}

/// `None` for a missing file. [`write_json`] leaves no file half written, so one that cannot be read was written by a newer
/// version, or the disk is damaged: what it describes is not missing.
///
/// # Errors
/// [`StoredFileError`](coracle_types::StoredFileError) for such a file.
pub(crate) fn read_json<T: DeserializeOwned>(path: &Path) -> io::Result<Option<T>> {
    match std::fs::read(path) {
        Ok(bytes) => Ok(Some(parse_stored(path, &bytes)?)),
        Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(None),
        Err(err) => Err(err),
    }
}

pub(crate) fn write_json(path: &Path, value: &impl Serialize) -> io::Result<()> {
    coracle_host::fs::replace(path, &serde_json::to_vec(value)?)
}
