//! `sandbox.*`, `proxy.*` and `worker.*`: the containers of workflows (`docs/sandboxes.md`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coracle_types::{ByteSize, ImageRef, ProfileName};
use serde::Deserialize;

use super::macros::{table, words};
use crate::arg_types::Seconds;

table! {
    /// `sandbox.*`
    Sandbox {
        profiles: BTreeMap<ProfileName, Profile>,
        /// profiles that an agent may name
        agent_profiles: Vec<ProfileName> = ["default"],
        /// `proxy`: also the names of `sandbox.egress.allow`; `bridge`: [everything this host
        /// reaches](sandboxes.md#bridge-network), not with `git.mode = "credential"`
        network: SandboxNetwork = "none",
        egress: Egress,
        git: Git,
        worktree: Worktree,
        /// `auto`, or a path in the repository: a [devcontainer.json](devcontainer.md) defines the sandbox
        devcontainer: DevcontainerFile = "off",
        /// patterns of [features from a registry](devcontainer.md#features-from-a-registry)
        features_allow: Vec<String>,
        /// `none`: commands of such a build have no network
        build_network: BuildNetwork = "default",
        /// host variables that `${localEnv:NAME}` may use
        local_env: Vec<String>,
        /// directories below which a bind of such a file may be writable
        writable_mounts: Vec<PathBuf>,
        /// memory limit
        memory: ByteSize = "4g",
        /// cores
        cpus: f64 = 2,
        /// processes and threads
        pids: u32 = 512,
        /// an unused sandbox is stopped after this
        idle: Seconds = "1h",
        /// a sandbox is removed, and unpushed work saved, this long after its volume was created; 0 for never
        lifetime: Seconds = "7d",
    }
}

/// Profiles of coding agents, each with the name of its agent.
pub const AGENT_PROFILES: [&str; 5] = ["claude", "codex", "gemini", "goose", "opencode"];

impl Sandbox {
    /// Returns a profile; one that is not configured has the defaults.
    #[must_use]
    pub fn profile(&self, name: &ProfileName) -> Profile {
        let usual = || self.profiles.iter().find(|it| it.0.as_str() == "default").map(|it| it.1.clone());
        match (self.profiles.get(name), AGENT_PROFILES.contains(&name.as_str())) {
            (Some(own), _) => own.clone(),
            // Without its own provider, it uses that of the default profile.
            (None, true) => {
                let Profile { provider, budget_tokens, .. } = usual().unwrap_or_default();
                Profile { provider, budget_tokens, ..Profile::default() }
            }
            (None, false) => Profile::default(),
        }
    }
}

table! {
    /// `sandbox.profiles.NAME.*`
    Profile {
        /// image of [sandboxes](sandboxes.md) of this profile; must have git
        image: Option<ImageRef> => "built by Coracle",
        /// workflows with the same word share a sandbox
        domain: Option<String>,
        /// tokens that a sandbox may use, as counted by the proxy
        budget_tokens: Option<u64>,
        /// overrides `sandbox.devcontainer`
        devcontainer: Option<DevcontainerFile> => "that of `sandbox`",
        provider: Option<Provider>,
    }

    /// `sandbox.profiles.NAME.provider.*`
    Provider {
        /// API of the model provider: `openai`, `anthropic` or `google`
        kind: ProviderKind = "openai",
        /// address of the provider
        base_url: String => "required",
        /// host variable with the key; set at most one of the `key_…` keys
        key_env: Option<String>,
        /// file with the key
        key_file: Option<PathBuf>,
        /// program (absolute path) and arguments that print the key; the output is reused for a minute
        key_command: Option<Vec<String>>,
        /// patterns of models that may be used
        models: Vec<String> = ["*"],
        /// headers of every request
        headers: BTreeMap<String, String>,
    }
}

words! {
    /// The API of a provider.
    ProviderKind {
        /// `OpenAI`'s chat completions, as most do.
        #[default]
        Openai,
        /// Anthropic's messages.
        Anthropic,
        /// Google's `generateContent`.
        Google,
    }

    /// `sandbox.network`
    SandboxNetwork {
        /// Nothing.
        #[default]
        None,
        /// Also the names of `egress.allow`.
        Proxy,
        /// Everything that the host can reach.
        Bridge,
    }
}

impl SandboxNetwork {
    /// Returns the part that goes through the proxy.
    #[must_use]
    pub fn proxied(self) -> ProxyNetwork {
        match self {
            Self::Proxy => ProxyNetwork::Proxy,
            Self::None | Self::Bridge => ProxyNetwork::None,
        }
    }
}

