//! The end of a call: its answer or failure, and the exit code.

use std::process::ExitCode;

use coracle_context::{Code, Failure};
use serde_json::{Map, Value};

use super::{cli_messages, render, signals, stdio};

/// Exit code of an invalid command line.
pub(super) const NOT_UNDERSTOOD: u8 = 2;

/// Prints the same object as `call`.
pub(super) fn finish(answer: &Map<String, Value>) -> ExitCode {
    render::print(&Value::Object(answer.clone()).to_string());
    if answer.get("success") == Some(&Value::Bool(true)) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The exit code after a broken pipe, as of a program killed by SIGPIPE: `… | head` is not a failure. `main` reports
/// all other errors of standard output.
pub(super) fn unread() -> ExitCode {
    if stdio::failure().is_some() { ExitCode::SUCCESS } else { ExitCode::from(141) }
}

pub(super) fn code(result: Result<(), Failure>) -> ExitCode {
    result.map_or_else(|failure| failed(&failure), |()| ExitCode::SUCCESS)
}

pub(super) fn failed(failure: &Failure) -> ExitCode {
    cli_messages::complain(failure);
    if failure.code == Code::Cancelled { ExitCode::from(signals::interrupted_code()) } else { ExitCode::FAILURE }
}
