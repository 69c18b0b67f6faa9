//! Validation that the types of the configuration cannot express: bounds, and values that exclude each other.

use std::path::Path;

use coracle_provision::env::EnvRules;
use coracle_runtime::PatternSet;

use super::{Config, GitMode, HostMount, Preload, Preset, Provider, SandboxNetwork, WorktreeMode, remote, strict};

const MORE_THAN_NOTHING: &str = "must be more than 0";
const AT_LEAST_ONE: &str = "must be at least 1";
const MEMORY: &str = "must be at least 16m";
const CORES: &str = "must be a number of cores";
const PIDS: &str = "must be at least 16";

/// Returns invalid keys with the reason, in the order of the checks: the first one is reported.
pub(super) fn faults(config: &Config) -> Vec<(&'static str, String)> {
    let mut faults = Faults(Vec::new());
    if config.policy == Preset::Strict {
        strict::faults(config).into_iter().for_each(|(key, why)| faults.refuse(true, key, why));
    }
    if config.has_remote_engine() {
        remote::faults(config).into_iter().for_each(|(key, why)| faults.refuse(true, key, why));
    }
    faults.of_rooms(config);
    faults.of_sandboxes(config);
    faults.of_proxies_and_workers(config);
    faults.of_security(config);
    faults.of_calls(config);
    faults.of_rules(config);
    faults.of_paths(config);
    faults.0
}

