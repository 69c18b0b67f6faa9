//! What a container shall be, as plain data.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::host::fs::HostPath;
use crate::{ByteSize, ContainerName, ContainerPath, Ids, ImageRef, NetworkName};

/// A container that somebody asks for. [`admit`](crate::admit) decides whether it may be.
#[derive(Clone, Debug)]
pub struct CreateSpec {
    /// Its name.
    pub name: ContainerName,
    /// The image as asked for.
    pub image: ImageRef,
    /// Who will run commands in it. PID 1 is root inside whatever this says.
    pub exec_user: Ids,
    /// Binds, in the order they are mounted.
    pub mounts: Vec<Mount>,
    /// Ports to publish.
    pub ports: Vec<Port>,
    /// The network as asked for.
    pub network: NetworkAsk,
    /// Ceilings of what it may use.
    pub limits: Limits,
    /// All GPUs of the host.
    pub gpu: bool,
    /// Lines of its hosts file.
    pub add_hosts: Vec<HostEntry>,
    /// Our labels and the caller's.
    pub labels: BTreeMap<String, String>,
}

impl CreateSpec {
    /// A container of that image with nothing else asked.
    #[must_use]
    pub fn new(name: ContainerName, image: ImageRef) -> Self {
        Self {
            name,
            image,
            exec_user: Ids::ROOT,
            mounts: Vec::new(),
            ports: Vec::new(),
            network: NetworkAsk::Bridge,
            limits: Limits::default(),
            gpu: false,
            add_hosts: Vec::new(),
            labels: BTreeMap::new(),
        }
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
    /// Where it lies on the host, resolved once.
    pub host: HostPath,
    /// Where it appears.
    pub at: ContainerPath,
    /// What may be done with it.
    pub access: Access,
}

/// What may be done with a mount.
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

/// The network a caller asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkAsk {
    /// A private address, outward traffic open, no other container in reach.
    Bridge,
    /// Loopback only.
    None,
    /// The host's own, by grant.
    Host,
    /// A network of ours.
    Named(NetworkName),
}

/// The network a container is put on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkOn {
    /// Whatever the engine gives a container that asks for nothing.
    EngineDefault,
    /// A network stack of its own, in user mode: a way out, published ports, and nobody else on it. Podman's.
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
pub enum GuestOn {
    /// Program and link directory are bound: the engine sees the files of this host.
    Bound {
        /// The program, for this architecture.
        program: PathBuf,
        /// An empty directory of ours for the socket: one for each container.
        link: PathBuf,
    },
    /// The program is put at `/.coracle/guest` by [`upload`](crate::ContainerRuntime::upload), before the start.
    Uploaded,
}

/// Ceilings of what a container may use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory; no swap is added.
    pub memory: Option<ByteSize>,
    /// Cores, also parts of one.
    pub cpus: Option<f64>,
    /// Processes and threads.
    pub pids: Option<u32>,
}

impl Eq for Limits {}

/// A line of the hosts file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostEntry {
    /// Host name.
    pub name: String,
    /// Its address; `None` is the engine's host (`host-gateway`).
    pub address: Option<IpAddr>,
}
