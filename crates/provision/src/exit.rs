//! What a command of a step left, in the words of the report.

use std::time::Duration;

use coracle_types::{Command, Excerpt, ExecOutput, Exit};
use serde_json::Value;

use crate::step_error::StepError;

/// The report keeps this much of what a command printed.
const TAIL_BYTES: usize = 4096;

/// What is to be kept of each stream of a command, so that the end of both is known.
pub(crate) const KEEP_BYTES: usize = 2 * TAIL_BYTES;

/// Letters of a name or a reason.
const WORDS: usize = 200;

/// Why a command did not end well, if it did not.
pub(crate) fn failure(output: &ExecOutput, limit: Option<Duration>) -> Option<StepError> {
    match output.exit {
        Exit::Code(0) => None,
        Exit::Code(code) => Some(StepError::plain(format!("exit {code}{}", reason(output)))),
        Exit::TimedOut(_) | Exit::Running(_) => {
            Some(StepError::plain(format!("ended after {} s", limit.unwrap_or(output.duration).as_secs())))
        }
        Exit::Cancelled => Some(StepError::cancelled()),
    }
}

/// The status that it ended with by itself.
pub(crate) fn exit_code(output: &ExecOutput) -> Option<u8> {
    match output.exit {
        Exit::Code(code) => Some(code),
        Exit::TimedOut(_) | Exit::Cancelled | Exit::Running(_) => None,
    }
}

/// What it printed last, both streams, the errors behind the rest.
pub(crate) fn tail(output: &ExecOutput) -> String {
    let bytes = [output.stdout.bytes(), output.stderr.bytes()].concat();
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
}

/// Its last error: programs tell the reason at the end.
fn reason(output: &ExecOutput) -> String {
    let excerpt = Excerpt::from_bytes(&output.stderr.bytes());
    let last = excerpt.as_str().lines().map(str::trim).rfind(|it| !it.is_empty());
    last.map_or_else(String::new, |it| format!(": {}", it.chars().take(WORDS).collect::<String>()))
}

/// A command as the name of a part.
pub(crate) fn name(command: &Command) -> String {
    let text = match command {
        Command::Shell(script) => script.clone(),
        Command::Argv(argv) => argv.join(" "),
    };
    text.chars().take(WORDS).collect()
}

/// A command as it was given.
pub(crate) fn words(command: &Command) -> Value {
    match command {
        Command::Shell(script) => script.as_str().into(),
        Command::Argv(argv) => argv.clone().into(),
    }
}
