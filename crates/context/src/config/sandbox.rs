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
        /// Kinds of sandboxes.
        profiles: BTreeMap<ProfileName, Profile>,
        /// Those that an agent may name.
        agent_profiles: Vec<ProfileName> = vec![ProfileName::parse("default").expect("the word follows the grammar")],
        /// What commands inside reach beside the model and git.
        network: SandboxNetwork = SandboxNetwork::None,
        /// Names that they reach.
        egress: Egress,
        /// Git inside.
        git: Git,
        /// Worktrees.
        worktree: Worktree,
        /// Whether a repository's `devcontainer.json` says what its sandboxes are made of.
        devcontainer: DevcontainerFile = DevcontainerFile::Off,
        /// Features that are not in the repository, as patterns of their names.
        features_allow: Vec<String>,
        /// What commands of a build reach.
        build_network: BuildNetwork = BuildNetwork::Default,
        /// Variables of the host that a file may put in.
        local_env: Vec<String>,
        /// Directories beneath which a file's mounts may be written.
        writable_mounts: Vec<PathBuf>,
        /// Memory; no swap is added.
        memory: ByteSize = ByteSize::mib(4096),
        /// Cores.
        cpus: f64 = 2.0,
        /// Processes and threads.
        pids: u32 = 512,
        /// An unused sandbox is stopped after so long; all of it stays.
        idle: Seconds = Seconds::new(60 * 60),
        /// A sandbox goes after so long, with its volume; what is not pushed is saved before. 0 keeps it.
        lifetime: Seconds = Seconds::new(7 * 24 * 60 * 60),
    }
}

/// Profiles of coding agents, each named like its agent.
pub const AGENT_PROFILES: [&str; 5] = ["claude", "codex", "gemini", "goose", "opencode"];

impl Sandbox {
    /// A kind of sandbox; one that is not configured has the defaults.
    #[must_use]
    pub fn profile(&self, name: &ProfileName) -> Profile {
        let usual = || self.profiles.iter().find(|it| it.0.as_str() == "default").map(|it| it.1.clone());
        match (self.profiles.get(name), AGENT_PROFILES.contains(&name.as_str())) {
            (Some(own), _) => own.clone(),
            // It asks the models of the usual profile until it has one of its own.
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
        /// What its containers are made of; our own image when missing.
        image: Option<ImageRef>,
        /// The same as for all sandboxes, for these alone.
        devcontainer: Option<DevcontainerFile>,
        /// Workflows of the same word share a container; each has its own when missing.
        domain: Option<String>,
        /// Where its models are.
        provider: Option<Provider>,
        /// Tokens that a sandbox may use up.
        budget_tokens: Option<u64>,
    }
}

/// `sandbox.profiles.NAME.provider.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// What it speaks.
    #[serde(default)]
    pub kind: ProviderKind,
    /// Where.
    pub base_url: String,
    /// The variable of the host that holds its key.
    pub key_env: Option<String>,
    /// The file that holds it.
    pub key_file: Option<PathBuf>,
    /// The program that prints it.
    pub key_command: Option<Vec<String>>,
    /// Patterns of the models that may be asked.
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
    /// What a provider speaks.
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
        /// The names of `egress.allow` beside it.
        Proxy,
        /// Whatever this host reaches: nothing is kept in.
        Bridge,
    }
}

impl SandboxNetwork {
    /// What of it goes by the proxy.
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
        /// The names of `egress.allow` beside it.
        Proxy,
    }
}

/// `sandbox.devcontainer`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
pub enum DevcontainerFile {
    /// None is looked for: what a repository says makes no container and builds no image.
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
    /// A path is one of the repository, as git writes it.
    pub(super) fn fits(&self) -> bool {
        let Self::At(path) = self else { return true };
        path.ends_with(".json") && path.split('/').all(|it| !matches!(it, "" | "." | ".."))
    }
}

words! {
    /// `sandbox.build_network`
    BuildNetwork {
        /// What the engine gives, if `security.network` allows a way out.
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
        /// Hosts; that of the sandbox's own repository when these and `repos` are empty.
        hosts: Vec<String>,
        /// Repositories, as patterns of `host/owner/name`; the sandbox's own when empty.
        repos: Vec<String>,
        /// Refs that may be pushed from inside; none when empty.
        push: Vec<String>,
    }
}

words! {
    /// `sandbox.git.mode`
    GitMode {
        /// Through the proxy, which has the credential.
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
        /// What every branch begins with.
        branch_prefix: String = "coracle/".to_owned(),
        /// Objects of old repositories are not held against today's rules when false.
        fsck: bool = true,
        /// The limit of one git that reads or writes a whole repository.
        git_timeout: Seconds = Seconds::new(600),
        /// Bytes of the commits that one push or export takes out.
        bundle_max: ByteSize = ByteSize::mib(1024),
        /// Where the files of new sandboxes lie.
        mode: WorktreeMode,
        /// The directory, beneath one that may be used, that holds those of the mode `shared`.
        shared_root: Option<PathBuf>,
        /// A new worktree begins with what is not committed in a directory that it is taken from.
        include_uncommitted: bool,
    }
}

words! {
    /// `sandbox.worktree.mode`
    WorktreeMode {
        /// In a volume of the container.
        #[default]
        Inside,
        /// In a directory of this host.
        Shared,
    }
}

impl Worktree {
    /// Where files of new sandboxes lie on this host, if they do.
    #[must_use]
    pub fn shared(&self) -> Option<&Path> {
        self.shared_root.as_deref().filter(|_| self.mode == WorktreeMode::Shared)
    }
}

table! {
    /// `proxy.*`
    Proxy {
        /// Bytes of a request, in mebibytes.
        max_body_mb: u32 = 10,
        /// Every program inside may ask models.
        llm_for_agent: bool,
        /// How containers reach it.
        transport: ProxyTransport = ProxyTransport::Auto,
    }
}

words! {
    /// `proxy.transport`
    ProxyTransport {
        /// `unix` where the engine sees the files of this host, else `link`.
        #[default]
        Auto,
        /// By sockets in a directory that the container sees.
        Unix,
        /// By the link to its guest.
        Link,
        /// By a network of a sandbox's own. Where that leads to more of this host than the proxy, there is no sandbox.
        Tcp,
    }
}

table! {
    /// `worker.*`
    Worker {
        /// Calls of the model in a run.
        max_turns: u32 = 50,
        /// Time of a run.
        wall_seconds: u64 = 1800,
        /// Tokens of a run.
        max_total_tokens: Option<u64>,
        /// The model, when a call names none.
        model: Option<String>,
    }
}
