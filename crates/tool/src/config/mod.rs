//! The configuration file: what the person decides (containers.md 15.1).
//!
//! Every key here has an effect. Nothing is ever read from the workspace, and an unknown key is an error.

mod enums;
mod errors;
mod file;
mod mounts;
mod passthrough;
mod sandbox;
mod strict;
mod toolset;
mod workspace;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

pub use coracle_images::Pull;
use coracle_images::profile::{ProfileSettings, Purpose};
use coracle_lifecycle::LeaseTerms;
use coracle_runtime::{ByteSize, ImageRef, LabelNamespace};
use serde::Deserialize;

pub use self::enums::{CrossSession, Engine, EngineApi, Fallback, Guest, Level, NetworkGrant, Preset, SnapshotSecrets};
pub use self::mounts::{HostMount, MountMode};
pub use self::passthrough::{AutoPassthrough, Dotfiles};
pub use self::sandbox::{
    BuildNetwork, DevcontainerFile, Egress, Git, GitMode, Profile as SandboxProfile, Provider, ProviderKind, Proxy,
    ProxyNetwork, ProxyTransport, Sandbox, SandboxNetwork, Worker, Worktree, WorktreeMode,
};
pub use self::toolset::Toolset;
pub use self::workspace::{Preload, RunCode, TimeoutAction, Workspace, WorkspaceMode};
use crate::arg_types::Seconds;

/// The whole file. What is missing has the default of `standard`, or that of `strict` where the file says so.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The preset that the defaults come from, and how much is kept in.
    pub policy: Preset,
    /// Which engine makes containers.
    pub engine: Engine,
    /// The engine's program; found in the usual places when missing.
    pub engine_path: Option<PathBuf>,
    /// Where the engine listens; its local endpoint when missing.
    pub engine_host: Option<String>,
    /// An engine that does not listen on a local socket may be used.
    pub allow_remote_engine: bool,
    /// Whether the engine is read over its API.
    pub engine_api: EngineApi,
    /// Whether containers get a guest.
    pub guest: Guest,
    /// First part of labels and names.
    pub label_namespace: LabelNamespace,
    /// Where records are kept.
    pub state_dir: Option<PathBuf>,
    /// Image of a container whose creator names none.
    pub default_image: ImageRef,
    /// Containers of one session.
    pub max_containers: u32,
    /// Containers of all sessions.
    pub max_containers_total: u32,
    /// Directories of the host.
    pub workspace: Workspace,
    /// Snippets.
    pub run_code: RunCode,
    /// Containers of workflows.
    pub sandbox: Sandbox,
    /// The way out of them.
    pub proxy: Proxy,
    /// The agent loop in them.
    pub worker: Worker,
    /// What of the person's goes into containers.
    pub auto_passthrough: AutoPassthrough,
    /// The person's dotfiles.
    pub dotfiles: Dotfiles,
    /// Ceilings and grants.
    pub security: Security,
    /// Where base images come from.
    pub images: Images,
    /// Purposes, added or changed.
    pub profiles: BTreeMap<Purpose, ProfileSettings>,
    /// Commands.
    pub exec: Exec,
    /// Background jobs.
    pub jobs: Jobs,
    /// Setup commands.
    pub setup: Setup,
    /// Copies.
    pub copy: Copy,
    /// Stacks of services.
    pub compose: Compose,
    /// How long things are remembered.
    pub lifecycle: Lifecycle,
    /// The log.
    pub log: Log,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            policy: Preset::Standard,
            engine: Engine::Auto,
            engine_path: None,
            engine_host: None,
            allow_remote_engine: false,
            engine_api: EngineApi::Auto,
            guest: Guest::Auto,
            label_namespace: LabelNamespace::parse("coracle").expect("the word follows the grammar"),
            state_dir: None,
            default_image: ImageRef::parse("ubuntu:24.04").expect("the reference follows the grammar"),
            max_containers: 10,
            max_containers_total: 50,
            workspace: Workspace::default(),
            run_code: RunCode::default(),
            sandbox: Sandbox::default(),
            proxy: Proxy::default(),
            worker: Worker::default(),
            auto_passthrough: AutoPassthrough::default(),
            dotfiles: Dotfiles::default(),
            security: Security::default(),
            images: Images::default(),
            profiles: BTreeMap::new(),
            exec: Exec::default(),
            jobs: Jobs::default(),
            setup: Setup::default(),
            copy: Copy::default(),
            compose: Compose::default(),
            lifecycle: Lifecycle::default(),
            log: Log::default(),
        }
    }
}

