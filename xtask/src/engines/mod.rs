//! `cargo xtask engines up|down`: real engines on a machine that may have none and no systemd either.
//!
//! `up` changes only what is missing, `down` ends only what `up` started. Logs and process ids: `target/engines/`.

pub(crate) mod apt;
mod daemon;
mod docker;
pub(crate) mod embedded;
pub(crate) mod kubernetes;
mod podman;
pub(crate) mod rootless;

use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::sh::took;

pub(crate) fn run(words: &[String]) -> Result<()> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["up"] => up(None),
        ["up", kubernetes::FLAG] => kubernetes::up(),
        ["up", engine] => up(Some(engine)),
        ["down"] => down(),
        ["down", kubernetes::FLAG] => kubernetes::down(),
        ["forward", address] => kubernetes::forward::run(address),
        _ => bail!(
            "usage: cargo xtask engines up [docker|podman|podman-rootless|embedded|embedded-rootless|--kubernetes] | \
             down [--kubernetes]"
        ),
    }
}

/// The account that is not root, with its Podman.
pub(crate) fn rootless_person() -> Result<rootless::Person> {
    rootless::up()?;
    rootless::Person::find().context("there is no account that is not root")
}

/// Makes one engine, or each of them, answer.
pub(crate) fn up(engine: Option<&str>) -> Result<()> {
    let begun = Instant::now();
    match engine {
        None => {
            docker::up()?;
            podman::up()?;
            embedded::up()?;
            if let Err(why) = rootless::up() {
                println!("  no {}: {why:#}", rootless::NAME); // a kernel may refuse it, and the others are worth having
            }
        }
        Some("docker") => docker::up()?,
        Some("podman") => podman::up()?,
        Some(rootless::NAME) => rootless::up()?,
        Some(embedded::NAME) => embedded::up()?,
        Some(embedded::ROOTLESS) => embedded::up_rootless()?,
        Some(other) => bail!(
            "no engine `{other}`: docker, podman, {}, {} or {}",
            rootless::NAME,
            embedded::NAME,
            embedded::ROOTLESS
        ),
    }
    println!("  {} for engines up {}", took(begun), engine.unwrap_or("docker podman podman-rootless"));
    Ok(())
}

fn down() -> Result<()> {
    for (name, program) in [(podman::SERVICE, "podman"), (docker::DAEMON, "dockerd")] {
        let ended = daemon::stop(name, program)?;
        println!("{name}: {}", if ended { "stopped" } else { "not started by `engines up`, left alone" });
    }
    rootless::down()
}
