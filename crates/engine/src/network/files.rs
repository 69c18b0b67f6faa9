//! A container's files for name resolution: `hosts`, `resolv.conf` and `hostname`.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::hosts::{HostsText, write_in_place};
use super::resolver;
use crate::config::{HostLine, NetworkConfig, NetworkMode};

/// The data for these files.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NetworkFilesRequest<'a> {
    pub(crate) config: &'a NetworkConfig,
    pub(crate) hostname: &'a str,
    pub(crate) hosts: &'a [HostLine],
}

/// The contents of these files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NetworkFiles {
    pub(crate) hosts: String,
    pub(crate) resolv_conf: String,
    pub(crate) hostname: String,
}

/// Renders the files of a container that has no address yet. `attach` later completes `hosts` in place, and `resolv.conf` if
/// a user-mode stack acts as the name server.
pub(crate) fn network_files(request: &NetworkFilesRequest<'_>) -> NetworkFiles {
    let shares_host = request.config.mode == NetworkMode::Host;
    let host = shares_host.then_some([127, 0, 0, 1].into());
    let hosts = HostsText { hostname: request.hostname, address: None, host, lines: request.hosts };
    NetworkFiles {
        hosts: hosts.render(),
        resolv_conf: if shares_host { resolver::of_host() } else { resolver::for_container() },
        hostname: format!("{}\n", request.hostname),
    }
}

/// A file that is bound into a container. It stays open after its creation, since it may then be given to the container's
/// root, and this user could not open it any more.
#[derive(Clone, Debug)]
pub(crate) struct BoundFile {
    pub(super) path: PathBuf,
    file: Arc<File>,
}

impl BoundFile {
    /// Creates the file, readable for every user of the container.
    pub(crate) fn create(path: PathBuf, text: &str) -> io::Result<Self> {
        match std::fs::remove_file(&path) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => return Err(err),
            _ => {}
        }
        let mut file = File::create_new(&path)?;
        file.write_all(text.as_bytes())?;
        file.set_permissions(Permissions::from_mode(0o644))?;
        Ok(Self { path, file: Arc::new(file) })
    }

    /// Returns a descriptor of the file, regardless of its owner.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(Into::into)
    }

    pub(super) fn replace(&self, text: &str) -> io::Result<()> {
        write_in_place(&self.file, text)
    }
}
