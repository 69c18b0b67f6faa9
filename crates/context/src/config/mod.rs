//! The configuration file: the user's settings.
//!
//! Every key has an effect. No setting is ever read from the workspace, and an unknown key is an error.

mod added_rule;
mod enums;
mod errors;
mod file;
mod keys;
mod kubernetes;
mod machine;
mod macros;
mod mounts;
mod passthrough;
mod remote;
mod sandbox;
mod secrets;
mod strict;
mod toolset;
mod workspace;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

pub use coracle_images::Pull;
use coracle_images::profile::{self, ProfileSettings, Purpose};
use coracle_lifecycle::LeaseTerms;
use coracle_types::{ByteSize, ImageRef, LabelNamespace};

pub use self::added_rule::with_rule;
pub use self::enums::{
    CrossSession, Engine, EngineApi, EngineRuntime, Fallback, Guest, Level, NetworkGrant, Preset, SnapshotSecrets,
    StepCheckpoints,
};
pub use self::keys::Key;
use self::keys::Table;
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
pub use self::secrets::SecretSource;
pub use self::toolset::Toolset;
pub use self::workspace::{Preload, RunCode, TimeoutAction, Workspace, WorkspaceMode};
use crate::arg_types::Seconds;

table! {
    /// The whole file. Missing keys have the default of `standard`, or that of `strict` if the file selects it.
    Config {
        /// the preset: a policy with its own defaults; [`strict`](#strict) forbids root
        policy: Preset = "standard",
        /// `podman`, `docker`, `embedded` ([on Linux 6.8 or later](engines.md#the-embedded-engine)), `container`
        /// (Apple's, [not yet confirmed on a Mac](engines.md#apples-container)), [`kubernetes`](kubernetes.md) (only in
        /// a program built with `--features kubernetes`); `auto`: [the embedded engine, or the one that has your
        /// containers](engines.md)
        engine: Engine = "auto",
        /// images, containers and volumes of the embedded engine; never mounted into a container
        engine_data: Option<PathBuf>
            => "`/var/lib/coracle/engine` for root, else `$XDG_DATA_HOME/coracle/engine` (`~/.local/share/coracle/engine`)",
        /// what starts the processes of the embedded engine: `builtin`, `crun`, `runc`, or `runsc`
        /// ([gVisor](engines.md#oci-runtimes)); all but the first need root
        engine_runtime: EngineRuntime = "builtin",
        /// the engine's program
        engine_path: Option<PathBuf> => "found",
        /// the engine's endpoint; `ssh://user@host` is [another
        /// machine](engines.md#docker-or-podman-on-another-machine)
        engine_host: Option<String> => "the local one",
        /// the configuration file of `ssh` for it
        engine_ssh_config: Option<PathBuf> => "that of `ssh`",
        /// `engine_host` may be another machine
        allow_remote_engine: bool = false,
        /// `auto`: reads use [the engine's API](engines.md#reads-over-the-api) if its socket answers; `never`: its
        /// program
        engine_api: EngineApi = "auto",
        /// `never`: no container gets a [guest](architecture/walks.md#containers-without-a-guest)
        guest: Guest = "auto",
        /// prefix of labels, names and state; two namespaces do not see each other
        label_namespace: LabelNamespace = "coracle",
        /// where records are stored: a directory that is new, empty (mode 0700) or Coracle's; others are refused
        state_dir: Option<PathBuf> => "see [architecture](architecture/state-directory.md)",
        /// image of a container if the call names none
        default_image: ImageRef = "ubuntu:24.04",
        /// containers of one session
        max_containers: u32 = 10,
        /// containers of all sessions
        max_containers_total: u32 = 50,
        kubernetes: Kubernetes,
        workspace: Workspace,
        copy: Copy,
        machine: Machine,
        mcp: Mcp,
        run_code: RunCode,
        sandbox: Sandbox,
        proxy: Proxy,
        secrets: BTreeMap<String, SecretSource>,
        worker: Worker,
        auto_passthrough: AutoPassthrough,
        dotfiles: Dotfiles,
        profiles: BTreeMap<Purpose, ProfileSettings>,
        security: Security,
        images: Images,
        exec: Exec,
        checkpoints: CheckpointLimits,
        jobs: Jobs,
        setup: Setup,
        compose: Compose,
        lifecycle: Lifecycle,
        log: Log,
    }
}

impl Config {
    /// Returns all keys.
    #[must_use]
    pub fn keys() -> Vec<Key> {
        let mut keys = Vec::new();
        Self::add_keys("", &mut keys);
        keys
    }

