//! `embedded-engine DIRECTORY VERB…`: what a person does with an engine's own program, on a data directory of the embedded
//! engine, which has none. Tests look past Coracle with it, and `cargo xtask test` sweeps with it.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a program for tests")]

mod containers;
mod images;
mod networks;
mod run;
mod sweep;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Result, bail, ensure};
use coracle_engine::preflight::{IdRanges, Readiness};
use coracle_engine::{EmbeddedRuntime, EngineOptions, RegistryOptions};

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match run(&words).await {
        Ok(code) => code,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::from(125)
        }
    }
}

async fn run(words: &[String]) -> Result<ExitCode> {
    let [data_dir, words @ ..] = words else { bail!("usage: embedded-engine DIRECTORY VERB…") };
    let data_dir = PathBuf::from(data_dir);
    if words == ["ready"] {
        return ready(&data_dir).map(|()| ExitCode::SUCCESS);
    }
    let (home, registries) = (data_dir.clone(), RegistryOptions::default());
    let options = EngineOptions { data_dir: data_dir.clone(), guest: None, home, registries };
    let engine = EmbeddedRuntime::open(options)?;
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let done = match words[..] {
        ["run" | "create", ..] => return run::run(&engine, &words).await,
        ["sweep"] => sweep::run(&engine).await,
        ["exec", ..] => return containers::exec(&engine, &words[1..]).await,
        ["network" | "volume", ..] => networks::run(&engine, &words).await,
        ["image" | "rmi" | "tag" | "import" | "export" | "save" | "commit" | "history", ..] => {
            images::run(&engine, &words).await
        }
        ["inspect", ..] if option(&words, "type") == Some("image") => images::run(&engine, &words).await,
        ["container", verb, ..] => containers::run(&engine, &data_dir, (verb, &words[2..])).await,
        [verb, ..] => containers::run(&engine, &data_dir, (verb, &words[1..])).await,
        [] => bail!("a verb is missing"),
    };
    done.map(|()| ExitCode::SUCCESS)
}

/// Fails, with the reason, where not all that tests do with the engine works for this user.
fn ready(data_dir: &Path) -> Result<()> {
    let here = Readiness::inspect(data_dir);
    let obstacles = here.obstacles();
    ensure!(obstacles.is_empty(), "this machine cannot run its containers: {obstacles:?}");
    ensure!(
        matches!(here.id_ranges, IdRanges::Root | IdRanges::Subordinate(_)),
        "users inside of containers need the package uidmap and a range in /etc/subuid and /etc/subgid"
    );
    ensure!(here.root || here.network_program.is_some(), "networks without root need the package passt");
    Ok(())
}

/// Words that are no options. Options have their values behind `=`, but for those in `with_value`.
fn plain<'a>(words: &[&'a str], with_value: &[&str]) -> Vec<&'a str> {
    let mut plain = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word {
            it if with_value.contains(it) => _ = words.next(),
            it if it.starts_with('-') && **it != *"-" => {}
            it => plain.push(*it),
        }
    }
    plain
}

/// The value of `--NAME=VALUE` or `--NAME VALUE`.
fn option<'a>(words: &[&'a str], name: &str) -> Option<&'a str> {
    let mut words = words.iter();
    while let Some(word) = words.next() {
        match word.strip_prefix("--").and_then(|it| it.strip_prefix(name)) {
            Some("") => return words.next().copied(),
            Some(rest) if rest.starts_with('=') => return rest.strip_prefix('='),
            _ => {}
        }
    }
    None
}