impl Config {
    /// Nobody is root inside, and nothing of the host is in reach.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.policy == Preset::Strict
    }
}

/// `security.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Security {
    /// Memory of a container whose creator names none.
    pub memory_limit: ByteSize,
    /// Ceiling of it.
    pub memory_max: ByteSize,
    /// Processes and threads of a container whose creator names none.
    pub pids_limit: u32,
    /// Ceiling of it.
    pub pids_max: u32,
    /// Cores of a container whose creator names none; 0 is all.
    pub cpus: f64,
    /// Ceiling of it; 0 is none.
    pub cpus_max: f64,
    /// The host's network may be shared.
    pub allow_host_network: bool,
    /// The name `host-gateway` may be used.
    pub allow_host_gateway: bool,
    /// Commands may run as root inside.
    pub allow_root: bool,
    /// GPUs may be given.
    pub allow_gpu: bool,
    /// The person's git configuration may be given.
    pub allow_git: bool,
    /// GitHub's token may be given.
    pub allow_gh: bool,
    /// Keys for ssh may be given.
    pub allow_ssh: bool,
    /// Every variable of the host may be given.
    pub allow_env_all: bool,
    /// What a session may do to containers of another.
    pub cross_session: CrossSession,
    /// What becomes of a snapshot while a secret lies in a file.
    pub snapshot_secrets: SnapshotSecrets,
    /// Images that may be named.
    pub images: Vec<String>,
    /// The lowest host port that may be published.
    pub port_min: u16,
    /// The address that ports are published on.
    pub ports_bind: IpAddr,
    /// Whether a network with a way out may be used.
    pub network: NetworkGrant,
    /// A container may be removed without saving what only it has.
    pub allow_discard: bool,
}

impl Default for Security {
    fn default() -> Self {
        Self {
            memory_limit: ByteSize::mib(4096),
            memory_max: ByteSize::mib(16384),
            pids_limit: 1024,
            pids_max: 4096,
            cpus: 0.0,
            cpus_max: 0.0,
            allow_host_network: false,
            allow_host_gateway: true,
            allow_root: true,
            allow_gpu: false,
            allow_git: true,
            allow_gh: true,
            allow_ssh: false,
            allow_env_all: false,
            cross_session: CrossSession::Use,
            snapshot_secrets: SnapshotSecrets::Refuse,
            images: vec!["*".to_owned()],
            port_min: 1024,
            ports_bind: IpAddr::V4(Ipv4Addr::LOCALHOST),
            network: NetworkGrant::Open,
            allow_discard: false,
        }
    }
}

/// `images.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Images {
    /// When to fetch an image from its registry.
    pub pull: Pull,
    /// Time for one pull.
    pub pull_timeout: Seconds,
    /// Time for making an image.
    pub build_timeout: Seconds,
    /// Time for finding out whether a registry answers.
    pub probe_timeout: Seconds,
    /// What to do where no registry answers.
    pub fallback: Fallback,
    /// Where a base is made from.
    pub debian_mirror: Option<String>,
    /// Which release a base is made of.
    pub debian_suite: Option<String>,
    /// A cached image that is older is made anew.
    pub cache_max_age: Seconds,
    /// Cached images together; those that were not used for longest go first.
    pub cache_max_bytes: ByteSize,
    /// Repositories may be cloned by plain http, and from private addresses.
    pub git_allow_private: bool,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            pull: Pull::Missing,
            pull_timeout: Seconds::new(15 * 60),
            build_timeout: Seconds::new(30 * 60),
            probe_timeout: Seconds::new(5),
            fallback: Fallback::Bootstrap,
            debian_mirror: None,
            debian_suite: None,
            cache_max_age: Seconds::new(7 * 86400),
            cache_max_bytes: ByteSize::mib(20 << 10),
            git_allow_private: false,
        }
    }
}

