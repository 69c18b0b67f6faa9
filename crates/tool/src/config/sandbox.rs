//! `sandbox.*`, `proxy.*` and `worker.*`: the containers of workflows (sandbox.md).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coracle_runtime::{ByteSize, ImageRef};
use coracle_sandbox::ProfileName;
use serde::Deserialize;

use crate::arg_types::Seconds;

/// `sandbox.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Sandbox {
    /// Kinds of sandboxes.
    pub profiles: BTreeMap<ProfileName, Profile>,
    /// Those that an agent may name.
    pub agent_profiles: Vec<ProfileName>,
    /// What commands inside reach beside the model and git.
    pub network: SandboxNetwork,
    /// Names that they reach.
    pub egress: Egress,
    /// Git inside.
    pub git: Git,
    /// Worktrees.
    pub worktree: Worktree,
    /// Whether a repository's `devcontainer.json` says what its sandboxes are made of.
    pub devcontainer: DevcontainerFile,
    /// Features that are not in the repository, as patterns of their names.
    pub features_allow: Vec<String>,
    /// What commands of a build reach.
    pub build_network: BuildNetwork,
    /// Variables of the host that a file may put in.
    pub local_env: Vec<String>,
    /// Directories beneath which a file's mounts may be written.
    pub writable_mounts: Vec<PathBuf>,
    /// Memory; no swap is added.
    pub memory: ByteSize,
    /// Cores.
    pub cpus: f64,
    /// Processes and threads.
    pub pids: u32,
    /// A sandbox that nobody used for so long is stopped; all of it stays.
    pub idle: Seconds,
    /// A sandbox goes after so long, with its volume; what is not pushed is saved before. 0 keeps it.
    pub lifetime: Seconds,
}

impl Default for Sandbox {
    fn default() -> Self {
        let default = ProfileName::parse("default").expect("the word follows the grammar");
        Self {
            profiles: BTreeMap::new(),
            agent_profiles: vec![default],
            network: SandboxNetwork::None,
            egress: Egress::default(),
            git: Git::default(),
            worktree: Worktree::default(),
            devcontainer: DevcontainerFile::Off,
            features_allow: Vec::new(),
            build_network: BuildNetwork::Default,
            local_env: Vec::new(),
            writable_mounts: Vec::new(),
            memory: ByteSize::mib(4096),
            cpus: 2.0,
            pids: 512,
            idle: Seconds::new(60 * 60),
            lifetime: Seconds::new(7 * 24 * 60 * 60),
        }
    }
}

impl Sandbox {
    /// A kind of sandbox; one that is not configured has the defaults.
    #[must_use]
    pub fn profile(&self, name: &ProfileName) -> Profile {
        self.profiles.get(name).cloned().unwrap_or_default()
    }
}

/// `sandbox.profiles.NAME.*`
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Profile {
    /// What its containers are made of; our own image when missing.
    pub image: Option<ImageRef>,
    /// The same as for all sandboxes, for these alone.
    pub devcontainer: Option<DevcontainerFile>,
    /// Workflows of the same word share a container; each has its own when missing.
    pub domain: Option<String>,
    /// Where its models are.
    pub provider: Option<Provider>,
    /// Tokens that a sandbox may use up.
    pub budget_tokens: Option<u64>,
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

/// What a provider speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProviderKind {
    /// `OpenAI`'s chat completions, as most do.
    #[default]
    Openai,
    /// Anthropic's messages.
    Anthropic,
}

/// `sandbox.network`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SandboxNetwork {
    /// Nothing.
    None,
    /// The names of `egress.allow` beside it.
    Proxy,
    /// Whatever this host reaches: nothing is kept in.
    Bridge,
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

/// `workspace.network`, `run_code.network`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyNetwork {
    /// Nothing.
    None,
    /// The names of `egress.allow` beside it.
    Proxy,
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

/// `sandbox.build_network`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum BuildNetwork {
    /// What the engine gives, if `security.network` allows a way out.
    #[default]
    Default,
    /// Nothing.
    None,
}

/// `sandbox.egress.*`, `workspace.egress.*`, `run_code.egress.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Egress {
    /// Names, patterns of one label, addresses, presets.
    pub allow: Vec<String>,
}

/// `sandbox.git.*`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Git {
    /// How git inside reaches repositories.
    pub mode: GitMode,
    /// Hosts; that of the sandbox's own repository when these and `repos` are empty.
    pub hosts: Vec<String>,
    /// Repositories, as patterns of `host/owner/name`; the sandbox's own when empty.
    pub repos: Vec<String>,
    /// Refs that may be pushed from inside; none when empty.
    pub push: Vec<String>,
}

/// `sandbox.git.mode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GitMode {
    /// Through the proxy, which has the credential.
    #[default]
    Proxy,
    /// With the credential itself.
    Credential,
    /// Not at all.
    Off,
}

/// `sandbox.worktree.*`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worktree {
    /// What every branch begins with.
    pub branch_prefix: String,
    /// Objects of old repositories are not held against today's rules when false.
    pub fsck: bool,
    /// Where the files of new sandboxes lie.
    pub mode: WorktreeMode,
    /// The directory, beneath one that may be used, that holds those of the mode `shared`.
    pub shared_root: Option<PathBuf>,
    /// A new worktree begins with what is not committed in a directory that it is taken from.
    pub include_uncommitted: bool,
}

/// `sandbox.worktree.mode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorktreeMode {
    /// In a volume of the container.
    #[default]
    Inside,
    /// In a directory of this host.
    Shared,
}

impl Worktree {
    /// Where files of new sandboxes lie on this host, if they do.
    #[must_use]
    pub fn shared(&self) -> Option<&Path> {
        self.shared_root.as_deref().filter(|_| self.mode == WorktreeMode::Shared)
    }
}

impl Default for Worktree {
    fn default() -> Self {
        let (mode, shared_root, include_uncommitted) = (WorktreeMode::Inside, None, false);
        Self { branch_prefix: "coracle/".to_owned(), fsck: true, mode, shared_root, include_uncommitted }
    }
}

/// `proxy.*`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Proxy {
    /// Bytes of a request, in mebibytes.
    pub max_body_mb: u32,
    /// Every program inside may ask models.
    pub llm_for_agent: bool,
    /// How containers reach it.
    pub transport: ProxyTransport,
}

/// `proxy.transport`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ProxyTransport {
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

impl Default for Proxy {
    fn default() -> Self {
        Self { max_body_mb: 10, llm_for_agent: false, transport: ProxyTransport::Auto }
    }
}

/// `worker.*`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Worker {
    /// Calls of the model in a run.
    pub max_turns: u32,
    /// Time of a run.
    pub wall_seconds: u64,
    /// Tokens of a run.
    pub max_total_tokens: Option<u64>,
    /// The model, when a call names none.
    pub model: Option<String>,
}

impl Default for Worker {
    fn default() -> Self {
        Self { max_turns: 50, wall_seconds: 1800, max_total_tokens: None, model: None }
    }
}
