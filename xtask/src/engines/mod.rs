//! `cargo xtask engines up|down|status`: real engines on a machine that may have none and no systemd either.
//!
//! `up` changes only what is missing, `down` ends only what `up` started. Logs and process ids: `target/engines/`.

pub(crate) mod apt;
mod daemon;
mod docker;
mod podman;

use std::time::Instant;

use anyhow::{Result, bail};

use crate::sh::took;

pub(crate) fn run(words: &[String]) -> Result<()> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["up"] => up(None),
        ["up", engine] => up(Some(engine)),
        ["down"] => down(),
        ["status"] => {
            status();
            Ok(())
        }
        _ => bail!("usage: cargo xtask engines up [docker|podman] | down | status"),
    }
}

/// Makes one engine, or each of them, answer. Of two names for podman's ways of running, both mean podman.
pub(crate) fn up(engine: Option<&str>) -> Result<()> {
    let begun = Instant::now();
    match engine {
        None => docker::up().and_then(|()| podman::up())?,
        Some("docker") => docker::up()?,
        Some("podman" | "podman-rootless") => podman::up()?,
        Some(other) => bail!("no engine `{other}`: docker or podman"),
    }
    println!("  {} for engines up {}", took(begun), engine.unwrap_or("docker podman"));
    Ok(())
}

fn down() -> Result<()> {
    for (name, program) in [(podman::SERVICE, "podman"), (docker::DAEMON, "dockerd")] {
        let ended = daemon::stop(name, program)?;
        println!("{name}: {}", if ended { "stopped" } else { "not started by `engines up`, left alone" });
    }
    Ok(())
}

fn status() {
    println!("{:8} {:12} {:22} started by", "engine", "state", "version");
    for (name, engine, state) in
        [("docker", docker::DAEMON, docker::version()), ("podman", podman::SERVICE, podman::version())]
    {
        let by = daemon::recorded(engine).map_or("-".to_owned(), |id| format!("`engines up`, process {id}"));
        let word = if state.is_some() { "answers" } else { "not running" };
        println!("{name:8} {word:12} {:22} {by}", state.unwrap_or("-".to_owned()));
    }
}