/// `exec.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Exec {
    /// Total time of a command whose caller names none.
    pub timeout: Seconds,
    /// Ceiling of it.
    pub timeout_max: Seconds,
    /// Time without output after which a command is ended; 0 is off.
    pub silence_timeout: Seconds,
    /// Time between TERM and KILL.
    pub grace: Seconds,
    /// Output given inline, each stream.
    pub inline: ByteSize,
    /// The same under MCP.
    pub inline_mcp: ByteSize,
    /// Output that a container keeps of each command.
    pub keep_bytes: ByteSize,
    /// The same of all commands together.
    pub keep_total: ByteSize,
    /// How long it is kept after the end of a command.
    pub keep_for: Seconds,
    /// Commands at once.
    pub max_parallel: u32,
    /// Live secrets are taken out of what commands and jobs print.
    pub redact: bool,
}

impl Default for Exec {
    fn default() -> Self {
        Self {
            timeout: Seconds::new(300),
            timeout_max: Seconds::new(3600),
            silence_timeout: Seconds::new(0),
            grace: Seconds::new(2),
            inline: ByteSize::mib(1),
            inline_mcp: ByteSize(32 << 10),
            keep_bytes: ByteSize::mib(64),
            keep_total: ByteSize::mib(512),
            keep_for: Seconds::new(3600),
            max_parallel: 64,
            redact: false,
        }
    }
}

/// `jobs.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Jobs {
    /// Jobs that run at once in a container.
    pub max_running: u32,
    /// The longest that one call waits for a job.
    pub wait_max: Seconds,
    /// Lines that a poll gives.
    pub poll_lines: u32,
}

impl Default for Jobs {
    fn default() -> Self {
        Self { max_running: 32, wait_max: Seconds::new(600), poll_lines: 100 }
    }
}

/// `setup.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Setup {
    /// Time of one setup command.
    pub timeout: Seconds,
    /// Time of one clone.
    pub clone_timeout: Seconds,
    /// Time of all together.
    pub total: Seconds,
}

impl Default for Setup {
    fn default() -> Self {
        Self { timeout: Seconds::new(300), clone_timeout: Seconds::new(120), total: Seconds::new(30 * 60) }
    }
}

/// `copy.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Copy {
    /// Bytes of one copy.
    pub max_bytes: ByteSize,
    /// Files, directories and links of one copy.
    pub max_entries: u64,
}

impl Default for Copy {
    fn default() -> Self {
        Self { max_bytes: ByteSize::mib(2048), max_entries: 100_000 }
    }
}

/// `compose.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Compose {
    /// Stacks may be brought up.
    pub enabled: bool,
    /// Time until all services of a stack are good.
    pub timeout: Seconds,
    /// Containers of one stack.
    pub max_services: u32,
    /// Services may be built.
    pub allow_build: bool,
}

impl Default for Compose {
    fn default() -> Self {
        Self { enabled: true, timeout: Seconds::new(300), max_services: 20, allow_build: false }
    }
}

/// `lifecycle.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Lifecycle {
    /// How long a container of a named session is kept that nobody uses.
    pub idle: Seconds,
    /// How long a container is kept whose MCP process ended without its session's end.
    pub orphan_grace: Seconds,
    /// Containers with running jobs outlive their session.
    pub keep_jobs: bool,
    /// How long a destroyed container is remembered.
    pub gone_for: Seconds,
    /// What is saved of one container, at most.
    pub save_max: ByteSize,
    /// How long what was saved is kept.
    pub save_keep: Seconds,
}

impl Lifecycle {
    /// How long things are kept.
    #[must_use]
    pub fn terms(&self) -> LeaseTerms {
        LeaseTerms { idle: self.idle.0, orphan_grace: self.orphan_grace.0, gone_for: self.gone_for.0 }
    }
}

impl Default for Lifecycle {
    fn default() -> Self {
        Self {
            idle: Seconds::new(86400),
            orphan_grace: Seconds::new(15 * 60),
            keep_jobs: true,
            gone_for: Seconds::new(7 * 86400),
            save_max: ByteSize::mib(512),
            save_keep: Seconds::new(14 * 86400),
        }
    }
}

/// `log.*`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Log {
    /// What is written to standard error.
    pub level: Level,
}
