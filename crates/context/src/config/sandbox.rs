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
        /// Profiles of sandboxes.
        profiles: BTreeMap<ProfileName, Profile>,
        /// Profiles that an agent may name.
        agent_profiles: Vec<ProfileName> = vec![ProfileName::parse("default").expect("the word follows the grammar")],
        /// What commands inside can reach besides models and git.
        network: SandboxNetwork = SandboxNetwork::None,
        /// Names that they can reach.
        egress: Egress,
        /// Git inside.
        git: Git,
        /// Worktrees.
        worktree: Worktree,
        /// Whether a repository's `devcontainer.json` defines its sandboxes.
        devcontainer: DevcontainerFile = DevcontainerFile::Off,
        /// Features that are not in the repository, as patterns of their names.
        features_allow: Vec<String>,
        /// The network of a build.
        build_network: BuildNetwork = BuildNetwork::Default,
        /// Variables of the host that a file may use.
        local_env: Vec<String>,
        /// Directories below which a file's mounts may be writable.
        writable_mounts: Vec<PathBuf>,
        /// Memory; no swap is added.
        memory: ByteSize = ByteSize::mib(4096),
        /// Cores.
        cpus: f64 = 2.0,
        /// Processes and threads.
        pids: u32 = 512,
        /// Time after which an unused sandbox is stopped; nothing is removed.
        idle: Seconds = Seconds::new(60 * 60),
        /// Time after which a sandbox is removed with its volume; unpushed work is saved before. 0 disables this.
        lifetime: Seconds = Seconds::new(7 * 24 * 60 * 60),
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
        /// Image of its containers; default: Coracle's own.
        image: Option<ImageRef>,
        /// Overrides the setting for all sandboxes.
        devcontainer: Option<DevcontainerFile>,
        /// Workflows with the same domain share a container; default: each has its own.
        domain: Option<String>,
        /// Provider of models.
        provider: Option<Provider>,
        /// Maximum number of tokens per sandbox.
        budget_tokens: Option<u64>,
    }
}

/// `sandbox.profiles.NAME.provider.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Its API.
    #[serde(default)]
    pub kind: ProviderKind,
    /// Its URL.
    pub base_url: String,
    /// The host variable with its key.
    pub key_env: Option<String>,
    /// The file with its key.
    pub key_file: Option<PathBuf>,
    /// The program that prints its key.
    pub key_command: Option<Vec<String>>,
    /// Patterns of the allowed models.
    #[serde(default = "any_model")]
    pub models: Vec<String>,
    /// Headers of every request.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
}

fn any_model() -> Vec<String> {
    vec!["*".to_owned()]
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
    /// `sandbox.egress.*`, `workspace.egress.*`, `run_code.egress.*`
    Egress {
        /// Names, patterns of one label, addresses, presets.
        allow: Vec<String>,
    }

    /// `sandbox.git.*`
    Git {
        /// How git inside reaches repositories.
        mode: GitMode,
        /// Hosts; default, if `repos` is empty too: that of the sandbox's own repository.
        hosts: Vec<String>,
        /// Repositories, as patterns of `host/owner/name`; default: the sandbox's own.
        repos: Vec<String>,
        /// Refs that may be pushed from inside; default: none.
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
        /// Prefix of every branch.
        branch_prefix: String = "coracle/".to_owned(),
        /// Whether git checks objects by its current rules, which those of old repositories may violate.
        fsck: bool = true,
        /// Timeout of a git command that reads or writes a whole repository.
        git_timeout: Seconds = Seconds::new(600),
        /// Maximum size of the commits in one push or export.
        bundle_max: ByteSize = ByteSize::mib(1024),
        /// Where the files of new sandboxes are stored.
        mode: WorktreeMode,
        /// The directory, below an allowed one, for those of the mode `shared`.
        shared_root: Option<PathBuf>,
        /// Whether a new worktree starts with the uncommitted files of its source directory.
        include_uncommitted: bool,
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
        /// Maximum size of a request, in MiB.
        max_body_mb: u32 = 10,
        /// Whether every program inside may use models.
        llm_for_agent: bool,
        /// How containers reach the proxy.
        transport: ProxyTransport = ProxyTransport::Auto,
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
        /// Maximum number of model calls per run.
        max_turns: u32 = 50,
        /// Time limit of a run.
        wall_seconds: u64 = 1800,
        /// Token limit of a run.
        max_total_tokens: Option<u64>,
        /// The default model.
        model: Option<String>,
    }
}
