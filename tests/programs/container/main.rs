//! Simulates Apple's `container` for tests: containers, images, volumes and networks are files of a directory, and what
//! runs in a container runs in namespaces of Linux, with the real guest as its first process. It needs root.
//!
//! `CORACLE_SCRIPTED_CONTAINER` names the directory; the default is `.scripted-container` in the home. A file
//! `scenario.json` in it sets the output format, the version, and the fault of the n-th call of a verb. Each call is a
//! line of `calls.jsonl`.

#![expect(clippy::disallowed_methods, reason = "a program of its own, which knows nothing of the product's layers")]

mod answers;
mod containers;
mod copy;
mod faults;
mod images;
mod inside;
mod networks;
mod state;
mod words;

use std::io::Write;
use std::process::ExitCode;

use anyhow::{Result, bail};

use self::faults::Faults;
use self::state::State;
use self::words::Words;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    if let [hidden, rest @ ..] = words.as_slice()
        && let Some(what) = hidden.strip_prefix("__")
    {
        return ended(inside::run(what, rest));
    }
    ended(called(words))
}

fn ended(done: Result<u8>) -> ExitCode {
    match done {
        Ok(code) => ExitCode::from(code),
        Err(err) => {
            let _ = writeln!(std::io::stderr(), "Error: {err:#}");
            // Wrong usage has its own exit code.
            ExitCode::from(if err.is::<words::Usage>() { 64 } else { 1 })
        }
    }
}

fn called(words: Vec<String>) -> Result<u8> {
    let state = State::open()?;
    state.note_call(&words)?;
    let words = Words::new(words);
    let faults = Faults::of(&state, &words.verb())?;
    if let Some(code) = faults.before(&state, &words)? {
        return Ok(code);
    }
    let done = answer(&state, words, &faults)?;
    let Some(text) = done.text else { return Ok(done.code) };
    std::io::stdout().write_all(&faults.cut(text.as_bytes()))?;
    Ok(done.code)
}

/// The result of a verb.
#[derive(Debug, Default)]
pub(crate) struct Done {
    text: Option<String>,
    code: u8,
}

impl Done {
    pub(crate) fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), code: 0 }
    }

    pub(crate) fn code(code: u8) -> Self {
        Self { text: None, code }
    }
}

fn answer(state: &State, words: Words, faults: &Faults) -> Result<Done> {
    match words.verb().as_str() {
        "system version" => answers::version(state, words),
        "system status" => answers::status(state, words),
        "create" => containers::create(state, words),
        "start" => containers::start(state, words),
        "stop" => containers::stop(state, words),
        "kill" => containers::kill(state, words),
        "delete" => containers::delete(state, words, faults),
        "inspect" => containers::inspect(state, words, faults),
        "list" => containers::list(state, words, faults),
        "exec" => containers::exec(state, words),
        "logs" => containers::logs(state, words),
        "stats" => containers::stats(state, words),
        "copy" => copy::copy(state, words),
        "build" => images::build(state, words),
        "image list" => images::list(state, words),
        "image inspect" => images::inspect(state, words),
        "image tag" => images::tag(state, words),
        "image delete" => images::delete(state, words),
        "image pull" => bail!("failed to resolve the registry: connection refused"),
        "network create" => networks::create(state, words),
        "network list" => networks::list(state, words),
        "network delete" => networks::delete(state, words),
        "volume create" => networks::create_volume(state, words),
        "volume list" => networks::list_volumes(state, words),
        "volume delete" => networks::delete_volume(state, words),
        other => Err(words::Usage(format!("Unknown command '{other}'")).into()),
    }
}
