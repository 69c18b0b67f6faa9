//! `workspace.*` and `run_code.*`: the person's directories, and the containers of a session.

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
        /// The working directory; the one we were started in when missing.
        root: Option<PathBuf>,
        /// How directories of the host come into containers.
        mode: WorkspaceMode = WorkspaceMode::Bind,
        /// Further directories that may be mounted and copied from and to.
        allow_roots: Vec<PathBuf>,
        /// Paths in a bind that are mounted read-only over it.
        protected: Vec<String> = default_protected(),
        /// Directories of the host that a session's workspace gets.
        mounts: Vec<HostMount>,
        /// Tools that an agent gets.
        toolsets: Vec<Toolset> = Toolset::DEFAULT.to_vec(),
        /// Image of a session's workspace.
        image: ImageRef = ImageRef::parse("python:3.12-bookworm").expect("the reference follows the grammar"),
        /// Memory of a workspace; no swap is added.
        memory: ByteSize = ByteSize::mib(1024),
        /// Cores of a workspace.
        cpus: f64 = 1.0,
        /// Processes and threads of a workspace.
        pids: u32 = 256,
        /// What its commands reach.
        network: ProxyNetwork = ProxyNetwork::None,
        /// Names that they reach.
        egress: Egress,
        /// As much as a workspace should hold.
        max_bytes: ByteSize = ByteSize::mib(8 << 10),
        /// What every command of a workspace finds in its environment.
        env: BTreeMap<String, String>,
        /// An unused workspace is removed after so long; its files stay.
        idle: Seconds = Seconds::new(15 * 60),
        /// A container of a session goes after so long, with its volume; 0 for never.
        lifetime: Seconds = Seconds::new(8 * 60 * 60),
        /// The guest of a session's container ends it after so long without a request; 0 for never.
        lifeline: Seconds = Seconds::new(30 * 60),
        /// Which characters paths and patterns may have.
        path_charset: PathCharset = PathCharset::Ascii,
        /// How the keys of a command's environment are taken.
        env_key_case: EnvKeys = EnvKeys::Upper,
        /// A file that is there must have been read before it is changed.
        read_before_write: bool = true,
        /// Names of the shell tool.
        shell_names: Vec<String> = texts(&["shell_execute"]),
        /// Directories that are not searched for what a command changed.
        scan_exclude: Vec<String> = texts(&[".git", "node_modules", ".venv", "target", "__pycache__"]),
        /// The event log holds the beginning of what commands print.
        event_previews: bool = true,
    }
}

words! {
    /// How directories of the host come into containers.
    WorkspaceMode {
        /// They are there themselves.
        #[default]
        Bind,
        /// Their files are copied in, once.
        Copy,
    }
}

table! {
    /// `run_code.*`
    RunCode {
        /// Image that snippets run in; built when it is missing.
        image: ImageRef = ImageRef::parse("bun-runner-base:latest").expect("the reference follows the grammar"),
        /// Cores.
        cpus: f64 = 2.0,
        /// Memory; no swap is added.
        memory: ByteSize = ByteSize::mib(512),
        /// The longest that a snippet may take.
        max_timeout_ms: u64 = 120_000,
        /// What goes when a snippet took too long.
        timeout_action: TimeoutAction = TimeoutAction::Container,
        /// What snippets reach.
        network: ProxyNetwork = ProxyNetwork::None,
        /// Names that they reach.
        egress: Egress,
        /// A program of the host that runs snippets, where one is wanted in place of a container.
        preload: Option<Preload>,
    }
}

/// `run_code.preload`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Preload {
    /// The program and its arguments; the snippet's file comes last.
    pub command: Vec<String>,
    /// What it runs.
    #[serde(default = "Preload::languages")]
    pub languages: Vec<Language>,
}

impl Preload {
    fn languages() -> Vec<Language> {
        vec![Language::TypeScript, Language::JavaScript]
    }

    /// What is wrong with it.
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
    /// What goes when a snippet took too long.
    TimeoutAction {
        /// Its container.
        #[default]
        Container,
        /// Its processes.
        Tree,
    }
}
