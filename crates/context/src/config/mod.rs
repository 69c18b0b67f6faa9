//! The configuration file: what the person decides.
//!
//! Every key here has an effect. Nothing is ever read from the workspace, and an unknown key is an error.

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
    /// The whole file. What is missing has the default of `standard`, or that of `strict` where the file says so.
    Config {
        /// The preset that the defaults come from, and how much is kept in.
        policy: Preset = Preset::Standard,
        /// Which engine makes containers.
        engine: Engine = Engine::Auto,
        /// The engine's program; found in the usual places when missing.
        engine_path: Option<PathBuf>,
        /// Where the engine listens; its local endpoint when missing.
        engine_host: Option<String>,
        /// The configuration of `ssh` for an engine on another machine; the person's own when missing.
        engine_ssh_config: Option<PathBuf>,
        /// An engine that does not listen on a local socket may be used.
        allow_remote_engine: bool,
        /// Where the embedded engine keeps images and containers; a directory of the system, or of the user, when missing.
        engine_data: Option<PathBuf>,
        /// What makes the containers of the embedded engine.
        engine_runtime: EngineRuntime = EngineRuntime::Builtin,
        /// Whether the engine is read over its API.
        engine_api: EngineApi = EngineApi::Auto,
        /// Whether containers get a guest.
        guest: Guest = Guest::Auto,
        /// First part of labels and names.
        label_namespace: LabelNamespace = LabelNamespace::parse("coracle").expect("the word follows the grammar"),
        /// Where records are kept.
        state_dir: Option<PathBuf>,
        /// Image of a container whose creator names none.
        default_image: ImageRef = ImageRef::parse("ubuntu:24.04").expect("the reference follows the grammar"),
        /// Containers of one session.
        max_containers: u32 = 10,
        /// Containers of all sessions.
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
        /// The way out of them.
        proxy: Proxy,
        /// The agent loop in them.
        worker: Worker,
        /// What of the person's goes into containers.
        auto_passthrough: AutoPassthrough,
        /// The person's dotfiles.
        dotfiles: Dotfiles,
        /// Ceilings and grants.
        security: Security,
        /// Where base images come from.
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
        /// How long things are remembered.
        lifecycle: Lifecycle,
        /// The log.
        log: Log,
    }
}

impl Config {
    /// No process is root inside, and nothing of the host is in reach.
    #[must_use]
    pub fn is_strict(&self) -> bool {
        self.policy == Preset::Strict
    }

    /// Directories of the host are copied into containers: a cluster sees none of them.
    #[must_use]
    pub fn copies_directories(&self) -> bool {
        self.workspace.mode == WorkspaceMode::Copy || self.engine == Engine::Kubernetes
    }
}

