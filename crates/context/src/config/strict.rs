//! `policy = "strict"` in the file: its defaults, and the settings that it refuses.

use serde_json::{Value, json};

use super::{Config, DevcontainerFile, GitMode, Guest, MountMode, ProxyTransport, WorkspaceMode, WorktreeMode};

/// The defaults that differ from those of `standard`. The user's settings override them.
pub(super) fn defaults() -> Value {
    json!({
        "workspace": { "mode": "copy" },
        "auto_passthrough": { "mode": "none", "forward_gh": false },
        "security": {
            "cpus": 2.0,
            "cpus_max": 4.0,
            "allow_host_gateway": false,
            "network": "none",
            "allow_root": false,
            "allow_gh": false,
            "cross_session": "none",
        },
        "compose": { "enabled": false },
        "exec": { "redact": true },
    })
}

/// Merges the keys of `above` over those of `below`.
pub(super) fn over(below: Value, above: Value) -> Value {
    match (below, above) {
        (Value::Object(mut below), Value::Object(above)) => {
            for (key, value) in above {
                let merged = match below.remove(&key) {
                    Some(beneath) => over(beneath, value),
                    None => value,
                };
                below.insert(key, merged);
            }
            Value::Object(below)
        }
        (_, above) => above,
    }
}

/// Settings that `strict` refuses, since each would weaken its isolation.
pub(super) fn faults(config: &Config) -> Vec<(&'static str, &'static str)> {
    let sandbox = &config.sandbox;
    let wears = |it: &DevcontainerFile| *it != DevcontainerFile::Off;
    let profiles = || sandbox.profiles.values();
    let a_file = wears(&sandbox.devcontainer) || profiles().filter_map(|it| it.devcontainer.as_ref()).any(wears);
    let refused = [
        (config.run_code.preload.is_some(), "run_code.preload", "is not for `strict`: nothing keeps the snippets in"),
        (config.guest == Guest::Never, "guest", "`never` is not for `strict`: commands would have no filter"),
        (
            config.workspace.mode == WorkspaceMode::Bind,
            "workspace.mode",
            "`bind` is not for `strict`: directories of the host are copied in",
        ),
        (
            config.workspace.mounts.iter().any(|it| it.mode == MountMode::Bind),
            "workspace.mounts",
            "`mode = \"bind\"` is not for `strict` (rule `mount.bind`): directories of the host are copied in",
        ),
        (
            sandbox.git.mode == GitMode::Credential,
            "sandbox.git.mode",
            "`credential` is not for `strict`: no secret goes in",
        ),
        (
            sandbox.worktree.mode == WorktreeMode::Shared,
            "sandbox.worktree.mode",
            "`shared` is not for `strict`: files lie in the container's own volume",
        ),
        (
            profiles().any(|it| it.domain.is_some()),
            "sandbox.profiles.domain",
            "is not for `strict`: each workflow has a container of its own",
        ),
        (
            a_file,
            "sandbox.devcontainer",
            "is not for `strict`: what a repository says decides neither image, user nor commands",
        ),
        (
            !matches!(config.proxy.transport, ProxyTransport::Auto | ProxyTransport::Link),
            "proxy.transport",
            "has to be `auto` or `link` with `strict`: a container has no network, and sees nothing of the host",
        ),
    ];
    refused.into_iter().filter(|it| it.0).map(|(_, key, why)| (key, why)).collect()
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coracle_types::ByteSize;

    use crate::arg_types::Passthrough;
    use crate::config::{Config, CrossSession, NetworkGrant, Preset, WorkspaceMode};
    use crate::host::Host;
    use crate::policy::from_config;
    use crate::state::StateDir;

    fn strict(more: &str) -> Config {
        Config::read(&format!("policy = \"strict\"\n{more}"), false).unwrap()
    }

    #[test]
    fn strict_has_its_own_defaults_and_otherwise_those_of_standard() {
        let (it, usual) = (strict(""), Config::default());
        assert_eq!(it.policy, Preset::Strict);
        assert_eq!((it.workspace.mode, usual.workspace.mode), (WorkspaceMode::Copy, WorkspaceMode::Bind));
        let auto = &it.auto_passthrough;
        assert_eq!((&auto.mode, auto.forward_git, auto.forward_gh), (&Passthrough::None, true, false));
        let security = &it.security;
        assert_eq!((security.cpus, security.cpus_max), (2.0, 4.0));
        assert_eq!((security.network, security.cross_session), (NetworkGrant::None, CrossSession::None));
        let grants = [security.allow_root, security.allow_gpu, security.allow_ssh, security.allow_gh];
        assert_eq!((security.allow_git, grants), (true, [false; 4]));
        assert!(!security.allow_env_all && !security.allow_host_gateway && !it.compose.enabled);
        assert_eq!((security.memory_limit, it.jobs.max_running), (usual.security.memory_limit, usual.jobs.max_running));
        assert!(it.exec.redact && !usual.exec.redact);
        assert_eq!(it, Config::read("{\"policy\":\"strict\"}", true).unwrap());
    }

    #[test]
    fn single_keys_can_be_set_by_the_user() {
        let it = strict("compose.enabled = true\n[security]\nallow_gh = true\nmemory_limit = \"1g\"\ncpus = 1\n");
        assert!(it.compose.enabled && it.security.allow_gh && !it.security.allow_root);
        assert_eq!((it.security.memory_limit, it.security.cpus), (ByteSize::mib(1024), 1.0));
        let dirs = strict("workspace.allow_roots = [\"/a\", \"/b\"]\n");
        assert_eq!((dirs.workspace.allow_roots.len(), dirs.workspace.mode), (2, WorkspaceMode::Copy));
    }

    #[test]
    fn refused_settings_are_reported_with_key_and_line() {
        for (text, key) in [
            ("guest = \"never\"", "guest"),
            ("run_code.preload.command = [\"x\"]", "run_code.preload"),
            ("workspace.mode = \"bind\"", "workspace.mode"),
            ("workspace.mounts = [{ host_path = \"p\", mount_path = \"p\", mode = \"bind\" }]", "workspace.mounts"),
            ("sandbox.network = \"bridge\"", "sandbox.network"),
            ("sandbox.git.mode = \"credential\"", "sandbox.git.mode"),
            ("sandbox.worktree = { mode = \"shared\", shared_root = \"/w\" }", "sandbox.worktree.mode"),
            ("sandbox.profiles.default.domain = \"all\"", "sandbox.profiles.domain"),
            ("sandbox.devcontainer = \"auto\"", "sandbox.devcontainer"),
            ("proxy.transport = \"unix\"", "proxy.transport"),
        ] {
            assert!(Config::read(&format!("{text}\n"), false).is_ok(), "standard takes {text}");
            let failure = Config::read(&format!("policy = \"strict\"\n{text}\n"), false).expect_err(text);
            assert_eq!(failure.details["key"], key, "{text}");
        }
        let unknown = Config::read("policy = \"strict\"\n\nengin = 1\n", false).unwrap_err();
        assert_eq!(unknown.details["line"], 3);
        let wrong = Config::read("policy = \"strict\"\n[security]\nnetwork = \"wide\"\n", false).unwrap_err();
        assert_eq!(wrong.details["line"], 3);
    }

    #[test]
    fn directories_of_the_host_have_to_be_configured() {
        let host = Host::below(Path::new("/h"));
        let state = StateDir::at(Path::new("/h/state/coracle"));
        let own = strict("workspace.allow_roots = [\"/data\"]\n");
        let rule =
            |path: &str| from_config(&own, &host, &state).host_path_problem("copy", Path::new(path)).map(|it| it.rule);
        assert_eq!(rule("/data/x"), None);
        assert_eq!(rule("/h/work"), Some("copy.root"), "the working directory");
        assert!(rule("/h/state/coracle/scratch/x").is_some(), "the scratch directory");
        assert!(!from_config(&own, &host, &state).binds && from_config(&Config::default(), &host, &state).binds);
    }
}
