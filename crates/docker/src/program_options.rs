//! The addresses of Docker and Podman, and the environment of their programs.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use coracle_engine_program::{ProgramOptions, SshDestination, SshForward};
use coracle_types::{ConnectionFault, Error, Excerpt, Result};

use super::{Dialect, conf};
use coracle_engine_program::EngineSettings;

/// Options from the settings, with a configuration that Coracle writes. An engine on another machine is reached over a
/// socket here.
pub(super) fn program_options(dialect: Dialect, settings: &EngineSettings) -> Result<ProgramOptions> {
    let (default, option) = match dialect {
        Dialect::Docker => ("unix:///var/run/docker.sock", "--host"),
        Dialect::Podman => ("local", "--url"),
    };
    let endpoint = settings.endpoint.as_deref().unwrap_or(default);
    let forward = forward(dialect, endpoint, settings)?;
    let address = match &forward {
        Some(forward) => format!("unix://{}", forward.socket().display()),
        None => endpoint.to_owned(),
    };
    let prefix = if address == "local" { vec![] } else { vec![format!("{option}={address}").into()] };
    Ok(ProgramOptions { endpoint: endpoint.to_owned(), prefix, env: environment(dialect, settings)?, forward })
}

fn forward(dialect: Dialect, endpoint: &str, settings: &EngineSettings) -> Result<Option<Arc<SshForward>>> {
    if !endpoint.starts_with("ssh://") {
        return Ok(None);
    }
    let destination = SshDestination::parse(dialect.kind(), endpoint).map_err(|why| Error::NotConnected {
        engine: dialect.kind(),
        endpoint: endpoint.to_owned(),
        fault: ConnectionFault::Address(why),
        excerpt: Excerpt::default(),
    })?;
    SshForward::listen(destination, settings).map(|it| Some(Arc::new(it)))
}

/// The environment of the engine's program: without values of the user that could end up in a container.
fn environment(dialect: Dialect, settings: &EngineSettings) -> Result<Vec<(String, OsString)>> {
    let mut env = Vec::new();
    match dialect {
        Dialect::Docker => {
            let dir = settings.config_dir.join("docker");
            std::fs::create_dir_all(&dir).map_err(|source| cannot_write(&dir, source))?;
            env.push(("DOCKER_CONFIG".into(), dir.into()));
        }
        Dialect::Podman => {
            env.push(("CONTAINERS_CONF".into(), write_containers_conf(settings)?.into()));
        }
    }
    Ok(env)
}

fn cannot_write(path: &Path, source: std::io::Error) -> Error {
    Error::Host { what: format!("cannot write `{}`", path.display()), source }
}

fn write_containers_conf(settings: &EngineSettings) -> Result<PathBuf> {
    let path = settings.config_dir.join("containers.conf");
    let texts: Vec<_> =
        conf::sources(&settings.home).iter().filter_map(|it| std::fs::read_to_string(it).ok()).collect();
    let merged = conf::merge(conf::Machine::inspect().required_settings(), &texts).map_err(|err| Error::Host {
        what: "cannot read the configuration of Podman (containers.conf)".into(),
        source: std::io::Error::other(err.to_string()),
    })?;
    if std::fs::read_to_string(&path).is_ok_and(|it| it == merged) {
        return Ok(path);
    }
    let write = || {
        std::fs::create_dir_all(&settings.config_dir)?;
        coracle_host::fs::replace(&path, merged.as_bytes())
    };
    write().map_err(|source| cannot_write(&path, source))?;
    Ok(path)
}
