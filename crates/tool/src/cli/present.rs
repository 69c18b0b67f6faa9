//! A call as a person sees it: what it does while it runs, then what came of it.

use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

use coracle_runtime::Stream;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use crate::progress::Event;
use crate::render;

/// What is on the screen.
pub(super) struct Present {
    /// Shown on a terminal only.
    spinner: Option<ProgressBar>,
    /// A command's output has gone out already.
    printed: bool,
}

impl Present {
    pub(super) fn new(terminal: bool) -> Self {
        let spinner = terminal.then(|| {
            let style = ProgressStyle::with_template("{spinner} {msg} {elapsed:.dim}");
            let spinner = ProgressBar::new_spinner();
            spinner.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
            spinner
        });
        Self { spinner, printed: false }
    }

    pub(super) fn hear(&mut self, event: Event, cancel: &CancellationToken) {
        match event {
            Event::Message(message) => {
                if let Some(spinner) = &self.spinner {
                    spinner.enable_steady_tick(Duration::from_millis(100));
                    spinner.set_message(message);
                }
            }
            Event::Step(step) => {
                if let Some(spinner) = &self.spinner {
                    spinner.suspend(|| render::note(&render::step(&step)));
                }
            }
            Event::Output(chunk) => {
                self.clear();
                self.printed = true;
                let wrote = match chunk.stream {
                    Stream::Stdout => out(io::stdout().lock(), &chunk.bytes),
                    Stream::Stderr => out(io::stderr().lock(), &chunk.bytes),
                };
                if wrote.is_err() {
                    cancel.cancel();
                }
            }
        }
    }

    fn clear(&mut self) {
        if let Some(spinner) = self.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// Shows the answer. A command's own exit code becomes ours.
    pub(super) fn end(mut self, operation: &str, answer: &Map<String, Value>) -> ExitCode {
        self.clear();
        if answer.get("success") != Some(&Value::Bool(true)) {
            render::complain(answer);
            return ExitCode::FAILURE;
        }
        render::warnings(answer);
        if operation == "exec" {
            return self.command(answer);
        }
        render::print(render::answer(operation, answer).trim_end());
        ExitCode::SUCCESS
    }

    fn command(&self, answer: &Map<String, Value>) -> ExitCode {
        let text = |key: &str| answer.get(key).and_then(Value::as_str).unwrap_or_default();
        if !self.printed {
            // The command has ended; a reader that has gone is no news to anybody.
            let _ = out(io::stdout().lock(), text("stdout").as_bytes());
            let _ = out(io::stderr().lock(), text("stderr").as_bytes());
        }
        if answer.get("timed_out") == Some(&Value::Bool(true)) {
            render::note(&format!("ended: {} time-out", text("timeout_kind")));
        }
        let code = answer.get("exit_code").and_then(Value::as_u64).and_then(|it| u8::try_from(it).ok());
        ExitCode::from(code.unwrap_or(0))
    }
}

/// Bytes as they came: what a command prints is for the person's terminal or pipe, colours included.
fn out(mut to: impl Write, bytes: &[u8]) -> io::Result<()> {
    to.write_all(bytes)?;
    to.flush()
}