struct Faults(Vec<(&'static str, String)>);

impl Faults {
    fn refuse(&mut self, bad: bool, key: &'static str, message: &str) {
        if bad {
            self.0.push((key, message.to_owned()));
        }
    }

    fn patterns(&mut self, patterns: &[String], key: &'static str) {
        if let Err(pattern) = PatternSet::new(patterns) {
            self.refuse(true, key, &format!("`{pattern}` is not a pattern"));
        }
    }

    fn of_rooms(&mut self, Config { workspace, run_code, .. }: &Config) {
        self.refuse(too_small(workspace.memory.0), "workspace.memory", MEMORY);
        self.refuse(too_small(run_code.memory.0), "run_code.memory", MEMORY);
        self.refuse(no_cores(workspace.cpus), "workspace.cpus", CORES);
        self.refuse(no_cores(run_code.cpus), "run_code.cpus", CORES);
        self.refuse(workspace.pids < 16, "workspace.pids", PIDS);
        self.refuse(workspace.idle.0.is_zero(), "workspace.idle", MORE_THAN_NOTHING);
        self.refuse(workspace.max_bytes.0 < 1 << 20, "workspace.max_bytes", "must be at least 1m");
        self.refuse(run_code.max_timeout_ms < 100, "run_code.max_timeout_ms", "must be at least 100");
        let shells = ["shell_execute", "podman_shell"];
        let unknown = workspace.shell_names.iter().any(|it| !shells.contains(&it.as_str()));
        self.refuse(unknown, "workspace.shell_names", "may hold `shell_execute` and `podman_shell`");
    }

    fn of_sandboxes(&mut self, Config { policy, sandbox, .. }: &Config) {
        self.refuse(too_small(sandbox.memory.0), "sandbox.memory", MEMORY);
        self.refuse(no_cores(sandbox.cpus), "sandbox.cpus", CORES);
        self.refuse(sandbox.pids < 16, "sandbox.pids", PIDS);
        let files = sandbox.profiles.values().filter_map(|it| it.devcontainer.as_ref());
        let has_invalid_path = files.chain([&sandbox.devcontainer]).any(|it| !it.fits());
        self.refuse(
            has_invalid_path,
            "sandbox.devcontainer",
            "must be `off`, `auto`, or the path of a `.json` in the repository",
        );
        self.patterns(&sandbox.features_allow, "sandbox.features_allow");
        self.refuse(sandbox.idle.0.is_zero(), "sandbox.idle", MORE_THAN_NOTHING);
        let bridged = sandbox.network == SandboxNetwork::Bridge;
        let exposed = "`bridge` is not for `sandbox.git.mode = \"credential\"`: it could be sent anywhere";
        self.refuse(bridged && sandbox.git.mode == GitMode::Credential, "sandbox.network", exposed);
        let unconfined = "`bridge` is not for `strict`: it gives access to everything";
        self.refuse(bridged && *policy == Preset::Strict, "sandbox.network", unconfined);
        let git_timeout = sandbox.worktree.git_timeout;
        self.refuse(git_timeout.0.is_zero(), "sandbox.worktree.git_timeout", MORE_THAN_NOTHING);
        let nowhere = sandbox.worktree.mode == WorktreeMode::Shared && sandbox.worktree.shared_root.is_none();
        self.refuse(nowhere, "sandbox.worktree.mode", "`shared` needs `sandbox.worktree.shared_root`");
    }

    fn of_proxies_and_workers(&mut self, Config { sandbox, proxy, worker, .. }: &Config) {
        self.refuse(proxy.max_body_mb == 0, "proxy.max_body_mb", AT_LEAST_ONE);
        self.refuse(worker.max_turns == 0, "worker.max_turns", AT_LEAST_ONE);
        self.refuse(worker.wall_seconds == 0, "worker.wall_seconds", AT_LEAST_ONE);
        let keys = |it: &Provider| {
            usize::from(it.key_env.is_some())
                + usize::from(it.key_file.is_some())
                + usize::from(it.key_command.is_some())
        };
        let providers: Vec<_> = sandbox.profiles.values().filter_map(|it| it.provider.as_ref()).collect();
        self.refuse(providers.iter().any(|it| it.base_url.is_empty()), "sandbox.profiles.provider", "needs `base_url`");
        let one_key = "has one of `key_env`, `key_file` and `key_command`";
        self.refuse(providers.iter().any(|it| keys(it) > 1), "sandbox.profiles.provider", one_key);
    }

    fn of_security(&mut self, Config { security, .. }: &Config) {
        self.refuse(too_small(security.memory_limit.0), "security.memory_limit", MEMORY);
        self.refuse(too_small(security.memory_max.0), "security.memory_max", MEMORY);
        self.refuse(security.pids_limit < 16, "security.pids_limit", PIDS);
        self.refuse(security.pids_max < 16, "security.pids_max", PIDS);
        let neither = |it: f64| !(0.0..=4096.0).contains(&it);
        self.refuse(neither(security.cpus), "security.cpus", "must be 0 (all) or a number of cores");
        self.refuse(neither(security.cpus_max), "security.cpus_max", "must be 0 (none) or a number of cores");
    }

    fn of_calls(&mut self, Config { exec, compose, lifecycle, jobs, mcp, .. }: &Config) {
        self.refuse(exec.max_parallel == 0, "exec.max_parallel", AT_LEAST_ONE);
        self.refuse(exec.keep_bytes.0 < 64 << 10, "exec.keep_bytes", "must be at least 64k");
        self.refuse(exec.keep_total < exec.keep_bytes, "exec.keep_total", "must not be below `exec.keep_bytes`");
        self.refuse(compose.timeout.0.is_zero(), "compose.timeout", MORE_THAN_NOTHING);
        self.refuse(compose.max_services == 0, "compose.max_services", AT_LEAST_ONE);
        self.refuse(lifecycle.idle.0.is_zero(), "lifecycle.idle", MORE_THAN_NOTHING);
        self.refuse(lifecycle.orphan_grace.0.is_zero(), "lifecycle.orphan_grace", MORE_THAN_NOTHING);
        self.refuse(lifecycle.keep_jobs_for.0.is_zero(), "lifecycle.keep_jobs_for", MORE_THAN_NOTHING);
        self.refuse(mcp.idle.0.is_zero(), "mcp.idle", MORE_THAN_NOTHING);
        self.refuse(jobs.max_running == 0, "jobs.max_running", AT_LEAST_ONE);
        self.refuse(jobs.wait_max.0.is_zero(), "jobs.wait_max", MORE_THAN_NOTHING);
        self.refuse(!(1..=1000).contains(&jobs.poll_lines), "jobs.poll_lines", "must be from 1 to 1000");
        self.refuse(lifecycle.save_max.0 < 1 << 20, "lifecycle.save_max", "must be at least 1m");
        self.refuse(exec.timeout.0.is_zero(), "exec.timeout", MORE_THAN_NOTHING);
        self.refuse(exec.timeout > exec.timeout_max, "exec.timeout", "must not be above `exec.timeout_max`");
    }

    /// Checks patterns and other values with their own syntax.
    fn of_rules(&mut self, config: &Config) {
        self.patterns(&config.security.images, "security.images");
        let auto = &config.auto_passthrough;
        let rules = EnvRules::new(&auto.env_patterns, &auto.env_allow, &auto.never, config.security.allow_env_all);
        if let Err(bad) = rules {
            self.refuse(true, bad.key, &bad.to_string());
        }
        for fault in config.secrets.iter().filter_map(|(name, it)| it.fault(name)) {
            self.refuse(true, "secrets", &fault);
        }
        for fault in config.run_code.preload.iter().filter_map(Preload::fault) {
            self.refuse(true, "run_code.preload", fault);
        }
        for fault in config.workspace.mounts.iter().filter_map(HostMount::fault) {
            self.refuse(true, "workspace.mounts", &fault);
        }
    }

    fn of_paths(&mut self, Config { workspace, sandbox, auto_passthrough, state_dir, engine_path, .. }: &Config) {
        let absolute = "must be absolute, or begin with `~/`";
        self.refuse(workspace.root.iter().any(is_relative), "workspace.root", absolute);
        self.refuse(workspace.allow_roots.iter().any(is_relative), "workspace.allow_roots", absolute);
        let shared_root = &sandbox.worktree.shared_root;
        self.refuse(shared_root.iter().any(is_relative), "sandbox.worktree.shared_root", absolute);
        self.refuse(sandbox.writable_mounts.iter().any(is_relative), "sandbox.writable_mounts", absolute);
        self.refuse(auto_passthrough.ca_files.iter().any(is_relative), "auto_passthrough.ca_files", absolute);
        self.refuse(state_dir.iter().any(is_relative), "state_dir", absolute);
        self.refuse(engine_path.iter().any(|it| !it.is_absolute()), "engine_path", "must be absolute");
    }
}

fn too_small(memory: u64) -> bool {
    memory < 16 << 20
}

fn no_cores(it: f64) -> bool {
    !(0.01..=4096.0).contains(&it)
}

fn is_relative(it: impl AsRef<Path>) -> bool {
    let it = it.as_ref();
    !it.is_absolute() && !it.starts_with("~")
}
