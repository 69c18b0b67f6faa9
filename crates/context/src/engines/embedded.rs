//! The embedded engine: its data directory, whether it works here, and how it is opened.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_runtime::ContainerRuntime;
#[cfg(target_os = "linux")]
use coracle_runtime::ObservedRuntime;
use coracle_types::Error;

#[cfg(target_os = "linux")]
use super::logins::login_options;
use crate::config::Config;
#[cfg(target_os = "linux")]
use crate::config::EngineRuntime;
use crate::host::Host;

/// The configured data directory, else that of the host.
pub fn data_dir(config: &Config, host: &Host) -> PathBuf {
    config.engine_data.clone().unwrap_or_else(|| host.engine_data.clone())
}

/// Opens the engine on a data directory, which is created if it is missing.
///
/// # Errors
/// [`Error::Host`] if the directory cannot be created; [`Error::NotInstalled`] on systems other than Linux.
#[cfg(target_os = "linux")]
pub(super) fn open(
    host: &Host,
    config: &Config,
    data_dir: &Path,
    guest: Option<PathBuf>,
) -> Result<Arc<dyn ContainerRuntime>, Error> {
    let options = options(host, data_dir, guest);
    Ok(ObservedRuntime::with_spans(coracle_engine::EmbeddedRuntime::open_with_runtime(options, runtime(config))?))
}

/// Returns the configured runtime for new containers.
#[cfg(target_os = "linux")]
pub fn runtime(config: &Config) -> Option<coracle_engine::OciRuntime> {
    use coracle_engine::OciRuntime;

    match config.engine_runtime {
        EngineRuntime::Builtin => None,
        EngineRuntime::Crun => Some(OciRuntime::Crun),
        EngineRuntime::Runc => Some(OciRuntime::Runc),
        EngineRuntime::Runsc => Some(OciRuntime::Runsc),
    }
}

/// Opens the engine with its own type, for operations on its images.
#[cfg(target_os = "linux")]
pub(super) fn open_engine(host: &Host, data_dir: &Path) -> Result<coracle_engine::EmbeddedRuntime, Error> {
    coracle_engine::EmbeddedRuntime::open(options(host, data_dir, None))
}

#[cfg(target_os = "linux")]
fn options(host: &Host, data_dir: &Path, guest: Option<PathBuf>) -> coracle_engine::EngineOptions {
    coracle_engine::EngineOptions {
        data_dir: data_dir.to_owned(),
        guest,
        home: host.home.clone(),
        registries: registries(host),
    }
}

/// Returns how images are fetched, from the user's own environment.
#[cfg(target_os = "linux")]
fn registries(host: &Host) -> coracle_engine::RegistryOptions {
    let text = |name: &str| host.env.get(name).map(|it| String::from_utf8_lossy(it.reveal()).into_owned());
    let either = |name: &str| text(name).or_else(|| text(&name.to_lowercase())).filter(|it| !it.is_empty());
    let logins = login_options(host);
    coracle_engine::RegistryOptions {
        proxy: coracle_engine::ProxyOptions {
            https: either("HTTPS_PROXY"),
            no_proxy: either("NO_PROXY").unwrap_or_default(),
        },
        extra_ca_files: either("SSL_CERT_FILE").map(PathBuf::from).into_iter().collect(),
        docker_config: logins.docker_config,
        auth_files: logins.auth_files,
        program_env: logins.program_env,
        ..coracle_engine::RegistryOptions::default()
    }
}

#[cfg(not(target_os = "linux"))]
pub(super) fn open(_: &Host, _: &Config, _: &Path, _: Option<PathBuf>) -> Result<Arc<dyn ContainerRuntime>, Error> {
    Err(Error::NotInstalled { program: "embedded".into() })
}