table! {
    /// `security.*`
    Security {
        /// Memory of a container whose creator names none.
        memory_limit: ByteSize = ByteSize::mib(4096),
        /// Ceiling of it.
        memory_max: ByteSize = ByteSize::mib(16384),
        /// Processes and threads of a container whose creator names none.
        pids_limit: u32 = 1024,
        /// Ceiling of it.
        pids_max: u32 = 4096,
        /// Cores of a container whose creator names none; 0 is all.
        cpus: f64 = 0.0,
        /// Ceiling of it; 0 is none.
        cpus_max: f64 = 0.0,
        /// The host's network may be shared.
        allow_host_network: bool,
        /// The name `host-gateway` may be used.
        allow_host_gateway: bool = true,
        /// Commands may run as root inside.
        allow_root: bool = true,
        /// GPUs may be given.
        allow_gpu: bool,
        /// The person's git configuration may be given.
        allow_git: bool = true,
        /// GitHub's token may be given.
        allow_gh: bool = true,
        /// Keys for ssh may be given.
        allow_ssh: bool,
        /// Every variable of the host may be given.
        allow_env_all: bool,
        /// What a session may do to containers of another.
        cross_session: CrossSession = CrossSession::Use,
        /// What becomes of a snapshot while a secret lies in a file.
        snapshot_secrets: SnapshotSecrets = SnapshotSecrets::Refuse,
        /// Images that may be named.
        images: Vec<String> = vec!["*".to_owned()],
        /// The lowest host port that may be published.
        port_min: u16 = 1024,
        /// The address that ports are published on.
        ports_bind: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST),
        /// Whether a network with a way out may be used.
        network: NetworkGrant = NetworkGrant::Open,
        /// A container may be removed without saving its work.
        allow_discard: bool,
    }

    /// `mcp.*`
    Mcp {
        /// Answers of the toolset `agent` have their data beside the text. Several clients show a model the data alone.
        structured_content: bool,
        /// A client over HTTP that sends no request and listens on no stream for so long is gone.
        idle: Seconds = Seconds::new(2 * 3600),
    }

    /// `images.*`
    Images {
        /// When to fetch an image from its registry.
        pull: Pull = Pull::Missing,
        /// Time for one pull.
        pull_timeout: Seconds = Seconds::new(15 * 60),
        /// Time for making an image.
        build_timeout: Seconds = Seconds::new(30 * 60),
        /// Time for finding out whether a registry answers.
        probe_timeout: Seconds = Seconds::new(5),
        /// What to do where no registry answers.
        fallback: Fallback = Fallback::Bootstrap,
        /// Where a base is made from.
        debian_mirror: Option<String>,
        /// Which release a base is made of.
        debian_suite: Option<String>,
        /// A cached image that is older is made anew.
        cache_max_age: Seconds = Seconds::new(7 * 86400),
        /// Cached images together; those that were not used for longest go first.
        cache_max_bytes: ByteSize = ByteSize::mib(20 << 10),
        /// Repositories may be cloned by plain http, and from private addresses.
        git_allow_private: bool,
    }

    /// `exec.*`
    Exec {
        /// Total time of a command whose caller names none.
        timeout: Seconds = Seconds::new(300),
        /// Ceiling of it.
        timeout_max: Seconds = Seconds::new(3600),
        /// Time without output after which a command is ended; 0 is off.
        silence_timeout: Seconds = Seconds::new(0),
        /// Time between TERM and KILL.
        grace: Seconds = Seconds::new(2),
        /// Output given inline, each stream.
        inline: ByteSize = ByteSize::mib(1),
        /// The same under MCP.
        inline_mcp: ByteSize = ByteSize(32 << 10),
        /// Output that a container keeps of each command.
        keep_bytes: ByteSize = ByteSize::mib(64),
        /// The same of all commands together.
        keep_total: ByteSize = ByteSize::mib(512),
        /// How long it is kept after the end of a command.
        keep_for: Seconds = Seconds::new(3600),
        /// Commands at once.
        max_parallel: u32 = 64,
        /// Live secrets are taken out of what commands and jobs print.
        redact: bool,
    }

    /// `jobs.*`
    Jobs {
        /// Jobs that run at once in a container.
        max_running: u32 = 32,
        /// The longest that one call waits for a job.
        wait_max: Seconds = Seconds::new(600),
        /// Lines that a poll gives.
        poll_lines: u32 = 100,
    }

    /// `setup.*`
    Setup {
        /// Time of one setup command.
        timeout: Seconds = Seconds::new(300),
        /// Time of one clone.
        clone_timeout: Seconds = Seconds::new(120),
        /// Time of all together.
        total: Seconds = Seconds::new(30 * 60),
    }

    /// `copy.*`
    Copy {
        /// Bytes of one copy.
        max_bytes: ByteSize = ByteSize::mib(2048),
        /// Files, directories and links of one copy.
        max_entries: u64 = 100_000,
    }

    /// `compose.*`
    Compose {
        /// Stacks may be brought up.
        enabled: bool = true,
        /// Time until all services of a stack are good.
        timeout: Seconds = Seconds::new(300),
        /// Containers of one stack.
        max_services: u32 = 20,
        /// Services may be built.
        allow_build: bool,
    }

    /// `lifecycle.*`
    Lifecycle {
        /// How long an unused container of a named session is kept.
        idle: Seconds = Seconds::new(86400),
        /// How long a container is kept whose MCP process ended without its session's end.
        orphan_grace: Seconds = Seconds::new(15 * 60),
        /// Containers with running jobs outlive their session.
        keep_jobs: bool = true,
        /// How long they do, after the last call.
        keep_jobs_for: Seconds = Seconds::new(86400),
        /// How long a destroyed container is remembered.
        gone_for: Seconds = Seconds::new(7 * 86400),
        /// What is saved of one container, at most.
        save_max: ByteSize = ByteSize::mib(512),
        /// How long what was saved is kept.
        save_keep: Seconds = Seconds::new(14 * 86400),
    }
}

impl Images {
    /// When an image is fetched that no call decides about.
    #[must_use]
    pub fn pull_missing(&self) -> Pull {
        if self.pull == Pull::Never { Pull::Never } else { Pull::Missing }
    }
}

impl Lifecycle {
    /// How long things are kept.
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
