//! The model of a stack: what every engine runs, and what Compose's program gets as its file.
//!
//! Its JSON is a Compose file in the long form. Plain data: `coracle-compose` makes it from the text of a file and decides
//! what may be in it. A `$` in it is a `$`: variables are filled in.
//!
//! **Invariant:** unknown keys are refused when a model is read, and unset ones are left out when it is written.

mod duration;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::duration::{format_duration, parse_duration};
use crate::Protocol;
use coracle_types::{ByteSize, ProjectName};

/// Names and texts.
type Texts = BTreeMap<String, String>;

fn is_unset<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

/// Defines mappings of a model: see the invariant above.
macro_rules! mappings {
    ($($(#[$doc:meta])* $name:ident { $($(#[$field:meta])* $key:ident: $type:ty,)* })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
        #[serde(default, deny_unknown_fields)]
        pub struct $name {
            $(
                $(#[$field])*
                #[serde(skip_serializing_if = "is_unset")]
                pub $key: $type,
            )*
        }
    )*};
}

mappings! {
    /// A stack.
    StackModel {
        /// Its services.
        services: BTreeMap<String, Service>,
        /// Networks that services are on.
        networks: BTreeMap<String, Network>,
        /// Volumes that services mount.
        volumes: BTreeMap<String, Volume>,
        /// Files that services see.
        configs: BTreeMap<String, StoredFile>,
        /// Files that services see, which are secret.
        secrets: BTreeMap<String, StoredFile>,
    }

    /// A service.
    Service {
        /// Its image; none when it is built.
        image: Option<String>,
        /// When its image is pulled.
        pull_policy: Option<String>,
        /// How its image is built.
        build: Option<Build>,
        /// Number of its containers; one if unset.
        scale: Option<u64>,
        /// Replaces the entrypoint and the command of the image.
        entrypoint: Option<Vec<String>>,
        /// Replaces the command of the image.
        command: Option<Vec<String>>,
        /// Variables of its environment.
        environment: Texts,
        /// Labels of its containers.
        labels: Texts,
        /// Directory that it starts in.
        working_dir: Option<String>,
        /// `USER[:GROUP]`, by names or numbers.
        user: Option<String>,
        /// Host name inside.
        hostname: Option<String>,
        /// Platform of its image.
        platform: Option<String>,
        /// Signal that stops it.
        stop_signal: Option<String>,
        /// Time between that signal and `KILL`.
        #[serde(with = "duration")]
        stop_grace_period: Option<Duration>,
        /// When it is started again.
        restart: Option<String>,
        /// It has a terminal.
        tty: bool,
        /// Its standard input stays open.
        stdin_open: bool,
        /// An init process is PID 1.
        init: Option<bool>,
        /// Its root file system is read-only.
        read_only: bool,
        /// Services that are started before it.
        depends_on: BTreeMap<String, Dependency>,
        /// How its health is checked, beyond what its image says.
        healthcheck: Option<HealthCheck>,
        /// Memory, at most.
        mem_limit: Option<ByteSize>,
        /// Memory and swap, at most.
        memswap_limit: Option<ByteSize>,
        /// Size of `/dev/shm`.
        shm_size: Option<ByteSize>,
        /// Cores, at most.
        cpus: Option<f64>,
        /// Processes, at most.
        pids_limit: Option<u32>,
        /// Limits of each process.
        ulimits: BTreeMap<String, Ulimit>,
        /// What else it needs: GPUs.
        deploy: Option<Deploy>,
        /// Capabilities that it loses.
        cap_drop: Vec<String>,
        /// Capabilities that it has.
        cap_add: Vec<String>,
        /// Options of the kernel's security.
        security_opt: Vec<String>,
        /// What becomes of its output.
        logging: Option<Logging>,
        /// `none`, or `service:` and the one whose network it uses; else it is on `networks`.
        network_mode: Option<String>,
        /// Networks that it is on.
        networks: BTreeMap<String, Attachment>,
        /// Other services, as `SERVICE[:ALIAS]`.
        links: Vec<String>,
        /// Hosts that it knows, as `NAME:ADDRESS`.
        extra_hosts: Vec<String>,
        /// Name servers.
        dns: Vec<IpAddr>,
        /// Domains that names are looked up in.
        dns_search: Vec<String>,
        /// Options of its resolver.
        dns_opt: Vec<String>,
        /// Ports that it serves inside.
        expose: Vec<String>,
        /// Ports that are published on the host.
        ports: Vec<Port>,
        /// Mounts.
        volumes: Vec<Mount>,
        /// Directories in memory, as `PATH[:OPTION,…]`.
        tmpfs: Vec<String>,
        /// Configs that it sees.
        configs: Vec<FileMount>,
        /// Secrets that it sees.
        secrets: Vec<FileMount>,
    }

    /// How an image is built.
    Build {
        /// Directory that it is built from.
        context: Option<String>,
        /// Its Dockerfile.
        dockerfile: Option<String>,
        /// The Dockerfile's text, in place of a file.
        dockerfile_inline: Option<String>,
        /// Arguments of the build.
        args: Texts,
        /// Further directories, by name.
        additional_contexts: Texts,
        /// Hosts that steps know, as `NAME:ADDRESS`.
        extra_hosts: Vec<String>,
        /// Labels of the image.
        labels: Texts,
        /// Network of steps: `default` or `none`.
        network: Option<String>,
        /// Steps are run again.
        no_cache: bool,
        /// Images that it is built from are pulled again.
        pull: bool,
        /// Platforms that it is built for.
        platforms: Vec<String>,
        /// Size of `/dev/shm` in steps.
        shm_size: Option<ByteSize>,
        /// The last stage that is built.
        target: Option<String>,
    }

    /// A health check.
    HealthCheck {
        /// `CMD` and words, `CMD-SHELL` and a line, or `NONE`.
        test: Vec<String>,
        /// Time between checks.
        #[serde(with = "duration")]
        interval: Option<Duration>,
        /// Limit of one check.
        #[serde(with = "duration")]
        timeout: Option<Duration>,
        /// Time in which failures do not count.
        #[serde(with = "duration")]
        start_period: Option<Duration>,
        /// Time between checks within the start period.
        #[serde(with = "duration")]
        start_interval: Option<Duration>,
        /// Failures until it is unhealthy.
        retries: Option<u32>,
        /// The image's check is not run.
        disable: bool,
    }

    /// A limit of processes; -1 is none.
    Ulimit {
        /// The limit.
        soft: Option<i64>,
        /// Up to which a process may raise it.
        hard: Option<i64>,
    }

    /// How a cluster would run a service. Of it, replicas, limits and devices are read; devices are left in a stack.
    Deploy {
        /// Number of containers.
        replicas: Option<u64>,
        /// Limits and devices.
        resources: Resources,
    }

    /// Limits and devices.
    Resources {
        /// What a service gets at most.
        limits: Amounts,
        /// What it gets at least.
        reservations: Amounts,
    }

    /// Amounts of resources.
    Amounts {
        /// Cores.
        cpus: Option<f64>,
        /// Memory.
        memory: Option<ByteSize>,
        /// Processes.
        pids: Option<i64>,
        /// Devices.
        devices: Vec<Device>,
    }

    /// GPUs.
    Device {
        /// What they are used for.
        capabilities: Vec<String>,
        /// Their driver.
        driver: Option<String>,
        /// How many; -1 is all.
        count: Option<i64>,
        /// Which ones, in place of a count.
        device_ids: Vec<String>,
    }

    /// What becomes of the output of a service.
    Logging {
        /// The path inside.
        driver: Option<String>,
        /// How much of it is stored.
        options: Texts,
    }

    /// How a service is on a network.
    Attachment {
        /// Names by which others reach it there, besides its own.
        aliases: Vec<String>,
    }

    /// Options of a bind.
    BindOptions {
        /// A missing directory is made on the host.
        create_host_path: Option<bool>,
        /// Which mounts below it pass to the other side.
        propagation: Option<String>,
    }

    /// Options of a volume.
    VolumeOptions {
        /// An empty volume is not filled from the image.
        nocopy: bool,
    }

    /// Options of a directory in memory.
    TmpfsOptions {
        /// Its size.
        size: Option<ByteSize>,
        /// Its mode.
        mode: Option<u32>,
    }

    /// A network.
    Network {
        /// It is there already and stays.
        external: bool,
        /// The engine's name of it; by default the project and its name in the stack.
        name: Option<String>,
        /// Nothing outside is reached through it.
        internal: bool,
        /// Its labels.
        labels: Texts,
    }

    /// A volume.
    Volume {
        /// It is there already and stays.
        external: bool,
        /// The engine's name of it; by default the project and its name in the stack.
        name: Option<String>,
        /// Its labels.
        labels: Texts,
    }
}

impl Network {
    /// What the engine calls it.
    #[must_use]
    pub fn engine_name(&self, project: &ProjectName, name: &str) -> String {
        self.name.clone().unwrap_or_else(|| format!("{project}_{name}"))
    }
}

impl Volume {
    /// What the engine calls it.
    #[must_use]
    pub fn engine_name(&self, project: &ProjectName, name: &str) -> String {
        self.name.clone().unwrap_or_else(|| format!("{project}_{name}"))
    }
}

/// What a service waits for in another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dependency {
    /// Until when it waits.
    #[serde(default)]
    pub condition: Condition,
    /// Without the other one it is not started.
    pub required: bool,
}

/// A published port.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Port inside.
    pub target: u16,
    /// Port of the host; any free one if unset.
    #[serde(skip_serializing_if = "is_unset")]
    pub published: Option<u16>,
    /// Protocol.
    #[serde(default)]
    pub protocol: Protocol,
    /// Address of the host.
    #[serde(skip_serializing_if = "is_unset")]
    pub host_ip: Option<IpAddr>,
}

