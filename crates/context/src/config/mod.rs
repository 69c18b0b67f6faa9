//! The configuration file: the user's settings.
//!
//! Every key has an effect. No setting is ever read from the workspace, and an unknown key is an error.

mod enums;
mod errors;
mod file;
mod kubernetes;
mod machine;
mod macros;
mod mounts;
mod passthrough;
mod remote;
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
use coracle_types::{ByteSize, ImageRef, LabelNamespace};

pub use self::enums::{
    CrossSession, Engine, EngineApi, EngineRuntime, Fallback, Guest, Level, NetworkGrant, Preset, SnapshotSecrets,
};
pub use self::kubernetes::{Kubernetes, Toleration, TolerationEffect};
pub use self::machine::Machine;
use self::macros::table;
pub use self::mounts::{HostMount, MountMode};
pub use self::passthrough::{AutoPassthrough, Dotfiles};
pub use self::sandbox::AGENT_PROFILES;
pub use self::sandbox::{
    BuildNetwork, DevcontainerFile, Egress, Git, GitMode, Profile as SandboxProfile, Provider, ProviderKind, Proxy,
    ProxyNetwork, ProxyTransport, Sandbox, SandboxNetwork, Worker, Worktree, WorktreeMode,
};
pub use self::toolset::Toolset;
pub use self::workspace::{Preload, RunCode, TimeoutAction, Workspace, WorkspaceMode};
use crate::arg_types::Seconds;

table! {
    /// The whole file. Missing keys have the default of `standard`, or that of `strict` if the file selects it.
    Config {
        /// The preset of the defaults, and how strictly containers are isolated.
        policy: Preset = Preset::Standard,
        /// The engine that creates containers.
        engine: Engine = Engine::Auto,
        /// The engine's program; default: found in the usual places.
        engine_path: Option<PathBuf>,
        /// The engine's address; default: its local endpoint.
        engine_host: Option<String>,
        /// The configuration of `ssh` for an engine on another host; default: the user's own.
        engine_ssh_config: Option<PathBuf>,
        /// An engine that does not listen on a local socket may be used.
        allow_remote_engine: bool,
        /// The embedded engine's directory of images and containers; default: one of the system, or of the user.
        engine_data: Option<PathBuf>,
        /// The runtime of the embedded engine's containers.
        engine_runtime: EngineRuntime = EngineRuntime::Builtin,
        /// Whether read requests use the engine's API.
        engine_api: EngineApi = EngineApi::Auto,
        /// Whether containers get a guest.
        guest: Guest = Guest::Auto,
        /// Prefix of labels and names.
        label_namespace: LabelNamespace = LabelNamespace::parse("coracle").expect("the word follows the grammar"),
        /// Directory of records.
        state_dir: Option<PathBuf>,
        /// Default image of a container.
        default_image: ImageRef = ImageRef::parse("ubuntu:24.04").expect("the reference follows the grammar"),
        /// Maximum number of containers per session.
        max_containers: u32 = 10,
        /// Maximum number of containers of all sessions.
        max_containers_total: u32 = 50,
        /// The cluster of `engine = "kubernetes"`.
        kubernetes: Kubernetes,
        /// The machine of an agent that names no container.
        machine: Machine,
        /// Answers over the Model Context Protocol.
        mcp: Mcp,
        /// Directories of the host.
        workspace: Workspace,
        /// Snippets.
        run_code: RunCode,
        /// Containers of workflows.
        sandbox: Sandbox,
        /// The proxy for their outbound access.
        proxy: Proxy,
        /// The agent loop in them.
        worker: Worker,
        /// Which data of the user is passed to containers.
        auto_passthrough: AutoPassthrough,
        /// The user's dotfiles.
        dotfiles: Dotfiles,
        /// Limits and grants.
        security: Security,
        /// Sources of base images.
        images: Images,
        /// Purposes, added or changed.
        profiles: BTreeMap<Purpose, ProfileSettings>,
        /// Commands.
        exec: Exec,
        /// Background jobs.
        jobs: Jobs,
        /// Setup commands.
        setup: Setup,
        /// Copies.
        copy: Copy,
        /// Stacks of services.
        compose: Compose,
        /// How long data is retained.
        lifecycle: Lifecycle,
        /// The log.
        log: Log,
    }
}

impl Config {
    /// Whether no process is root inside, and nothing of the host is reachable.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.policy == Preset::Strict
    }

    /// Whether host directories are copied into containers: a cluster cannot mount them.
    #[must_use]
    pub fn copies_directories(&self) -> bool {
        self.workspace.mode == WorkspaceMode::Copy || self.engine == Engine::Kubernetes
    }
}

