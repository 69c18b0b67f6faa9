//! The directories of a container that a runtime runs: the bundle, and the mounts that the runtime uses.
//!
//! They are on a file system that a reboot empties, so that they go together with the mounts.

use std::fs::Permissions;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use coracle_types::{ContainerId, Result};
use serde_json::Value;

use super::super::host_error;
use crate::engine::Engine;
use crate::oci::RuntimePaths;
use crate::oci_runtime::OciRuntime;
use crate::sys::{attach_mount, detach_mounts};

/// The directories of one container.
#[derive(Clone, Debug)]
pub(super) struct RunDirectory {
    engine: PathBuf,
    dir: PathBuf,
}

impl RunDirectory {
    pub(super) fn new(engine: &Engine, id: &ContainerId) -> Self {
        let run = engine.run_dir();
        Self { dir: run.join(id.as_str()), engine: run }
    }

    pub(super) fn exists(&self) -> bool {
        self.dir.exists()
    }

    /// Its root file system.
    pub(super) fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// The directory of mounted host files, which are numbered.
    pub(super) fn sources(&self) -> PathBuf {
        self.dir.join("sources")
    }

    pub(super) fn bundle_file(&self) -> PathBuf {
        self.dir.join("config.json")
    }

    /// A file for one command.
    pub(super) fn command_file(&self, mark: &str, kind: &str) -> PathBuf {
        self.dir.join(format!("command-{mark}.{kind}"))
    }

    pub(super) fn for_runtime(&self, runtime: OciRuntime) -> RuntimePaths {
        RuntimePaths {
            state: self.engine.join(runtime.program()),
            bundle: self.dir.clone(),
            log: self.dir.join("runtime.log"),
        }
    }

    /// Creates the directories. Only root of the container may pass through them, by its group on the host.
    pub(super) fn create(&self, runtime: OciRuntime, root_group: Option<u32>) -> Result<()> {
        // Sets the modes again, since the umask may have reduced them.
        let directory = |path: &Path, mode| {
            std::fs::DirBuilder::new().recursive(true).mode(mode).create(path)?;
            std::fs::set_permissions(path, Permissions::from_mode(mode))
        };
        let made = directory(&self.engine, 0o711)
            .and_then(|()| directory(&self.engine.join(runtime.program()), 0o711))
            .and_then(|()| directory(&self.dir, if root_group.is_some() { 0o710 } else { 0o700 }))
            .and_then(|()| std::os::unix::fs::chown(&self.dir, None, root_group))
            .and_then(|()| directory(&self.root(), 0o711))
            .and_then(|()| directory(&self.sources(), 0o711));
        made.map_err(host_error(format!("cannot create `{}`", self.dir.display())))
    }

    /// Attaches the root file system and the other mounts.
    pub(super) fn attach(&self, root: &OwnedFd, trees: &[(OwnedFd, bool)]) -> Result<()> {
        let attached = attach_mount(root, &self.root()).and_then(|()| {
            trees.iter().enumerate().try_for_each(|(number, (tree, directory))| {
                let at = self.sources().join(number.to_string());
                if *directory {
                    std::fs::create_dir(&at)?;
                } else {
                    drop(std::fs::File::create_new(&at)?);
                }
                attach_mount(tree, &at)
            })
        });
        attached.map_err(host_error("cannot attach the mounts of the container"))
    }

    pub(super) fn write_bundle(&self, bundle: &Value) -> Result<()> {
        let written = serde_json::to_vec(bundle).map_err(io::Error::from);
        let written = written.and_then(|it| std::fs::write(self.bundle_file(), it));
        written.map_err(host_error("cannot write the bundle of the container"))
    }

    /// Detaches all mounts and removes the directories. Blocks.
    pub(super) fn remove(&self) -> Result<()> {
        // Mounts first: removing the directory would also remove the files of a remaining mount.
        let removed = detach_mounts(&self.dir).and_then(|()| match std::fs::remove_dir_all(&self.dir) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => Ok(()),
            removed => removed,
        });
        removed.map_err(host_error(format!("cannot remove `{}`", self.dir.display())))
    }
}
