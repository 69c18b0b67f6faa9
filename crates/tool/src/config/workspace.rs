//! `workspace.*` and `run_code.*`: the person's directories, and the containers of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_lifecycle::DEFAULT_PROTECTED;
use coracle_runtime::{ByteSize, ImageRef};
use coracle_workspace::{EnvKeys, Language, PathCharset};
use serde::Deserialize;

use super::{Egress, HostMount, ProxyNetwork};
use crate::arg_types::Seconds;
use crate::config::Toolset;

/// `workspace.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workspace {
    /// The working directory; the one we were started in when missing.
    pub root: Option<PathBuf>,
    /// How directories of the host come into containers.
    pub mode: WorkspaceMode,
    /// Further directories that may be mounted and copied from and to.
    pub allow_roots: Vec<PathBuf>,
    /// Paths in a bind that are mounted read-only over it.
    pub protected: Vec<String>,
    /// Directories of the host that a session's workspace gets.
    pub mounts: Vec<HostMount>,
    /// Tools that an agent gets.
    pub toolsets: Vec<Toolset>,
    /// Image of a session's workspace.
    pub image: ImageRef,
    /// Memory of a workspace; no swap is added.
    pub memory: ByteSize,
    /// Cores of a workspace.
    pub cpus: f64,
    /// Processes and threads of a workspace.
    pub pids: u32,
    /// What its commands reach.
    pub network: ProxyNetwork,
    /// Names that they reach.
    pub egress: Egress,
    /// As much as a workspace should hold.
    pub max_bytes: ByteSize,
    /// What every command of a workspace finds in its environment.
    pub env: BTreeMap<String, String>,
    /// A workspace that nobody used for so long is taken away; its files stay.
    pub idle: Seconds,
    /// A container of a session goes after so long, with its volume; 0 for never.
    pub lifetime: Seconds,
    /// The guest of a session's container ends it when nobody asks for so long; 0 for never.
    pub lifeline: Seconds,
    /// Which characters paths and patterns may have.
    pub path_charset: PathCharset,
    /// How the keys of a command's environment are taken.
    pub env_key_case: EnvKeys,
    /// A file that is there must have been read before it is changed.
    pub read_before_write: bool,
    /// Names of the shell tool.
    pub shell_names: Vec<String>,
    /// Directories in which nobody looks for what a command changed.
    pub scan_exclude: Vec<String>,
    /// The event log holds the beginning of what commands print.
    pub event_previews: bool,
}

/// How directories of the host come into containers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WorkspaceMode {
    /// They are there themselves.
    #[default]
    Bind,
    /// Their files are copied in, once.
    Copy,
}

impl Default for Workspace {
    fn default() -> Self {
        let owned = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect();
        Self {
            root: None,
            mode: WorkspaceMode::Bind,
            allow_roots: Vec::new(),
            protected: owned(DEFAULT_PROTECTED),
            mounts: Vec::new(),
            toolsets: Toolset::ALL.to_vec(),
            image: ImageRef::parse("python:3.12-bookworm").expect("the reference follows the grammar"),
            memory: ByteSize::mib(1024),
            cpus: 1.0,
            pids: 256,
            network: ProxyNetwork::None,
            egress: Egress::default(),
            max_bytes: ByteSize::mib(8 << 10),
            env: BTreeMap::new(),
            idle: Seconds::new(15 * 60),
            lifetime: Seconds::new(8 * 60 * 60),
            lifeline: Seconds::new(30 * 60),
            path_charset: PathCharset::Ascii,
            env_key_case: EnvKeys::Upper,
            read_before_write: true,
            shell_names: owned(&["shell_execute"]),
            scan_exclude: owned(&[".git", "node_modules", ".venv", "target", "__pycache__"]),
            event_previews: true,
        }
    }
}

/// `run_code.*`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RunCode {
    /// Image that snippets run in; built when it is missing.
    pub image: ImageRef,
    /// Cores.
    pub cpus: f64,
    /// Memory; no swap is added.
    pub memory: ByteSize,
    /// The longest that a snippet may take.
    pub max_timeout_ms: u64,
    /// What goes when a snippet took too long.
    pub timeout_action: TimeoutAction,
    /// What snippets reach.
    pub network: ProxyNetwork,
    /// Names that they reach.
    pub egress: Egress,
    /// A program of the host that runs snippets, where one is wanted in place of a container.
    pub preload: Option<Preload>,
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

/// What goes when a snippet took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TimeoutAction {
    /// Its container.
    Container,
    /// Its processes.
    Tree,
}

impl Default for RunCode {
    fn default() -> Self {
        Self {
            image: ImageRef::parse("bun-runner-base:latest").expect("the reference follows the grammar"),
            cpus: 2.0,
            memory: ByteSize::mib(512),
            max_timeout_ms: 120_000,
            timeout_action: TimeoutAction::Container,
            network: ProxyNetwork::None,
            egress: Egress::default(),
            preload: None,
        }
    }
}