words! {
    /// `workspace.network`, `run_code.network`
    ProxyNetwork {
        /// Nothing.
        #[default]
        None,
        /// Also the names of `egress.allow`.
        Proxy,
    }
}

/// `sandbox.devcontainer`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum DevcontainerFile {
    /// None is used: a repository does not affect containers or images.
    #[default]
    Off,
    /// The one in the usual place, if there is one.
    Auto,
    /// The one at that path in the repository.
    At(String),
}

impl From<String> for DevcontainerFile {
    fn from(text: String) -> Self {
        match text.as_str() {
            "off" => Self::Off,
            "auto" => Self::Auto,
            _ => Self::At(text),
        }
    }
}

impl DevcontainerFile {
    /// Whether a path is one in the repository, as git writes it.
    pub(super) fn fits(&self) -> bool {
        let Self::At(path) = self else { return true };
        path.ends_with(".json") && path.split('/').all(|it| !matches!(it, "" | "." | ".."))
    }
}

words! {
    /// `sandbox.build_network`
    BuildNetwork {
        /// The engine's default, if `security.network` allows outbound access.
        #[default]
        Default,
        /// Nothing.
        None,
    }
}

table! {
    /// `sandbox.egress.*`, `workspace.egress.*`, `run_code.egress.*`, `security.egress.*`
    Egress {
        /// [names](proxy.md#egress-rules) that are reached through the proxy
        allow: Vec<String>,
        /// how long a refused request [waits for your decision](proxy.md#approval); 0: not at all
        approval_timeout: Seconds = 0,
        /// [records](proxy.md#record) the requests of a container with their answers, within limits; the proxy ends TLS
        /// for all names
        record: bool = false,
    }

    /// `sandbox.git.*`
    Git {
        /// how git reaches remotes: `proxy`, `credential` or `off`
        mode: GitMode = "proxy",
        /// hosts that git reaches
        hosts: Vec<String> => "the sandbox's own",
        /// patterns of `host/owner/name` that git reaches
        repos: Vec<String> => "the sandbox's own",
        /// patterns of refs that may be pushed from inside
        push: Vec<String>,
    }
}

words! {
    /// `sandbox.git.mode`
    GitMode {
        /// Through the proxy, which adds the credential.
        #[default]
        Proxy,
        /// With the credential itself.
        Credential,
        /// Not at all.
        Off,
    }
}

table! {
    /// `sandbox.worktree.*`
    Worktree {
        /// prefix of branches
        branch_prefix: String = "coracle/",
        /// git checks objects by its rules
        fsck: bool = true,
        /// time limit of one git process on a whole repository, on the host and inside; also for `create --repo DIR`
        git_timeout: Seconds = 600,
        /// bytes of the commits of one push or export
        bundle_max: ByteSize = "1g",
        /// `shared`: files of new sandboxes are [in a host
        /// directory](worktrees.md#worktrees-in-a-directory-of-the-host)
        mode: WorktreeMode = "inside",
        /// that directory
        shared_root: Option<PathBuf>,
        /// a worktree of a directory starts with its uncommitted changes
        include_uncommitted: bool = false,
    }
}

words! {
    /// `sandbox.worktree.mode`
    WorktreeMode {
        /// In a volume of the container.
        #[default]
        Inside,
        /// In a directory of the host.
        Shared,
    }
}

impl Worktree {
    /// Returns the host directory for files of new sandboxes, if they are stored there.
    #[must_use]
    pub fn shared(&self) -> Option<&Path> {
        self.shared_root.as_deref().filter(|_| self.mode == WorktreeMode::Shared)
    }
}

table! {
    /// `proxy.*`
    Proxy {
        /// [how containers reach the proxy](proxy.md#transports): `unix`, `link`, or `tcp` for sandboxes
        transport: ProxyTransport = "auto",
        /// largest request in MiB
        max_body_mb: u32 = 10,
        /// every program inside may use models
        llm_for_agent: bool = false,
    }
}

words! {
    /// `proxy.transport`
    ProxyTransport {
        /// `unix` if the engine can mount files of the host, else `link`.
        #[default]
        Auto,
        /// By sockets in a directory that is mounted in the container.
        Unix,
        /// By the link to its guest.
        Link,
        /// By a private network. If more of the host than the proxy is reachable on it, no sandbox starts.
        Tcp,
    }
}

table! {
    /// `worker.*`
    Worker {
        /// model of a run if it names none
        model: Option<String>,
        /// model calls of a run
        max_turns: u32 = 50,
        /// time of a run
        wall_seconds: u64 = 1800,
        /// tokens of a run
        max_total_tokens: Option<u64>,
    }
}