    /// Lists all purposes, built in or configured.
    #[must_use]
    pub fn purposes(&self) -> Vec<Purpose> {
        profile::known(&self.profiles)
    }

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
        /// default of `memory_limit`
        memory_limit: ByteSize = "4g",
        /// ceiling of `memory_limit`
        memory_max: ByteSize = "16g",
        /// default of `pids_limit`
        pids_limit: u32 = 1024,
        /// ceiling of `pids_limit`
        pids_max: u32 = 4096,
        /// default of `cpu_limit`; 0 is all cores
        cpus: f64 = 0,
        /// ceiling of `cpu_limit`; 0 is none
        cpus_max: f64 = 0,
        /// `proxy`: all containers reach only [allowed hosts](proxy.md#egress-rules); `none`: nothing
        network: NetworkGrant = "open",
        egress: Egress,
        /// `network: "host"`
        allow_host_network: bool = false,
        /// the name `host-gateway` in `add_hosts`
        allow_host_gateway: bool = true,
        /// lowest host port
        port_min: u16 = 1024,
        /// address that ports open on
        ports_bind: IpAddr = "127.0.0.1",
        /// `as_root`, `user: "root"`, setup commands
        allow_root: bool = true,
        /// `gpu`
        allow_gpu: bool = false,
        /// your git identity may go in
        allow_git: bool = true,
        /// your GitHub token may go in
        allow_gh: bool = true,
        /// your ssh keys may go in
        allow_ssh: bool = false,
        /// `env_passthrough: "all"`
        allow_env_all: bool = false,
        /// `discard`: an agent may remove a container without saving its work
        allow_discard: bool = false,
        /// patterns of images that may be named
        images: Vec<String> = ["*"],
        /// what a session may do with containers of another: `use`, `all`, `none`; the command line has `all`
        cross_session: CrossSession = "use",
        /// `warn`: a snapshot is created even if a file contains a secret of the host
        snapshot_secrets: SnapshotSecrets = "refuse",
    }

    /// `mcp.*`
    Mcp {
        /// answers of the toolset `agent` also have `structuredContent`, which [costs tokens](mcp.md#results)
        structured_content: bool = false,
        /// the session of an [HTTP client](mcp.md#http-for-several-clients) ends after this time without a request,
        /// running call or open stream
        idle: Seconds = "2h",
    }

    /// `images.*`
    Images {
        /// `missing`, `always`, `never`; `never` also bounds the argument `pull`, images of sessions, sandboxes and
        /// stacks, and features of `devcontainer.json`
        pull: Pull = "missing",
        /// time for a pull
        pull_timeout: Seconds = "15m",
        /// time for building an image
        build_timeout: Seconds = "30m",
        /// time for a registry's first answer; 0 pulls without a probe, such as for an engine with a mirror
        probe_timeout: Seconds = "5s",
        /// an older cached image is rebuilt
        cache_max_age: Seconds = "7d",
        /// size of all cached images
        cache_max_bytes: ByteSize = "20g",
        /// clone over plain `http` and from private addresses
        git_allow_private: bool = false,
        /// `fail`: do not build a base when no registry answers
        fallback: Fallback = "bootstrap",
        /// mirror for such a base
        debian_mirror: Option<String> => "that of a Debian host",
        /// its release
        debian_suite: Option<String> => "that of a Debian host",
    }

    /// `checkpoints.*`
    CheckpointLimits {
        /// `always`: each call that may change the files of a container is [a step](undo.md#steps) that can be undone; `auto`:
        /// where the file system shares content between files (Btrfs, XFS), so that a step costs no copy; `off`: only
        /// `checkpoint` saves them
        steps: StepCheckpoints = "auto",
        /// bytes that a step may copy on a file system that cannot share content between files
        max_copied: ByteSize = "256m",
        /// [checkpoints](undo.md) of a container; the oldest ones are removed
        max_count: u32 = 100,
        /// disk space that past states of a container need, beside its current files
        max_bytes: ByteSize = "4g",
    }

    /// `exec.*`
    Exec {
        /// default time of a command; at a terminal `coracle exec` has no limit unless this or `--timeout` sets one
        timeout: Seconds = 300,
        /// ceiling of the time of a command
        timeout_max: Seconds = 3600,
        /// time without output after which a command is ended; 0 is off
        silence_timeout: Seconds = 0,
        /// seconds between TERM and KILL
        grace: Seconds = 2,
        /// output of each stream in an answer
        inline: ByteSize = "1m",
        /// the same over MCP
        inline_mcp: ByteSize = "32k",
        /// stored output of each command, at least 64k
        keep_bytes: ByteSize = "64m",
        /// stored output of all commands of a container, at least `keep_bytes`
        keep_total: ByteSize = "512m",
        /// how long output is stored after the command ends
        keep_for: Seconds = "1h",
        /// concurrent commands of one process
        max_parallel: u32 = 64,
        /// replaces live secrets in output by `[redacted:NAME]`; a command can evade it
        redact: bool = false,
    }

    /// `jobs.*`
    Jobs {
        /// concurrent jobs in a container; more are refused
        max_running: u32 = 32,
        /// ceiling of the `timeout` of `job_wait`, `shell_send` and `shell_expect`
        wait_max: Seconds = "10m",
        /// lines that `exec_poll` (by default) and `job_wait` return; 1 to 1000
        poll_lines: u32 = 100,
    }

    /// `setup.*`
    Setup {
        /// time of one setup command
        timeout: Seconds = 300,
        /// time of one clone
        clone_timeout: Seconds = 120,
        /// time of all provisioning
        total: Seconds = "30m",
    }

    /// `copy.*`
    Copy {
        /// bytes of one copy
        max_bytes: ByteSize = "2g",
        /// files, directories and links of one copy
        max_entries: u64 = 100_000,
    }

    /// `compose.*`
    Compose {
        /// [stacks](stacks.md) may be started
        enabled: bool = true,
        /// time until all services are healthy
        timeout: Seconds = 300,
        /// containers of one stack
        max_services: u32 = 20,
        /// services may be built
        allow_build: bool = false,
    }

    /// `lifecycle.*`
    Lifecycle {
        /// an unused container is removed after this, unless persistent
        idle: Seconds = "24h",
        /// the same for one whose MCP process was killed
        orphan_grace: Seconds = "15m",
        /// a container with running jobs outlives its MCP session
        keep_jobs: bool = true,
        /// how long running jobs preserve such a container after its last call
        keep_jobs_for: Seconds = "24h",
        /// how long removed and missing containers are remembered
        gone_for: Seconds = "7d",
        /// [saved work](saved-work.md) of one container, at least 1m
        save_max: ByteSize = "512m",
        /// saved work and [recorded requests](proxy.md#record) are deleted after this
        save_keep: Seconds = "14d",
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
        /// `off`, `error`, `warn`, `info`, `debug` or `trace`, on standard error; at the command line and for `coracle
        /// serve` `info` acts as `warn`
        level: Level = "info",
    }
}
