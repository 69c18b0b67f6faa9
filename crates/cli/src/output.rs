//! A call as a person sees it: what it does while it runs, then what came of it.

use std::io::{self};
use std::process::ExitCode;
use std::time::Instant;

use coracle::{Entry, Event, Host};
use coracle_runtime::Stream;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::reporter::Reporter;
use super::{cli_messages, job};
use crate::render::{self, Answered, Marks};
use crate::stdio::out;

/// The command of `exec` was not run, or nothing was waited for: what `docker`, `podman`, `env` and `timeout` say then.
pub(super) const NOT_RUN: u8 = 125;

/// What is on the screen.
pub(super) struct Present {
    reporter: Reporter,
    begun: Instant,
    /// A command's output has gone out already.
    printed: bool,
    /// Its last line has no end.
    in_line: bool,
    /// Nobody reads it any more.
    unread: bool,
    /// Steps that stand above what is printed at the end.
    told: Vec<String>,
    terminals: Terminals,
}

#[derive(Clone, Copy)]
struct Terminals {
    stdout: bool,
    stderr: bool,
}

impl Present {
    pub(super) fn new(host: &Host) -> Self {
        let terminals = Terminals { stdout: host.stdout_is_terminal, stderr: host.stderr_is_terminal };
        let (reporter, begun) = (Reporter::new(host), Instant::now());
        Self { reporter, begun, printed: false, in_line: false, unread: false, told: Vec::new(), terminals }
    }

    pub(super) fn hear(&mut self, event: Event, cancel: &CancellationToken) {
        match event {
            Event::Message(_) | Event::Amount(_) => self.reporter.tell(&event),
            Event::Step(step) => {
                if self.reporter.above(&render::step(&step, Marks::of(true))) {
                    self.told.extend(step["name"].as_str().map(str::to_owned));
                }
            }
            Event::Output(chunk) => {
                self.reporter.clear();
                self.printed = true;
                self.in_line = !chunk.bytes.ends_with(b"\n");
                let wrote = match chunk.stream {
                    Stream::Stdout => out(io::stdout().lock(), &chunk.bytes),
                    Stream::Stderr => out(io::stderr().lock(), &chunk.bytes),
                };
                if wrote.is_err() {
                    self.unread = true;
                    cancel.cancel();
                }
            }
        }
    }

    /// How long a command took, where that disturbs no reader of its streams.
    fn took(&self, exit_code: Option<u8>) {
        if self.terminals.stdout && self.terminals.stderr {
            render::ran(exit_code, self.begun.elapsed(), !self.in_line);
        }
    }

    /// Takes what is under way off the screen.
    pub(super) fn clear(&mut self) {
        self.reporter.clear();
    }

    /// Shows the answer. A command's own exit code becomes ours.
    pub(super) fn end(mut self, entry: &Entry, call: Value, answer: &Map<String, Value>) -> ExitCode {
        self.reporter.clear();
        if answer.get("success") != Some(&Value::Bool(true)) {
            return self.failed(entry, answer);
        }
        render::warnings(answer);
        if entry.name == "exec" {
            return self.command(answer);
        }
        if let Some(code) = job::show(entry.name, &call, answer, self.terminals.stdout) {
            return code;
        }
        // Where standard output is a file, that shall have the whole.
        let told = if self.terminals.stdout { self.told.as_slice() } else { &[] };
        let marks = Marks::of(self.terminals.stdout);
        let (answer_value, took) = (Value::Object(answer.clone()), self.begun.elapsed());
        let answered = Answered { operation: entry.name, call, answer: answer_value, marks, told, took };
        render::print(answered.text().trim_end());
        // A script asks `coracle preflight && …`; that the checks could be made is not what it wants to know.
        if answer.get("ready") == Some(&Value::Bool(false)) { ExitCode::FAILURE } else { ExitCode::SUCCESS }
    }

    fn failed(&self, entry: &Entry, answer: &Map<String, Value>) -> ExitCode {
        let code = answer.get("code").and_then(Value::as_str).unwrap_or_default();
        if code == "cancelled" && self.unread {
            // As a program ends that the broken pipe's signal kills: `… | head` is no failure to tell.
            return ExitCode::from(141);
        }
        if code == "cancelled" && self.terminals.stderr {
            // The terminal has written `^C` where the cursor was.
            render::note("");
        }
        render::complain(&cli_messages::for_people(entry, answer));
        status(entry.name, code)
    }

    fn command(&mut self, answer: &Map<String, Value>) -> ExitCode {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
        if !self.printed {
            // The command has ended; a reader that has gone is no news to anybody.
            let _ = out(io::stdout().lock(), text("stdout").as_bytes());
            let _ = out(io::stderr().lock(), text("stderr").as_bytes());
            let last = [text("stdout"), text("stderr")].into_iter().rfind(|it| !it.is_empty());
            self.in_line = last.is_some_and(|it| !it.ends_with('\n'));
        }
        if answer.get("timed_out") == Some(&Value::Bool(true)) {
            render::timed_out(answer);
        }
        let code = answer.get("exit_code").and_then(Value::as_u64).and_then(|it| u8::try_from(it).ok());
        self.took(code);
        // One that was left running has no code yet: the limit was reached all the same.
        ExitCode::from(code.unwrap_or(124))
    }
}

/// The exit code of a call that was not carried out.
fn status(operation: &str, code: &str) -> ExitCode {
    ExitCode::from(match code {
        "cancelled" => crate::signals::interrupted_code(),
        "missing_field" => 2,
        // Other codes are those of a command.
        _ if ["exec", "job_wait"].contains(&operation) => NOT_RUN,
        _ => 1,
    })
}

#[cfg(test)]
mod tests {
    use super::status;

    fn check(operation: &str, code: &str, number: u8) {
        assert_eq!(format!("{:?}", status(operation, code)), format!("{:?}", std::process::ExitCode::from(number)));
    }

    #[test]
    fn the_exit_code_of_a_failure_is_not_one_of_the_command() {
        check("exec", "not_found", 125);
        check("job_wait", "job_not_found", 125);
        check("exec", "missing_field", 2);
        check("exec", "cancelled", 130);
        check("create", "name_taken", 1);
        check("create", "cancelled", 130);
    }
}
