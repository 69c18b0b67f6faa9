//! The description of a requested container, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use coracle_host::fs::HostPath;
use coracle_types::{ByteSize, ContainerName, ContainerPath, Ids, ImageRef, NetworkName, VolumeName};
use serde::{Deserialize, Serialize};

use crate::Limits;

/// A requested container. [`admit`](crate::admit) decides whether it may be created.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Its name.
    pub name: ContainerName,
    /// The requested image.
    pub image: ImageRef,
    /// The user of its commands. PID 1 is root inside, but with [`Capabilities::None`] that user, too.
    pub exec_user: Ids,
    /// Binds, in the order they are mounted.
    pub mounts: Vec<Mount>,
    /// Volumes, which outlive it.
    pub volumes: Vec<VolumeMount>,
    /// Directories in memory.
    pub tmpfs: Vec<Tmpfs>,
    /// Nothing else of its files can be written.
    pub read_only: bool,
    /// Ports to publish.
    pub ports: Vec<Port>,
    /// The requested network.
    pub network: NetworkRequest,
    /// Ceilings of what it may use.
    pub limits: Limits,
    /// Ceilings of each of its processes.
    pub ulimits: Ulimits,
    /// The capabilities of root inside.
    pub capabilities: Capabilities,
    /// All GPUs of the host.
    pub gpu: bool,
    /// Lines of its hosts file.
    pub add_hosts: Vec<HostEntry>,
    /// Its guest exits after that time without a connection or a running command.
    pub lifeline: Option<Duration>,
    /// It lives until it is removed: an engine's own limit of lifetimes is not for it.
    pub persistent: bool,
    /// The health check of its image runs: by the engine, and as root.
    pub image_health: bool,
    /// Our labels and the caller's.
    pub labels: BTreeMap<String, String>,
}

impl CreateSpec {
    /// A container of that image with the defaults.
    #[must_use]
    pub fn new(name: ContainerName, image: ImageRef) -> Self {
        Self {
            name,
            image,
            exec_user: Ids::ROOT,
            mounts: Vec::new(),
            volumes: Vec::new(),
            tmpfs: Vec::new(),
            read_only: false,
            ports: Vec::new(),
            network: NetworkRequest::Bridge,
            limits: Limits::default(),
            ulimits: Ulimits::default(),
            capabilities: Capabilities::default(),
            gpu: false,
            add_hosts: Vec::new(),
            lifeline: None,
            persistent: false,
            image_health: false,
            labels: BTreeMap::new(),
        }
    }

    /// No process inside is root: PID 1 runs as the user of commands.
    #[must_use]
    pub fn is_rootless_inside(&self) -> bool {
        self.capabilities == Capabilities::None
    }

    /// Its host name inside: the name in lower case, `_` and `.` as `-`.
    #[must_use]
    pub fn hostname(&self) -> String {
        self.name.as_str().to_ascii_lowercase().replace(['_', '.'], "-").trim_end_matches('-').to_owned()
    }
}

/// A host directory or file visible inside.
#[derive(Clone, Debug)]
pub struct Mount {
    /// Its path on the host, resolved once.
    pub host: HostPath,
    /// Its path inside.
    pub at: ContainerPath,
    /// Access to it.
    pub access: Access,
}

/// A volume of the engine's visible inside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VolumeMount {
    /// Its name. The volume must exist, because one that an engine creates automatically has none of Coracle's labels.
    pub name: VolumeName,
    /// Its path inside.
    pub at: ContainerPath,
    /// Access to it.
    pub access: Access,
}

/// A directory in memory, PID 1's, empty at each start. Programs in it can be run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tmpfs {
    /// Its path inside.
    pub at: ContainerPath,
    /// Its size.
    pub size: ByteSize,
    /// Its permission bits; where the image has a directory, that one's stay.
    pub mode: u32,
}

/// Ceilings of each process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ulimits {
    /// Open files.
    pub nofile: Option<u32>,
    /// Bytes of a core dump.
    pub core: Option<u64>,
}

/// Capabilities of root inside. Commands of another user have none in any case.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Capabilities {
    /// Enough for package managers, nothing that reaches the host.
    #[default]
    Packages,
    /// Those that the guest needs to start, end and serve commands of other users.
    Guest,
    /// Nothing: commands run as PID 1's own user.
    None,
}

impl Capabilities {
    /// The kernel's names, without their prefix.
    #[must_use]
    pub fn kernel_names(self) -> &'static [&'static str] {
        match self {
            Self::Packages => FOR_PACKAGES,
            Self::Guest => FOR_GUEST,
            Self::None => &[],
        }
    }
}

/// Root's capabilities inside: enough for package managers, nothing that reaches the host.
const FOR_PACKAGES: &[&str] = &["CHOWN", "DAC_OVERRIDE", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID"];

/// Capabilities that the guest uses itself.
const FOR_GUEST: &[&str] = &["CHOWN", "DAC_OVERRIDE", "KILL", "SETGID", "SETUID"];

/// Access to a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// Read and write.
    #[serde(rename = "rw")]
    ReadWrite,
    /// Read only.
    #[serde(rename = "ro")]
    ReadOnly,
}

/// A port to publish on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Port inside.
    pub container: u16,
    /// Port on the host; `None` for a free one.
    pub host: Option<u16>,
    /// Protocol.
    pub protocol: Protocol,
}

/// Protocol of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP.
    #[default]
    Tcp,
    /// UDP.
    Udp,
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// The requested network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkRequest {
    /// A private address, outward traffic open, no other container in reach.
    Bridge,
    /// Loopback only.
    None,
    /// The host's own, by grant.
    Host,
    /// A managed network.
    Named(NetworkName),
}

/// The network a container is put on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkAttachment {
    /// The engine's default network.
    EngineDefault,
    /// A network stack of its own, in user mode: egress and published ports, without other members. Podman's.
    Alone,
    /// Loopback only.
    None,
    /// The host's own.
    Host,
    /// A network by name or id.
    Id(String),
}

/// How the guest comes into a container as its PID 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GuestDelivery {
    /// Program and link directory are bound: the engine sees the files of this host.
    Bound {
        /// The program, for this architecture.
        program: PathBuf,
        /// An empty directory for the socket, which Coracle created for this container.
        link: PathBuf,
    },
    /// The program is put at `/.coracle/guest` by [`upload`](crate::ContainerRuntime::upload), before the start.
    Uploaded,
}

/// A line of the hosts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// Host name.
    pub name: String,
    /// Its address; `None` is the engine's host (`host-gateway`).
    pub address: Option<IpAddr>,
}
