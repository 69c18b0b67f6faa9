//! The caller's setup commands, each tracked (containers.md 5.12).

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_runtime::{Command, ContainerPath, Exec, ExecLimits, ExecOutput, Exit, Ids, Inside};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use crate::{Item, Status, Step};

/// How setup commands run.
#[derive(Debug)]
pub struct Setup<'a> {
    /// In this order; a failure does not stop the next.
    pub commands: &'a [Command],
    /// As whom.
    pub user: Ids,
    /// Where.
    pub workdir: &'a ContainerPath,
    /// With which variables.
    pub env: &'a BTreeMap<String, String>,
    /// Time for each.
    pub timeout: Duration,
    /// Time for all.
    pub total: Duration,
    /// Time between TERM and KILL.
    pub grace: Duration,
    /// Ends the command that runs, and all that would follow.
    pub cancel: CancellationToken,
}

/// An item keeps this much of what its command printed.
const KEEP_BYTES: usize = 4096;

/// Runs the commands and reports each.
pub async fn setup(inside: &Inside, setup: &Setup<'_>) -> Step {
    if setup.commands.is_empty() {
        return Step::skipped("setup_commands", "none were given");
    }
    let begun = Instant::now();
    let mut items = Vec::with_capacity(setup.commands.len());
    for command in setup.commands {
        let left = setup.total.saturating_sub(begun.elapsed());
        items.push(if setup.cancel.is_cancelled() {
            unrun(command, "the call was cancelled")
        } else if left.is_zero() {
            unrun(command, "no time was left for it")
        } else {
            run(inside, setup, command, left.min(setup.timeout)).await
        });
    }
    summary(items).took(begun.elapsed())
}

fn summary(items: Vec<Item>) -> Step {
    let (all, good) = (items.len(), items.iter().filter(|it| it.status == Status::Success).count());
    Step::of_items("setup_commands", format!("{good}/{all} commands succeeded"), "each command ended with 0", items)
}

async fn run(inside: &Inside, setup: &Setup<'_>, command: &Command, time: Duration) -> Item {
    let mut exec = Exec::new(command.clone(), setup.user, setup.workdir.clone());
    exec.env = setup.env.clone();
    exec.limits = ExecLimits { total: Some(time), silence: None, grace: setup.grace };
    exec.keep_bytes = 2 * KEEP_BYTES;
    exec.cancel = setup.cancel.clone();
    match inside.exec(exec).await {
        Ok(output) => ended(command, &output, time),
        Err(err) => unrun(command, &err.to_string()),
    }
}

fn ended(command: &Command, output: &ExecOutput, time: Duration) -> Item {
    let error = match output.exit {
        Exit::Code(0) => None,
        Exit::Code(code) => Some(format!("exit {code}{}", last_line(output))),
        Exit::TimedOut(_) | Exit::Running(_) => Some(format!("ended after {} s", time.as_secs())),
        Exit::Cancelled => Some("the call was cancelled".into()),
    };
    let exit_code = match output.exit {
        Exit::Code(code) => Some(code),
        Exit::TimedOut(_) | Exit::Cancelled | Exit::Running(_) => None,
    };
    let item = match error {
        None => Item::success(name(command)),
        Some(error) => Item::failed(name(command), error),
    };
    described(item, command).with("exit_code", exit_code).with("output", tail(output))
}

fn unrun(command: &Command, why: &str) -> Item {
    described(Item::failed(name(command), why), command)
}

fn described(item: Item, command: &Command) -> Item {
    let words = match command {
        Command::Shell(script) => Value::from(script.as_str()),
        Command::Argv(argv) => Value::from(argv.clone()),
    };
    item.with("command", words).with("hint", false)
}

fn name(command: &Command) -> String {
    let text = match command {
        Command::Shell(script) => script.clone(),
        Command::Argv(argv) => argv.join(" "),
    };
    text.chars().take(200).collect()
}

fn last_line(output: &ExecOutput) -> String {
    let words = output.stderr.text();
    words.lines().last().map_or_else(String::new, |it| format!(": {}", it.chars().take(200).collect::<String>()))
}

/// What it printed last, both streams, the errors behind the rest.
fn tail(output: &ExecOutput) -> String {
    let bytes = [output.stdout.bytes(), output.stderr.bytes()].concat();
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(KEEP_BYTES)..]).into_owned()
}
