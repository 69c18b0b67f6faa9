//! An engine on another host cannot mount directories of this one, so they are copied instead.

use serde_json::{Value, json};

use super::{Config, MountMode, WorkspaceMode, WorktreeMode};

impl Config {
    /// Whether the engine is, or may be, on another host: it does not listen on a local socket.
    #[must_use]
    pub fn has_remote_engine(&self) -> bool {
        self.engine_host.as_deref().is_some_and(|it| !it.starts_with("unix://"))
    }
}

/// The defaults that differ. The user's settings override them.
pub(super) fn defaults() -> Value {
    json!({ "workspace": { "mode": "copy" } })
}

/// Settings that need the engine to see this host's directories.
pub(super) fn faults(config: &Config) -> Vec<(&'static str, &'static str)> {
    let binds = |it: &&super::HostMount| it.mode == MountMode::Bind;
    let refused = [
        (
            config.workspace.mode == WorkspaceMode::Bind,
            "workspace.mode",
            "`bind` needs an engine on this machine: one at `engine_host` gets copies of directories",
        ),
        (
            config.workspace.mounts.iter().any(|it| binds(&it)),
            "workspace.mounts",
            "`mode = \"bind\"` needs an engine on this machine: one at `engine_host` gets copies of directories",
        ),
        (
            config.sandbox.worktree.mode == WorktreeMode::Shared,
            "sandbox.worktree.mode",
            "`shared` needs an engine on this machine, and `engine_host` names another",
        ),
    ];
    refused.into_iter().filter(|it| it.0).map(|(_, key, why)| (key, why)).collect()
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, WorkspaceMode};

    fn remote(more: &str) -> Result<WorkspaceMode, String> {
        let text = format!("engine = \"docker\"\nengine_host = \"ssh://me@there\"\n{more}");
        let failure = |it: crate::failure::Failure| it.details["key"].as_str().unwrap_or_default().to_owned();
        Config::read(&text, false).map(|it| it.workspace.mode).map_err(failure)
    }

    #[test]
    fn directories_are_copied_to_an_engine_on_another_host() {
        assert_eq!(remote(""), Ok(WorkspaceMode::Copy));
        assert_eq!(remote("workspace.mode = \"bind\""), Err("workspace.mode".to_owned()));
        let shared = "sandbox.worktree.mode = \"shared\"\nsandbox.worktree.shared_root = \"/srv\"";
        assert_eq!(remote(shared), Err("sandbox.worktree.mode".to_owned()));
        let mount = "[[workspace.mounts]]\nhost_path = \"/srv\"\nmode = \"bind\"";
        assert_eq!(remote(mount), Err("workspace.mounts".to_owned()));
    }

    #[test]
    fn an_engine_at_a_local_socket_is_on_this_host() {
        let config = Config::read("engine = \"docker\"\nengine_host = \"unix:///s\"", false).unwrap();
        assert_eq!(config.workspace.mode, WorkspaceMode::Bind);
    }
}
