//! Describes the exit of a step's command for the report.

use std::time::Duration;

use coracle_types::{Command, Excerpt, ExecOutput, Exit};
use serde_json::Value;

use crate::step_error::StepError;

/// How much of a command's output the report contains.
const TAIL_BYTES: usize = 4096;

/// How much of each stream to retain, so that the end of both is known.
pub(crate) const KEEP_BYTES: usize = 2 * TAIL_BYTES;

/// Maximum length of a name or a reason, in characters.
const MAX_CHARS: usize = 200;

/// Returns why a command failed, if it did.
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

/// Returns the exit status, if it exited by itself.
pub(crate) fn exit_code(output: &ExecOutput) -> Option<u8> {
    match output.exit {
        Exit::Code(code) => Some(code),
        Exit::TimedOut(_) | Exit::Cancelled | Exit::Running(_) => None,
    }
}

/// Returns the end of its output: stdout, then stderr.
pub(crate) fn tail(output: &ExecOutput) -> String {
    let bytes = [output.stdout.bytes(), output.stderr.bytes()].concat();
    String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]).into_owned()
}

/// Returns its last error line, where programs print the reason.
fn reason(output: &ExecOutput) -> String {
    let excerpt = Excerpt::from_bytes(&output.stderr.bytes());
    let last = excerpt.as_str().lines().map(str::trim).rfind(|it| !it.is_empty());
    last.map_or_else(String::new, |it| format!(": {}", it.chars().take(MAX_CHARS).collect::<String>()))
}

/// Renders a command as the name of an item.
pub(crate) fn name(command: &Command) -> String {
    let text = match command {
        Command::Shell(script) => script.clone(),
        Command::Argv(argv) => argv.join(" "),
    };
    text.chars().take(MAX_CHARS).collect()
}

/// Renders a command as it was given.
pub(crate) fn words(command: &Command) -> Value {
    match command {
        Command::Shell(script) => script.as_str().into(),
        Command::Argv(argv) => argv.clone().into(),
    }
}