/// Fails if the host lacks something that the engine needs, before anything is created.
///
/// # Errors
/// [`Error::Unavailable`], with what is missing; [`Error::NotInstalled`] for a runtime.
#[cfg(target_os = "linux")]
pub(super) fn check(config: &Config, data_dir: &Path) -> Result<(), Error> {
    use coracle_engine::preflight::Readiness;
    use coracle_types::{EngineKind, Excerpt};

    if let Some(runtime) = runtime(config) {
        coracle_host::find_program::find_program(runtime.program())?;
    }
    let obstacles = obstacles(config, &Readiness::inspect(data_dir));
    if obstacles.is_empty() {
        return Ok(());
    }
    let excerpt = Excerpt::from_bytes(obstacles.join("; ").as_bytes());
    Err(Error::Unavailable { engine: EngineKind::Embedded, denied: false, excerpt })
}

#[cfg(target_os = "linux")]
fn obstacles(config: &Config, found: &coracle_engine::preflight::Readiness) -> Vec<String> {
    let runtime = runtime(config).filter(|_| !found.root);
    let obstacles = found.obstacles().into_iter().map(|it| super::obstacles::obstacle(it, found));
    obstacles.chain(runtime.map(|it| format!("`engine_runtime = \"{it}\"` needs root"))).collect()
}

/// Lists reasons for `auto` to prefer another engine: obstacles, and what Podman or Docker would have for this user.
#[cfg(target_os = "linux")]
pub(super) fn lacks(config: &Config, data_dir: &Path) -> Vec<String> {
    let found = coracle_engine::preflight::Readiness::inspect(data_dir);
    let mut lacks = obstacles(config, &found);
    lacks.extend(shortcomings(config, &found).into_iter().map(str::to_owned));
    lacks
}

/// Lists what the engine lacks, although it works. Rootless Podman does not enforce limits of users other than root
/// either.
#[cfg(target_os = "linux")]
fn shortcomings(config: &Config, found: &coracle_engine::preflight::Readiness) -> Vec<&'static str> {
    use coracle_engine::preflight::IdRanges;

    let has_users = matches!(found.id_ranges, IdRanges::Root | IdRanges::Subordinate(_));
    let needs_limits = found.root || config.is_strict();
    [
        (!has_users, "this user has no subordinate ids, for users inside beside root"),
        (!found.root && found.network_program.is_none(), "no `pasta` or `slirp4netns` for networks"),
        (!found.seccomp, "the kernel cannot filter system calls"),
        (needs_limits && !found.control_groups.missing.is_empty(), "control groups for limits are missing"),
    ]
    .into_iter()
    .filter_map(|(is_missing, what)| is_missing.then_some(what))
    .collect()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn check(_: &Config, _: &Path) -> Result<(), Error> {
    Err(Error::NotInstalled { program: "embedded".into() })
}

#[cfg(not(target_os = "linux"))]
pub(super) fn lacks(_: &Config, _: &Path) -> Vec<String> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(target_os = "linux")]
    #[test]
    fn images_are_fetched_with_the_users_variables() {
        let mut host = Host::below(Path::new("/h"));
        for (name, value) in [("https_proxy", "http://proxy:3128"), ("PATH", "/bin"), ("TOKEN", "secret")] {
            host.env.insert(name.into(), coracle_types::Secret::new(value.as_bytes().to_vec()));
        }
        host.runtime_dir = Some("/run/user/7".into());
        let found = registries(&host);
        assert_eq!(found.proxy.https.as_deref(), Some("http://proxy:3128"));
        assert_eq!(found.auth_files, [Path::new("/run/user/7/containers/auth.json")]);
        assert_eq!(found.program_env.keys().collect::<Vec<_>>(), ["PATH"]);
    }

    #[test]
    fn the_configured_directory_comes_first() {
        let host = Host::below(Path::new("/h"));
        assert_eq!(data_dir(&Config::default(), &host), Path::new("/h/data/coracle/engine"));
        let config = Config { engine_data: Some("/srv/engine".into()), ..Config::default() };
        assert_eq!(data_dir(&config, &host), Path::new("/srv/engine"));
    }
}
