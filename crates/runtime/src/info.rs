//! What engines tell of themselves and of what they hold.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::{ContainerId, ImageId, Limits, Protocol};

/// The engines we drive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum EngineKind {
    /// Docker Engine.
    Docker,
    /// Podman.
    Podman,
    /// State in memory, for tests and dry runs.
    Fake,
}

impl EngineKind {
    /// The word used in configuration, records and answers.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
            Self::Fake => "fake",
        }
    }
}

impl fmt::Display for EngineKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// What an engine says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EngineInfo {
    /// Which one.
    pub kind: EngineKind,
    /// Version of the engine, not of its client.
    pub version: String,
    /// Where it listens, or `local` for an engine without a daemon.
    pub endpoint: String,
    /// It runs without root.
    pub rootless: bool,
    /// Architecture in OCI's words (`amd64`, `arm64`).
    pub arch: String,
    /// Version of the control groups, 1 or 2.
    pub cgroup: u8,
    /// Where it keeps its data.
    pub data_root: PathBuf,
    /// Version of `compose` on this engine, if there is one.
    pub compose_version: Option<String>,
    /// It can give a GPU to a container.
    pub gpu: bool,
    /// SELinux is enforcing on its host.
    pub selinux: bool,
    /// Limits that this engine takes and does not keep.
    pub ignored_limits: Vec<String>,
}

/// State of a container, in the words that both engines share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// Made, never started.
    Created,
    /// Running.
    Running,
    /// Frozen.
    Paused,
    /// Between two runs.
    Restarting,
    /// Ended.
    Exited,
    /// Ended, and the engine could not clean up.
    Dead,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Created => "created",
            Self::Running => "running",
            Self::Paused => "paused",
            Self::Restarting => "restarting",
            Self::Exited => "exited",
            Self::Dead => "dead",
        })
    }
}

/// A container as the engine knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Container {
    /// Full id.
    pub id: ContainerId,
    /// Name, without a leading slash.
    pub name: String,
    /// Image it was made from.
    pub image: ImageId,
    /// State.
    pub status: Status,
    /// Its PID 1 on the engine's host, while it runs.
    pub pid: Option<u32>,
    /// Exit code of PID 1, once it ended.
    pub exit_code: Option<i64>,
    /// The kernel ended it for memory.
    pub oom_killed: bool,
    /// When it was made (RFC 3339).
    pub created: String,
    /// When it was last started.
    pub started_at: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Environment of its configuration.
    pub env: Vec<String>,
    /// Ports published on the host.
    pub ports: Vec<PublishedPort>,
    /// Binds and volumes.
    pub mounts: Vec<MountPoint>,
    /// Names of its networks.
    pub networks: Vec<String>,
    /// Limits in force.
    pub limits: Limits,
}

impl Container {
    /// Whether commands can run in it.
    #[must_use]
    pub fn running(&self) -> bool {
        self.status == Status::Running
    }
}

/// A port of a container on the host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PublishedPort {
    /// Port inside.
    pub container: u16,
    /// Port on the host.
    pub host: u16,
    /// Address on the host.
    pub address: IpAddr,
    /// Protocol.
    pub protocol: Protocol,
}

impl fmt::Display for PublishedPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}->{}/{}", self.address, self.host, self.container, self.protocol)
    }
}

/// A mount of a container as the engine made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountPoint {
    /// Path on the host (empty for a tmpfs).
    pub source: PathBuf,
    /// Path inside.
    pub target: String,
    /// Whether it may be written.
    pub writable: bool,
}

/// A local image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Its id.
    pub id: ImageId,
    /// Names it has here.
    pub tags: Vec<String>,
    /// Digest at the registry it came from.
    pub digest: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// Its environment.
    pub env: Vec<String>,
    /// Architecture in OCI's words.
    pub arch: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// When it was made.
    pub created: String,
}

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// No way out.
    pub internal: bool,
}
