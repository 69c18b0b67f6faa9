//! Docker with Compose 2 and buildx. Its packages start nothing where there is no systemd, so we do.

use std::fs;
use std::time::Duration;

use anyhow::{Result, bail};

use super::{apt, daemon};
use crate::sh::{sh, wait_until};

pub(super) const DAEMON: &str = "dockerd";

const PID_FILES: &[&str] = &["/var/run/docker.pid", "/var/run/docker/containerd/containerd.pid"];

pub(super) fn up() -> Result<()> {
    if !sh("dockerd", ["--version"]).succeeds() && version().is_none() || !compose_is_2() {
        install()?;
    }
    if version().is_some() {
        return Ok(());
    }
    if alive() {
        return if wait_until(Duration::from_secs(60), || version().is_some()) {
            Ok(())
        } else {
            bail!("dockerd runs and does not answer; it was not started here, so it is left alone")
        };
    }
    for file in PID_FILES {
        // Left by a daemon that was killed. Its number may be another process's now, and dockerd would refuse to start.
        let _ = fs::remove_file(file);
    }
    daemon::start(DAEMON, sh::<&str>("dockerd", []), Duration::from_secs(60), || version().is_some())
}

/// The daemon's version, if it answers.
pub(super) fn version() -> Option<String> {
    sh("docker", ["version", "--format", "{{.Server.Version}}"]).read().ok().filter(|it| !it.is_empty())
}

fn compose_is_2() -> bool {
    let version = sh("docker", ["compose", "version", "--short"]).read().unwrap_or_default();
    let major = version.trim_start_matches('v').split('.').next().and_then(|it| it.parse::<u32>().ok());
    major.is_some_and(|it| it >= 2)
}

fn install() -> Result<()> {
    let os = apt::Os::here();
    let Wanted { daemon, plugins } = wanted(&os);
    apt::ensure(daemon)?;
    if os.codename == "bookworm" {
        // Compose there is version 1. One step newer has 2, which asks for no newer libc.
        apt::also("trixie")?;
    }
    apt::install(plugins)
}

struct Wanted {
    daemon: &'static [&'static str],
    plugins: &'static [&'static str],
}

fn wanted(os: &apt::Os) -> Wanted {
    match (os.id.as_str(), os.codename.as_str()) {
        (_, "bookworm") => Wanted {
            daemon: &["docker.io", "iptables", "runc"],
            plugins: &["docker-compose/trixie", "docker-buildx/trixie"],
        },
        ("ubuntu", _) => {
            Wanted { daemon: &["docker.io", "iptables", "runc"], plugins: &["docker-compose-v2", "docker-buildx"] }
        }
        _ => Wanted {
            daemon: &["docker.io", "docker-cli", "iptables", "runc"],
            plugins: &["docker-compose", "docker-buildx"],
        },
    }
}

/// Whether the process that dockerd's own file names is a dockerd that lives, be it slow to answer.
fn alive() -> bool {
    let id = fs::read_to_string(PID_FILES[0]).ok().and_then(|it| it.trim().parse::<u32>().ok());
    id.is_some_and(|id| {
        daemon::born(id).is_some()
            && fs::read_to_string(format!("/proc/{id}/comm")).is_ok_and(|it| it.trim() == "dockerd")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_debian_12_takes_the_plugins_from_a_newer_suite() {
        let plugins =
            |id: &str, codename: &str| wanted(&apt::Os { id: id.to_owned(), codename: codename.to_owned() }).plugins;
        assert_eq!(plugins("debian", "bookworm")[0], "docker-compose/trixie");
        assert_eq!(plugins("debian", "trixie")[0], "docker-compose");
        assert_eq!(plugins("ubuntu", "noble")[0], "docker-compose-v2");
    }
}
