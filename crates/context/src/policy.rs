//! Converts the user's settings to the policy of `admit`.

use std::path::PathBuf;

use coracle_runtime::{Limits, PatternSet, Policy};
use coracle_types::ByteSize;

use crate::config::{Config, NetworkGrant, WorkspaceMode};
use crate::host::Host;
use crate::state::StateDir;

/// Returns the policy. Pure: paths were resolved when the file was read.
#[must_use]
pub fn from_config(config: &Config, host: &Host, state: &StateDir) -> Policy {
    let security = &config.security;
    Policy {
        allow_roots: allow_roots(config, host, state),
        home: host.home.clone(),
        denied: denied(config, host, state),
        scratch: state.scratch(),
        binds: config.workspace.mode == WorkspaceMode::Bind,
        memory_max: security.memory_max,
        cpus_max: (security.cpus_max > 0.0).then_some(security.cpus_max),
        pids_max: security.pids_max,
        port_min: security.port_min,
        ports_bind: security.ports_bind,
        allow_host_network: security.allow_host_network,
        allow_host_gateway: security.allow_host_gateway,
        allow_gpu: security.allow_gpu,
        allow_root: security.allow_root,
        open_network: security.network == NetworkGrant::Open,
        strict: config.is_strict(),
        // The patterns were validated with the configuration; an invalid one allows nothing.
        images: PatternSet::new(&security.images).unwrap_or_default(),
    }
}

fn allow_roots(config: &Config, host: &Host, state: &StateDir) -> Vec<PathBuf> {
    if config.is_strict() {
        return config.workspace.allow_roots.clone();
    }
    let working = config.working_dir(host);
    let wide = working == host.home || working.parent().is_none();
    let working = (!wide).then_some(working);
    working.into_iter().chain([state.scratch()]).chain(config.workspace.allow_roots.iter().cloned()).collect()
}

/// Denies Coracle's own state and the engines' data. `admit` itself denies system directories and private ones in the
/// home.
fn denied(config: &Config, host: &Host, state: &StateDir) -> Vec<PathBuf> {
    let engines = ["/var/lib/docker", "/var/lib/containers", "/var/lib/containerd", "/var/lib/coracle"];
    let embedded = [config.engine_data.clone(), Some(host.engine_data.clone())].into_iter().flatten();
    let engines = engines.map(PathBuf::from).into_iter().chain(embedded);
    let rootless = host.home.join(".local/share/docker");
    [state.root().to_owned(), rootless].into_iter().chain(engines).chain(host.runtime_dir.clone()).collect()
}

impl Config {
    /// Returns the directory of `mount_cwd`.
    #[must_use]
    pub fn working_dir(&self, host: &Host) -> PathBuf {
        self.workspace.root.clone().unwrap_or_else(|| host.cwd.clone())
    }

    /// Returns the default limits of a container. A default above the maximum is lowered.
    #[must_use]
    pub fn default_limits(&self) -> Limits {
        let it = &self.security;
        let cpus = match (it.cpus > 0.0, it.cpus_max > 0.0) {
            (true, true) => Some(it.cpus.min(it.cpus_max)),
            (true, false) => Some(it.cpus),
            (false, true) => Some(it.cpus_max),
            (false, false) => None,
        };
        let memory: ByteSize = it.memory_limit.min(it.memory_max);
        Limits { memory: Some(memory), cpus, pids: Some(it.pids_limit.min(it.pids_max)) }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use coracle_types::ByteSize;

    use super::from_config;
    use crate::config::Config;
    use crate::host::Host;
    use crate::state::StateDir;

    fn mounting(host: &Host, path: &str) -> Option<&'static str> {
        mounting_with(&Config::default(), host, path)
    }

    fn mounting_with(config: &Config, host: &Host, path: &str) -> Option<&'static str> {
        let state = StateDir::at(Path::new("/h/state/coracle"));
        from_config(config, host, &state).host_path_problem("mount", Path::new(path)).map(|it| it.rule)
    }

    #[test]
    fn data_of_engines_is_never_mounted() {
        let host = Host::below(Path::new("/h"));
        let mut config = Config { engine_data: Some("/srv/engine".into()), ..Config::default() };
        config.workspace.allow_roots = ["/h/data", "/srv", "/var/lib"].map(Into::into).into();
        for dir in ["/h/data/coracle/engine/store", "/srv/engine/volumes/x", "/var/lib/coracle/engine"] {
            assert_eq!(mounting_with(&config, &host, dir), Some("mount.denied"), "{dir}");
        }
        assert_eq!(mounting_with(&config, &host, "/srv/engine-not"), None);
    }

    #[test]
    fn the_working_directory_and_the_scratch_directory_may_be_mounted() {
        let host = Host::below(Path::new("/h"));
        assert_eq!(mounting(&host, "/h/work/src"), None);
        assert_eq!(mounting(&host, "/h/state/coracle/scratch/x"), None);
        assert_eq!(mounting(&host, "/h/state/coracle/containers"), Some("mount.denied"));
        assert_eq!(mounting(&host, "/data"), Some("mount.root"));
    }

    #[test]
    fn the_home_as_working_directory_is_no_root() {
        let host = Host { cwd: "/h/home".into(), ..Host::below(Path::new("/h")) };
        assert_eq!(mounting(&host, "/h/home/project"), Some("mount.root"));
    }

    #[test]
    fn a_default_above_the_maximum_is_lowered() {
        let mut config = Config::default();
        config.security.memory_max = ByteSize::mib(100);
        config.security.cpus_max = 2.0;
        let limits = config.default_limits();
        assert_eq!((limits.memory, limits.cpus, limits.pids), (Some(ByteSize::mib(100)), Some(2.0), Some(1024)));
    }
}
