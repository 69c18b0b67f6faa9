//! The configuration of a container.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use coracle_runtime::{Limits, Port};
use coracle_types::{ContainerId, ContainerName, Ids, ImageId};
use serde::{Deserialize, Serialize};

use crate::health_check::HealthCheck;
use crate::ids::IdMap;
use crate::oci_runtime::OciRuntime;

/// Everything that is decided when a container is created. It is written once. Paths inside are absolute.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ContainerConfig {
    pub(crate) id: ContainerId,
    pub(crate) name: ContainerName,
    pub(crate) image: ImageId,
    /// RFC 3339.
    pub(crate) created: String,
    pub(crate) hostname: String,
    pub(crate) init: Init,
    /// `NAME=value`, of the image and of the container.
    pub(crate) env: Vec<String>,
    /// User of PID 1.
    pub(crate) user: Ids,
    /// Directory of PID 1.
    pub(crate) workdir: String,
    pub(crate) mounts: Vec<MountConfig>,
    pub(crate) read_only: bool,
    pub(crate) network: NetworkConfig,
    /// Lines of the hosts file, in addition to those of loopback and the container itself.
    pub(crate) hosts: Vec<HostLine>,
    pub(crate) limits: Limits,
    pub(crate) nofile: Option<u32>,
    pub(crate) core: Option<u64>,
    /// The capabilities that it has, as bits by their number.
    pub(crate) capabilities: u64,
    pub(crate) labels: BTreeMap<String, String>,
    /// The id mapping of its user namespace; `None` if it has none of its own.
    pub(crate) ids: Option<IdMap>,
    /// The OCI runtime that creates its processes; the engine itself if unset.
    #[serde(default)]
    pub(crate) runtime: Option<OciRuntime>,
    /// Settings that only services have.
    #[serde(default)]
    pub(crate) service: Option<ServiceConfig>,
    /// Mount points of the containers that this one was forked from. They exist in the copied files, without a mount.
    #[serde(default)]
    pub(crate) inherited_stubs: Vec<String>,
}

/// Settings that only services have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ServiceConfig {
    /// Further names on its network.
    pub(crate) aliases: Vec<String>,
    /// The signal that asks it to end; TERM if unset.
    pub(crate) stop_signal: Option<i32>,
    pub(crate) health: Option<HealthCheck>,
}

/// PID 1.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Init {
    /// The guest, which listens in the directory `link`. That directory and the program are bound, unless the program was
    /// uploaded.
    Guest { program: Option<PathBuf>, worker: Option<PathBuf>, link: Option<PathBuf>, lifeline: Option<u64> },
    /// A command of the image beneath a minimal init, if the engine has one; its output goes to the container's log.
    Command(Vec<String>),
}

/// A mount, in the order of `ContainerConfig::mounts`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum MountConfig {
    /// A directory or file of the host.
    Bind { source: PathBuf, target: String, writable: bool },
    /// A named volume. A new volume can get the content and owner of the image's directory.
    Volume { name: String, target: String, writable: bool, as_in_image: bool },
    /// A directory in memory.
    Tmpfs { target: String, bytes: u64, mode: u32, owner: Ids, exec: bool },
}

impl MountConfig {
    /// Its path inside.
    pub(crate) fn target(&self) -> &str {
        let (Self::Bind { target, .. } | Self::Volume { target, .. } | Self::Tmpfs { target, .. }) = self;
        target
    }
}

/// The network of a container, as decided at its creation.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NetworkConfig {
    pub(crate) mode: NetworkMode,
    pub(crate) ports: Vec<Port>,
    /// The address on the host that ports are published on.
    pub(crate) ports_bind: IpAddr,
}

/// The kind of a container's network.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum NetworkMode {
    /// Loopback alone.
    None,
    /// The host's own.
    Host,
    /// Outward traffic and published ports, without other members.
    Outgoing,
    /// A network of this engine, by id.
    Named(String),
}

/// A line of the hosts file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct HostLine {
    pub(crate) name: String,
    /// `None` is the host as the network reaches it.
    pub(crate) address: Option<IpAddr>,
}

/// A configuration for tests.
#[cfg(test)]
pub(crate) fn example(mounts: Vec<MountConfig>) -> ContainerConfig {
    ContainerConfig {
        id: ContainerId::parse(coracle_types::random_hex::<32>()).expect("it is an id"),
        name: ContainerName::parse("example").expect("it is a name"),
        image: ImageId::parse(format!("sha256:{}", "0".repeat(64))).expect("it is an id"),
        created: String::new(),
        hostname: "example".into(),
        init: Init::Command(Vec::new()),
        env: Vec::new(),
        user: Ids::ROOT,
        workdir: "/".into(),
        mounts,
        read_only: false,
        network: NetworkConfig { mode: NetworkMode::None, ports: Vec::new(), ports_bind: IpAddr::from([127, 0, 0, 1]) },
        hosts: Vec::new(),
        limits: Limits::default(),
        nofile: None,
        core: None,
        capabilities: 0,
        labels: BTreeMap::new(),
        ids: None,
        runtime: None,
        service: None,
        inherited_stubs: Vec::new(),
    }
}
