//! Information that engines report about themselves and their resources.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use coracle_archive::oci::{Configuration, StartConfiguration};
use coracle_types::{ContainerId, ContainerStatus, EngineKind, Error, ImageId, ImageRef, IsolationKind};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::{Health, Limits, Protocol};

/// An engine's information about itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EngineInfo {
    /// Its kind.
    pub kind: EngineKind,
    /// Version of the engine, not of its client.
    pub version: String,
    /// Its address, or `local` for an engine without a daemon.
    pub endpoint: String,
    /// It runs without root.
    pub rootless: bool,
    /// Its containers have root alone, who is the user outside.
    pub single_user: bool,
    /// Architecture in OCI's words (`amd64`, `arm64`).
    pub arch: String,
    /// Version of the control groups, 1 or 2.
    pub cgroup: u8,
    /// The directory of its data.
    pub data_root: PathBuf,
    /// How it stores files, where it reports that: `vfs` copies all of an image for each container.
    pub storage_driver: Option<String>,
    /// Version of `compose` on this engine, where [`Stacks::compose_version`](crate::Stacks::compose_version) was called.
    pub compose_version: Option<String>,
    /// It can give a GPU to a container.
    pub gpu: bool,
    /// SELinux is enforcing on its host.
    pub selinux: bool,
    /// Limits that this engine takes and does not keep.
    pub ignored_limits: Vec<String>,
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
    pub status: ContainerStatus,
    /// Its PID 1 on the engine's host, while it runs.
    pub pid: Option<u32>,
    /// Exit code of PID 1, once it ended.
    pub exit_code: Option<i64>,
    /// The kernel ended it for memory.
    pub oom_killed: bool,
    /// The engine ended it, since it had run for as long as its configuration lets a container run.
    pub lifetime_over: Option<Duration>,
    /// The time of its creation (RFC 3339).
    pub created: String,
    /// The time of its last start.
    pub started_at: Option<String>,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// The user of its PID 1, in the notation of its configuration; empty for root.
    pub user: String,
    /// The working directory of its PID 1; empty for the root.
    pub workdir: String,
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
    /// Commands that the engine runs in it: not those of its guest.
    pub execs: usize,
    /// The last result of its image's health check, if it has one.
    pub health: Option<Health>,
    /// What stands between it and this machine, where the engine tells.
    pub isolation: Option<IsolationKind>,
}

impl Container {
    /// Whether commands can run in it.
    #[must_use]
    pub fn running(&self) -> bool {
        self.status == ContainerStatus::Running
    }

    /// Why nothing runs in one that has stopped.
    #[must_use]
    pub fn not_running(&self) -> Error {
        match self.lifetime_over {
            Some(limit) => Error::LifetimeOver { limit },
            None => Error::NotRunning {
                status: self.status,
                exit_code: self.exit_code,
                oom_killed: self.oom_killed,
                output: None,
            },
        }
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
    /// Whether the source is a path of the host that a request named, and no volume.
    pub is_bind: bool,
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
    /// Its start configuration.
    pub config: ImageConfig,
    /// Paths at which each of its containers gets a volume by default.
    pub volumes: Vec<String>,
    /// Architecture in OCI's words.
    pub arch: String,
    /// Size in bytes.
    pub size_bytes: u64,
    /// The time of its creation.
    pub created: String,
}

impl Image {
    /// Whether a name leads to it, short or completed, or its id. A name without a registry stands for Docker Hub's and
    /// for one of this machine alone.
    #[must_use]
    pub fn is_named(&self, name: &ImageRef) -> bool {
        if self.id.as_str() == name.as_str() {
            return true;
        }
        if let Some((_, digest)) = name.as_str().split_once('@') {
            return self.digest.as_deref() == Some(digest);
        }
        let local = name.registry().is_none().then(|| format!("localhost/{name}"));
        let local = local.and_then(|it| ImageRef::parse(it).ok()).map(|it| it.completed());
        let tags = self.tags.iter().filter_map(|it| ImageRef::parse(it).ok());
        tags.map(|it| it.completed()).any(|it| it == name.completed() || Some(&it) == local.as_ref())
    }
}

impl Image {
    /// An image as its configuration describes it: without names, digest and size.
    #[must_use]
    pub fn from_configuration(id: ImageId, configuration: Configuration) -> Self {
        let Configuration { platform, created, config, .. } = configuration;
        Self {
            id,
            tags: Vec::new(),
            digest: None,
            labels: config.labels.clone(),
            env: config.env.clone(),
            volumes: config.volumes.keys().cloned().collect(),
            config: config.into(),
            arch: platform.architecture,
            size_bytes: 0,
            created,
        }
    }
}

impl From<StartConfiguration> for ImageConfig {
    fn from(config: StartConfiguration) -> Self {
        let StartConfiguration { entrypoint, cmd, user, working_dir, .. } = config;
        Self { entrypoint, cmd, user, workdir: working_dir }
    }
}

/// How an image starts and as which user, by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageConfig {
    /// Words before the command.
    pub entrypoint: Vec<String>,
    /// The command.
    pub cmd: Vec<String>,
    /// The user, in the image's notation; empty for root.
    pub user: String,
    /// The directory that commands start in; empty for the root.
    pub workdir: String,
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
    /// Addresses of the host for its members, where the engine reports them.
    pub gateways: Vec<IpAddr>,
    /// Ranges of its members' addresses, where the engine reports them.
    pub subnets: Vec<IpNet>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_named_as_engines_and_people_name_it() {
        let id = format!("sha256:{}", "b".repeat(64));
        let named = |tag: &str, name: &str| {
            let image = Image {
                id: ImageId::parse(&id).unwrap(),
                tags: vec![tag.to_owned()],
                digest: Some("sha256:feed".into()),
                labels: BTreeMap::new(),
                env: Vec::new(),
                config: ImageConfig::default(),
                volumes: Vec::new(),
                arch: "amd64".into(),
                size_bytes: 0,
                created: String::new(),
            };
            image.is_named(&ImageRef::parse(name).unwrap())
        };
        for (tag, name) in [
            ("python:3.12", "python:3.12"),
            ("docker.io/library/python:3.12", "python:3.12"),
            ("python:3.12", "docker.io/library/python:3.12"),
            ("localhost/ours:1", "ours:1"),
            ("localhost/ours:latest", "ours"),
            ("ours:1", &id),
        ] {
            assert!(named(tag, name), "{tag} {name}");
        }
        for (tag, name) in
            [("python:3.12", "python"), ("quay.io/x:1", "x:1"), ("x:1", "localhost/x:1"), ("x:1", &format!("x:1@{id}"))]
        {
            assert!(!named(tag, name), "{tag} {name}");
        }
    }
}
