//! Mounts that show files of the host in a container.

use std::ffi::CString;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use coracle_protocol::paths;
use coracle_types::{Error, Result};
use rustix::io::Errno;
use rustix::mount::MountAttrFlags;

use super::super::directory::ContainerDir;
use super::harmless;
use crate::config::{ContainerConfig, Init, MountConfig};
use crate::sys::{BindSource, Step, TreeOptions, clone_tree};

/// A path of the host that cannot be mounted.
#[derive(Debug, thiserror::Error)]
pub(crate) enum TreeError {
    /// The file system of the path cannot map ids.
    #[error("`{}` lies on a file system that cannot map ids", .0.display())]
    Unmappable(PathBuf),
    #[error(transparent)]
    Failed(#[from] Error),
}

impl TreeError {
    pub(crate) fn failed(path: &Path, errno: Errno) -> Self {
        let what = format!("cannot mount `{}`", path.display());
        Self::Failed(Error::Host { what, source: errno.into() })
    }
}

/// The mounts of a container, from its configuration and the engine's own files.
#[derive(Debug)]
pub(crate) struct HostMounts<'a> {
    pub(crate) config: &'a ContainerConfig,
    pub(crate) dir: &'a ContainerDir,
    /// The guest's program, as the init of a command.
    pub(crate) init: Option<&'a Path>,
    /// Directories of its volumes, in the order of its mounts.
    pub(crate) volumes: Vec<PathBuf>,
    pub(crate) ids: Option<BorrowedFd<'a>>,
    pub(crate) is_root: bool,
}

impl HostMounts<'_> {
    pub(crate) fn steps(&self) -> std::result::Result<Vec<Step>, TreeError> {
        let mut steps = Vec::new();
        // tmpfs mounts come first: one of them may be the guest's directory, which gets files below.
        for mount in &self.config.mounts {
            steps.extend(tmpfs(mount)?);
        }
        self.engine_files(&mut steps)?;
        steps.extend(self.bind_steps(|_| true)?);
        Ok(steps)
    }

    /// Mounts of a stopped container: its volumes, and binds whose source still exists.
    pub(crate) fn at_rest(&self) -> std::result::Result<Vec<Step>, TreeError> {
        // Code inside can replace a directory with a link if it can write to the parent. A link is never followed.
        self.bind_steps(|source| source.canonicalize().is_ok_and(|real| real == source))
    }

    fn bind_steps(&self, is_bound: impl Fn(&Path) -> bool) -> std::result::Result<Vec<Step>, TreeError> {
        let mut steps = Vec::new();
        let mut volumes = self.volumes.iter();
        for mount in &self.config.mounts {
            match mount {
                MountConfig::Bind { source, .. } if !is_bound(source) => {}
                MountConfig::Bind { source, target, writable } => steps.push(self.bind(source, target, *writable)?),
                MountConfig::Volume { target, writable, .. } => {
                    let Some(dir) = volumes.next() else { continue };
                    steps.push(self.bind(dir, target, *writable)?);
                }
                MountConfig::Tmpfs { .. } => {}
            }
        }
        Ok(steps)
    }

    fn engine_files(&self, steps: &mut Vec<Step>) -> std::result::Result<(), TreeError> {
        for name in ["hosts", "resolv.conf", "hostname"] {
            steps.push(self.bind(&self.dir.files().join(name), &format!("/etc/{name}"), true)?);
        }
        let programs = match &self.config.init {
            Init::Guest { program, worker, link, .. } => vec![
                (program.as_deref(), paths::PROGRAM, false),
                (link.as_deref(), paths::LINK, true),
                (worker.as_deref(), paths::WORKER, false),
            ],
            Init::Command(_) => vec![(self.init, paths::INIT, false)],
        };
        for (source, target, writable) in programs {
            if let Some(source) = source {
                steps.push(self.bind(source, target, writable)?);
            }
        }
        Ok(())
    }

    fn bind(&self, source: &Path, target: &str, writable: bool) -> std::result::Result<Step, TreeError> {
        let failed =
            |source_err| Error::Host { what: format!("cannot mount `{}`", source.display()), source: source_err };
        let directory = std::fs::symlink_metadata(source).map_err(failed)?.is_dir();
        let attributes = if writable { harmless() } else { harmless() | MountAttrFlags::MOUNT_ATTR_RDONLY };
        let from = if self.is_root {
            BindSource::Prepared(map_tree(source, attributes, self.ids)?)
        } else {
            BindSource::Path { path: c_path(source)?, recursive: true }
        };
        Ok(Step::Bind { source: from, attributes, target: c_text(target)?, directory })
    }
}

fn tmpfs(mount: &MountConfig) -> Result<Option<Step>> {
    let MountConfig::Tmpfs { target, bytes, mode, owner, exec } = mount else { return Ok(None) };
    let options = [
        (c"size", bytes.to_string()),
        (c"mode", format!("{mode:o}")),
        (c"uid", owner.uid.to_string()),
        (c"gid", owner.gid.to_string()),
    ];
    let options = options.into_iter().map(|(key, value)| Ok((key.to_owned(), c_text(&value)?)));
    let attributes = if *exec { harmless() } else { harmless() | MountAttrFlags::MOUNT_ATTR_NOEXEC };
    Ok(Some(Step::FileSystem {
        kind: c"tmpfs".to_owned(),
        options: options.collect::<Result<_>>()?,
        attributes,
        target: c_text(target)?,
        optional: false,
    }))
}

/// Copies the mount at a path of the host. Maps its ids if `ids` is given.
pub(super) fn map_tree(
    path: &Path,
    attributes: MountAttrFlags,
    ids: Option<BorrowedFd<'_>>,
) -> std::result::Result<OwnedFd, TreeError> {
    let options = TreeOptions { attributes, ids, recursive: true };
    match clone_tree(&c_path(path)?, options) {
        Ok(tree) => Ok(tree),
        Err(Errno::INVAL | Errno::PERM | Errno::OPNOTSUPP) if ids.is_some() => {
            // If the same works without the mapping, the file system cannot map ids.
            let plain = TreeOptions { ids: None, ..options };
            clone_tree(&c_path(path)?, plain).map_err(|errno| TreeError::failed(path, errno))?.as_fd();
            Err(TreeError::Unmappable(path.to_owned()))
        }
        Err(errno) => Err(TreeError::failed(path, errno)),
    }
}

pub(crate) fn c_path(path: &Path) -> Result<CString> {
    c_bytes(path.as_os_str().as_bytes())
}

pub(crate) fn c_text(text: &str) -> Result<CString> {
    c_bytes(text.as_bytes())
}

fn c_bytes(bytes: &[u8]) -> Result<CString> {
    CString::new(bytes).map_err(|err| Error::Host {
        what: format!("`{}` holds a zero byte", String::from_utf8_lossy(bytes).escape_debug()),
        source: std::io::Error::other(err),
    })
}
