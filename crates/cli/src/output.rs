//! Shows a call to the user: its progress, then its result.

use std::process::ExitCode;
use std::time::Instant;

use coracle::{CallResponse, OperationEntry, step_block};
use coracle_context::document::{Block, ProgramOutput};
use coracle_context::{Event, Host};
use coracle_types::Stream;
use jiff::Timestamp;
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::reporter::Reporter;
use super::{cli_messages, exit, job};
use crate::render::{self, Layout};
use crate::stdio::{write_stderr, write_stdout};

/// Exit code if the command of `exec` did not run, or nothing was waited for, as of `docker`, `podman`, `env` and
/// `timeout`.
pub(super) const NOT_RUN: u8 = 125;

/// The state of the screen.
pub(super) struct Present {
    reporter: Reporter,
    begun: Instant,
    /// The command's output was already printed.
    printed: bool,
    /// The last line is incomplete.
    in_line: bool,
    /// The reader disconnected.
    unread: bool,
    /// Steps that are already above the final output.
    shown_steps: Vec<String>,
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
        Self { reporter, begun, printed: false, in_line: false, unread: false, shown_steps: Vec::new(), terminals }
    }

    pub(super) fn on_event(&mut self, event: Event, cancel: &CancellationToken) {
        match event {
            Event::Message(_) | Event::Amount(_) => self.reporter.show_event(&event),
            Event::Step(step) => {
                let step = step_block(&step);
                if self.reporter.above(&Layout::above_progress().block(&step))
                    && let Block::Step { name, .. } = step
                {
                    self.shown_steps.push(name);
                }
            }
            Event::Output(chunk) => {
                self.reporter.clear();
                self.printed = true;
                self.in_line = !chunk.bytes.ends_with(b"\n");
                let wrote = match chunk.stream {
                    Stream::Stdout => write_stdout(&chunk.bytes),
                    Stream::Stderr => write_stderr(&chunk.bytes),
                };
                if wrote.is_err() {
                    self.unread = true;
                    cancel.cancel();
                }
            }
        }
    }

    /// Prints the duration of a command, unless that disturbs a reader of its streams.
    fn note_duration(&self, exit_code: Option<u8>) {
        if self.terminals.stdout && self.terminals.stderr {
            render::ran(exit_code, self.begun.elapsed(), !self.in_line);
        }
    }

    /// Removes the progress line.
    pub(super) fn clear(&mut self) {
        self.reporter.clear();
    }

    /// Prints the answer. The exit code is that of the command.
    pub(super) fn end(mut self, entry: &OperationEntry, reply: CallResponse) -> ExitCode {
        let Some(response) = reply.response else { return self.fail(entry, &reply.json) };
        self.reporter.clear();
        render::warnings(&reply.json);
        let document = response.render(Timestamp::now());
        let layout = Layout::of_stdout(self.terminals.stdout);
        let notes = document.notes.iter().map(|it| layout.text(it));
        match &document.output {
            Some(ProgramOutput::Command { stdout, stderr, exit_code }) => {
                self.command(stdout, stderr);
                notes.for_each(|it| render::note(&it));
                self.note_duration(*exit_code);
            }
            Some(ProgramOutput::Patch(patch)) => {
                render::print_patch(patch, self.terminals.stdout);
                notes.for_each(|it| render::note(&it));
            }
            Some(ProgramOutput::Job(bytes)) => {
                let ended = job::print(bytes, self.terminals.stdout);
                notes.for_each(|it| render::note_behind_output(&it, ended));
            }
            None => {
                // A file of standard output gets the complete report.
                let shown = if self.terminals.stdout { self.shown_steps.as_slice() } else { &[] };
                render::print(layout.document(&document, shown, self.begun.elapsed()).trim_end());
                notes.for_each(|it| render::note(&it));
            }
        }
        ExitCode::from(document.exit_code)
    }

    /// Shows a failure.
    pub(super) fn fail(mut self, entry: &OperationEntry, answer: &Map<String, Value>) -> ExitCode {
        self.reporter.clear();
        self.failed(entry, answer)
    }

    fn failed(&self, entry: &OperationEntry, answer: &Map<String, Value>) -> ExitCode {
        let code = answer.get("code").and_then(Value::as_str).unwrap_or_default();
        if code == "cancelled" && self.unread {
            return exit::unread();
        }
        if code == "cancelled" && self.terminals.stderr {
            // The terminal has printed `^C` at the cursor.
            render::note("");
        }
        render::complain(&cli_messages::for_people(entry, answer));
        status(entry.name, code)
    }

    /// Prints the output of a command, unless it was printed while the command ran.
    fn command(&mut self, stdout: &[u8], stderr: &[u8]) {
        if self.printed {
            return;
        }
        // The command has ended: `main` reports write errors.
        let _ = write_stdout(stdout);
        let _ = write_stderr(stderr);
        let last = [stdout, stderr].into_iter().rfind(|it| !it.is_empty());
        self.in_line = last.is_some_and(|it| !it.ends_with(b"\n"));
    }
}

/// The exit code of a call that was not executed.
fn status(operation: &str, code: &str) -> ExitCode {
    ExitCode::from(match code {
        "cancelled" => crate::signals::interrupted_code(),
        "missing_field" => 2,
        // Other codes belong to commands.
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
