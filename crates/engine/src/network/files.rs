//! The files of a container that tell it names: `hosts`, `resolv.conf` and `hostname`.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use super::hosts::{HostsText, write_in_place};
use super::resolver;
use crate::config::{HostLine, NetworkConfig, NetworkMode};

/// What the files are made of.
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

/// The files before the container has an address; `attach` completes `hosts`, and `resolv.conf` where a user-mode stack
/// answers for name servers, in place.
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

/// A file that is bound into a container. It stays open from its creation on: afterwards it may belong to the container's
/// root, for whom another user of the host cannot open it.
#[derive(Clone, Debug)]
pub(crate) struct BoundFile {
    pub(super) path: PathBuf,
    file: Arc<File>,
}

impl BoundFile {
    /// Every user of the container reads it.
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

    /// The file itself, of any owner.
    pub(crate) fn descriptor(&self) -> io::Result<OwnedFd> {
        self.file.try_clone().map(Into::into)
    }

    pub(super) fn replace(&self, text: &str) -> io::Result<()> {
        write_in_place(&self.file, text)
    }
}