table! {
    /// `security.*`
    Security {
        /// Default memory limit of a container.
        memory_limit: ByteSize = ByteSize::mib(4096),
        /// Maximum memory limit.
        memory_max: ByteSize = ByteSize::mib(16384),
        /// Default limit of processes and threads.
        pids_limit: u32 = 1024,
        /// Maximum limit of processes and threads.
        pids_max: u32 = 4096,
        /// Default number of cores; 0 means all.
        cpus: f64 = 0.0,
        /// Maximum number of cores; 0 means no limit.
        cpus_max: f64 = 0.0,
        /// Whether containers may share the host's network.
        allow_host_network: bool,
        /// Whether the name `host-gateway` may be used.
        allow_host_gateway: bool = true,
        /// Whether commands may run as root inside.
        allow_root: bool = true,
        /// Whether GPUs may be passed.
        allow_gpu: bool,
        /// Whether the user's git configuration may be passed.
        allow_git: bool = true,
        /// Whether GitHub's token may be passed.
        allow_gh: bool = true,
        /// Whether SSH keys may be passed.
        allow_ssh: bool,
        /// Whether every variable of the host may be passed.
        allow_env_all: bool,
        /// What a session may do to containers of another.
        cross_session: CrossSession = CrossSession::Use,
        /// Whether a snapshot is allowed while a file contains a secret.
        snapshot_secrets: SnapshotSecrets = SnapshotSecrets::Refuse,
        /// Allowed images.
        images: Vec<String> = vec!["*".to_owned()],
        /// The lowest host port that may be published.
        port_min: u16 = 1024,
        /// The address that ports are published on.
        ports_bind: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST),
        /// Whether a network with outbound access may be used.
        network: NetworkGrant = NetworkGrant::Open,
        /// Whether a container may be removed without saving its work.
        allow_discard: bool,
    }

    /// `mcp.*`
    Mcp {
        /// Answers of the toolset `agent` have their data in addition to the text. Several clients show a model only
        /// the data.
        structured_content: bool,
        /// A client over HTTP is gone when it sends no request and listens on no stream for so long.
        idle: Seconds = Seconds::new(2 * 3600),
    }

    /// `images.*`
    Images {
        /// When to pull an image.
        pull: Pull = Pull::Missing,
        /// Timeout of a pull.
        pull_timeout: Seconds = Seconds::new(15 * 60),
        /// Timeout of building an image.
        build_timeout: Seconds = Seconds::new(30 * 60),
        /// Timeout of a registry's first answer.
        probe_timeout: Seconds = Seconds::new(5),
        /// What to do if no registry answers.
        fallback: Fallback = Fallback::Bootstrap,
        /// Mirror for building a base.
        debian_mirror: Option<String>,
        /// Release of a base.
        debian_suite: Option<String>,
        /// Age at which a cached image is rebuilt.
        cache_max_age: Seconds = Seconds::new(7 * 86400),
        /// Maximum size of all cached images; the least recently used are removed first.
        cache_max_bytes: ByteSize = ByteSize::mib(20 << 10),
        /// Whether repositories may be cloned by plain http, and from private addresses.
        git_allow_private: bool,
    }

    /// `exec.*`
    Exec {
        /// Default time limit of a command.
        timeout: Seconds = Seconds::new(300),
        /// Maximum time limit of a command.
        timeout_max: Seconds = Seconds::new(3600),
        /// Time without output after which a command is killed; 0 disables this.
        silence_timeout: Seconds = Seconds::new(0),
        /// Time between TERM and KILL.
        grace: Seconds = Seconds::new(2),
        /// Size of each stream in an answer.
        inline: ByteSize = ByteSize::mib(1),
        /// Size of each stream in an answer over MCP.
        inline_mcp: ByteSize = ByteSize(32 << 10),
        /// Retained output of each command in a container.
        keep_bytes: ByteSize = ByteSize::mib(64),
        /// Retained output of all commands in a container.
        keep_total: ByteSize = ByteSize::mib(512),
        /// How long output is retained after the end of a command.
        keep_for: Seconds = Seconds::new(3600),
        /// Maximum number of concurrent commands.
        max_parallel: u32 = 64,
        /// Whether live secrets are redacted from the output of commands and jobs.
        redact: bool,
    }

    /// `jobs.*`
    Jobs {
        /// Maximum number of running jobs in a container.
        max_running: u32 = 32,
        /// The longest that one call waits for a job.
        wait_max: Seconds = Seconds::new(600),
        /// Number of lines in the answer of a poll.
        poll_lines: u32 = 100,
    }

    /// `setup.*`
    Setup {
        /// Timeout of one setup command.
        timeout: Seconds = Seconds::new(300),
        /// Timeout of one clone.
        clone_timeout: Seconds = Seconds::new(120),
        /// Timeout of all together.
        total: Seconds = Seconds::new(30 * 60),
    }

    /// `copy.*`
    Copy {
        /// Maximum size of one copy.
        max_bytes: ByteSize = ByteSize::mib(2048),
        /// Maximum number of files, directories and links in one copy.
        max_entries: u64 = 100_000,
    }

    /// `compose.*`
    Compose {
        /// Whether stacks may be brought up.
        enabled: bool = true,
        /// Time until all services of a stack have to be ready.
        timeout: Seconds = Seconds::new(300),
        /// Maximum number of containers in one stack.
        max_services: u32 = 20,
        /// Whether services may be built.
        allow_build: bool,
    }

    /// `lifecycle.*`
    Lifecycle {
        /// How long an unused container of a named session exists.
        idle: Seconds = Seconds::new(86400),
        /// How long a container exists whose MCP process ended without its session's end.
        orphan_grace: Seconds = Seconds::new(15 * 60),
        /// Whether containers with running jobs outlive their session.
        keep_jobs: bool = true,
        /// How long they do, after the last call.
        keep_jobs_for: Seconds = Seconds::new(86400),
        /// How long a destroyed container stays on record.
        gone_for: Seconds = Seconds::new(7 * 86400),
        /// Maximum size of the saved work of one container.
        save_max: ByteSize = ByteSize::mib(512),
        /// How long saved work is retained.
        save_keep: Seconds = Seconds::new(14 * 86400),
    }
}

impl Images {
    /// When to pull an image without a call that decides it.
    #[must_use]
    pub fn pull_missing(&self) -> Pull {
        if self.pull == Pull::Never { Pull::Never } else { Pull::Missing }
    }
}

impl Lifecycle {
    /// How long containers and records exist.
    #[must_use]
    pub fn terms(&self) -> LeaseTerms {
        LeaseTerms {
            idle: self.idle.0,
            orphan_grace: self.orphan_grace.0,
            jobs: self.keep_jobs_for.0,
            gone_for: self.gone_for.0,
        }
    }
}

table! {
    /// `log.*`
    Log {
        /// What is written to standard error.
        level: Level,
    }
}