/// A mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Mount {
    /// What it shows.
    #[serde(rename = "type")]
    pub kind: MountKind,
    /// A path of the host, or the name of a volume. A volume without a name is the container's own.
    #[serde(skip_serializing_if = "is_unset")]
    pub source: Option<String>,
    /// Path inside.
    pub target: String,
    /// It cannot be written.
    #[serde(default)]
    pub read_only: bool,
    /// Options of a bind.
    #[serde(skip_serializing_if = "is_unset")]
    pub bind: Option<BindOptions>,
    /// Options of a volume.
    #[serde(skip_serializing_if = "is_unset")]
    pub volume: Option<VolumeOptions>,
    /// Options of a directory in memory.
    #[serde(skip_serializing_if = "is_unset")]
    pub tmpfs: Option<TmpfsOptions>,
}

/// A config or secret that a service sees.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FileMount {
    /// Its name in the stack.
    pub source: String,
    /// Path inside.
    #[serde(default)]
    pub target: String,
    /// Its owner.
    #[serde(skip_serializing_if = "is_unset")]
    pub uid: Option<String>,
    /// Its group.
    #[serde(skip_serializing_if = "is_unset")]
    pub gid: Option<String>,
    /// Its mode.
    #[serde(skip_serializing_if = "is_unset")]
    pub mode: Option<u32>,
}

/// Until when a service waits for another one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Condition {
    /// It was started.
    #[default]
    #[serde(rename = "service_started")]
    Started,
    /// Its health check passed.
    #[serde(rename = "service_healthy")]
    Healthy,
    /// It ended with 0.
    #[serde(rename = "service_completed_successfully")]
    Completed,
}

/// What a mount shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MountKind {
    /// A file or directory of the host.
    Bind,
    /// A volume.
    #[default]
    Volume,
    /// A directory in memory.
    Tmpfs,
}

/// A config or a secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum StoredFile {
    /// A file of the host.
    File(PathBuf),
    /// A text.
    Content(String),
}
