//! `workspace.*` and `run_code.*`: the user's directories, and the containers of a session.

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_lifecycle::default_protected;
use coracle_types::{ByteSize, ImageRef};
use coracle_workspace::{EnvKeys, Language, PathCharset};
use serde::Deserialize;

use super::macros::{table, words};
use super::{Egress, HostMount, ProxyNetwork};
use crate::arg_types::Seconds;
use crate::config::Toolset;

table! {
    /// `workspace.*`
    Workspace {
        /// the working directory
        root: Option<PathBuf> => "where `coracle` was started",
        /// more directories that may be bound and copied
        allow_roots: Vec<PathBuf>,
        /// `copy`: no directory of the host is bound; `mount_cwd` copies the working directory in, and mounts are
        /// refused (rule `mount.bind`)
        mode: WorkspaceMode = "bind" => "`\"bind\"`; `\"copy\"` if `engine_host` is another machine",
        /// paths that are read-only over a writable bind; replaces the list
        protected: Vec<String> = default_protected() => "see [security](security.md#protected-paths)",
        /// [toolsets](mcp.md#toolsets) of `coracle mcp`: `agent`, `classic`, `workspace`, `code`, `worktrees`
        toolsets: Vec<Toolset> = ["agent"],
        /// image of a session's [workspace](workspace.md)
        image: ImageRef = "python:3.12-bookworm",
        /// memory limit
        memory: ByteSize = "1g",
        /// cores
        cpus: f64 = 1,
        /// processes and threads
        pids: u32 = 256,
        /// size of its files; above it, results carry the warning `disk_full`
        max_bytes: ByteSize = "8g",
        /// [host directories in the workspace](workspace.md#host-directories): a list of `{host_path, mount_path,
        /// include_glob, exclude_glob, max_bytes, follow_symlinks, mode}`
        mounts: Vec<HostMount>,
        /// `proxy`: commands reach the names of `workspace.egress.allow`
        network: ProxyNetwork = "none",
        egress: Egress,
        /// variables of all commands
        env: BTreeMap<String, String>,
        /// an unused container is removed after this; its files stay
        idle: Seconds = "15m",
        /// container and volume are removed, and files saved, this long after the volume was created; 0 for never
        lifetime: Seconds = "8h",
        /// the guest stops a container without connections and processes after this; 0 for never
        lifeline: Seconds = "30m",
        /// `utf8`: paths may have any characters
        path_charset: PathCharset = "ascii",
        /// `preserve`: names of variables are not changed
        env_key_case: EnvKeys = "upper",
        /// an existing file must be read before it is changed
        read_before_write: bool = true,
        /// names of the shell tool; the other one is `podman_shell`
        shell_names: Vec<String> = ["shell_execute"],
        /// directories that are not scanned for changes by a command
        scan_exclude: Vec<String> = [".git", "node_modules", ".venv", "target", "__pycache__"],
        /// the event log has the beginning of the output of commands
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
        /// image of snippets; built if missing, and [pinned by id](workspace.md#snippets)
        image: ImageRef = "bun-runner-base:latest",
        /// cores
        cpus: f64 = 2,
        /// memory limit
        memory: ByteSize = "512m",
        /// `proxy`: snippets reach the names of `run_code.egress.allow`
        network: ProxyNetwork = "none",
        egress: Egress,
        /// longest time of a snippet
        max_timeout_ms: u64 = 120_000,
        /// what is ended if a snippet times out; `tree`: only its processes
        timeout_action: TimeoutAction = "container",
        /// a [program of the host](workspace.md#snippets-on-the-host) that runs snippets without isolation: `{command,
        /// languages}`
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
