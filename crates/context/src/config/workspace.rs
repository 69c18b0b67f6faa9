//! `workspace.*` and `run_code.*`: the user's directories, and the containers of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_lifecycle::default_protected;
use coracle_types::{ByteSize, ImageRef};
use coracle_workspace::{EnvKeys, Language, PathCharset};
use serde::Deserialize;

use super::macros::{table, texts, words};
use super::{Egress, HostMount, ProxyNetwork};
use crate::arg_types::Seconds;
use crate::config::Toolset;

table! {
    /// `workspace.*`
    Workspace {
        /// The working directory; default: the current one at the start.
        root: Option<PathBuf>,
        /// How host directories are provided in containers.
        mode: WorkspaceMode = WorkspaceMode::Bind,
        /// Further directories that may be mounted and copied from and to.
        allow_roots: Vec<PathBuf>,
        /// Paths in a bind mount that are mounted read-only over it.
        protected: Vec<String> = default_protected(),
        /// Host directories in a session's workspace.
        mounts: Vec<HostMount>,
        /// Toolsets of an agent.
        toolsets: Vec<Toolset> = Toolset::DEFAULT.to_vec(),
        /// Image of a session's workspace.
        image: ImageRef = ImageRef::parse("python:3.12-bookworm").expect("the reference follows the grammar"),
        /// Memory of a workspace; no swap is added.
        memory: ByteSize = ByteSize::mib(1024),
        /// Cores of a workspace.
        cpus: f64 = 1.0,
        /// Processes and threads of a workspace.
        pids: u32 = 256,
        /// What its commands can reach.
        network: ProxyNetwork = ProxyNetwork::None,
        /// Names that they can reach.
        egress: Egress,
        /// Recommended maximum size of a workspace.
        max_bytes: ByteSize = ByteSize::mib(8 << 10),
        /// Variables of every command in a workspace.
        env: BTreeMap<String, String>,
        /// Time after which an unused workspace is removed; its files stay.
        idle: Seconds = Seconds::new(15 * 60),
        /// Time after which a container of a session is removed with its volume; 0 disables this.
        lifetime: Seconds = Seconds::new(8 * 60 * 60),
        /// Time without a request after which the guest ends a session's container; 0 disables this.
        lifeline: Seconds = Seconds::new(30 * 60),
        /// The allowed characters in paths and patterns.
        path_charset: PathCharset = PathCharset::Ascii,
        /// How the keys of a command's environment are converted.
        env_key_case: EnvKeys = EnvKeys::Upper,
        /// Whether an existing file has to be read before it is changed.
        read_before_write: bool = true,
        /// Names of the shell tool.
        shell_names: Vec<String> = texts(&["shell_execute"]),
        /// Directories that are not scanned for changes of a command.
        scan_exclude: Vec<String> = texts(&[".git", "node_modules", ".venv", "target", "__pycache__"]),
        /// Whether the event log contains the start of commands' output.
        event_previews: bool = true,
    }
}

words! {
    /// How host directories are provided in containers.
    WorkspaceMode {
        /// They are bind-mounted.
        #[default]
        Bind,
        /// Their files are copied, once.
        Copy,
    }
}

table! {
    /// `run_code.*`
    RunCode {
        /// Image for snippets; built if it is missing.
        image: ImageRef = ImageRef::parse("bun-runner-base:latest").expect("the reference follows the grammar"),
        /// Cores.
        cpus: f64 = 2.0,
        /// Memory; no swap is added.
        memory: ByteSize = ByteSize::mib(512),
        /// The longest that a snippet may take.
        max_timeout_ms: u64 = 120_000,
        /// What is ended when a snippet takes too long.
        timeout_action: TimeoutAction = TimeoutAction::Container,
        /// What snippets can reach.
        network: ProxyNetwork = ProxyNetwork::None,
        /// Names that they can reach.
        egress: Egress,
        /// A program on the host that runs snippets, instead of a container.
        preload: Option<Preload>,
    }
}

/// `run_code.preload`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preload {
    /// The program and its arguments; the snippet's file is the last one.
    pub command: Vec<String>,
    /// The languages that it runs.
    #[serde(default = "Preload::languages")]
    pub languages: Vec<Language>,
}

impl Preload {
    fn languages() -> Vec<Language> {
        vec![Language::TypeScript, Language::JavaScript]
    }

    /// Returns what is invalid.
    pub(super) fn fault(&self) -> Option<&'static str> {
        let program = self.command.first().map(String::as_str).unwrap_or_default();
        let placed = program.starts_with('/') || program.starts_with("~/") || !program.contains('/');
        match () {
            () if program.is_empty() => Some("`command` begins with a program"),
            () if !placed => Some("the program of `command` is a name, or a path that is absolute or begins with `~/`"),
            () if self.command.iter().any(|it| it.contains('\0')) => Some("`command` has a NUL"),
            () if self.languages.is_empty() => Some("`languages` names at least one"),
            () => None,
        }
    }
}

words! {
    /// What is ended when a snippet takes too long.
    TimeoutAction {
        /// Its container.
        #[default]
        Container,
        /// Its processes.
        Tree,
    }
}
