//! The result of a command.

use std::time::Duration;

use coracle_protocol::workspace::ChangeReport;
use coracle_types::{ByteSize, ExecOutput, Exit};
use schemars::JsonSchema;
use serde::Serialize;

use super::CommandLine;
use crate::output::Inline;
use crate::{Code, Failure, Response};

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ShellResult {
    /// The program and its arguments.
    pub command: Vec<String>,
    /// Where it ran.
    pub cwd: String,
    /// Its own code; 128 + n for a signal, 124 when its time was over, 127 for a program that is missing.
    pub exit_code: u8,
    /// What it printed, at most 32768 bytes.
    pub stdout: String,
    /// What it printed as errors, at most 32768 bytes.
    pub stderr: String,
    /// From its start to its end.
    pub duration_ms: u64,
    /// Its time was over.
    pub timed_out: bool,
    /// `exited`, `signaled`, `timed_out`, `cancelled` or `oom`.
    pub termination: String,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// Bytes that it printed.
    pub stdout_bytes: u64,
    /// Bytes that it printed as errors.
    pub stderr_bytes: u64,
    /// `stdout` is not all of it.
    pub stdout_truncated: bool,
    /// `stderr` is not all of it.
    pub stderr_truncated: bool,
    /// The end of what was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_tail: Option<String>,
    /// The end of what was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,
    /// For `shell_output`: all that it printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_id: Option<String>,
    /// Processes that it left behind, which were ended.
    pub survivors_ended: u32,
    /// Files of the workspace that changed meanwhile.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub changed: Option<ChangedFiles>,
}

/// Files that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ChangedFiles {
    /// Made, at most 50.
    pub created: Vec<String>,
    /// Written, at most 50.
    pub modified: Vec<String>,
    /// Gone, at most 50.
    pub deleted: Vec<String>,
    /// How many altogether.
    pub total: u64,
    /// There are more than are named.
    pub truncated: bool,
    /// All files were looked at.
    pub complete: bool,
}

impl ChangedFiles {
    pub(super) fn from_report(changes: &ChangeReport) -> Self {
        let shown = |all: &[String]| all.iter().map(|it| crate::paths::shown(it)).collect::<Vec<_>>();
        let (created, modified, deleted) = (shown(&changes.created), shown(&changes.modified), shown(&changes.deleted));
        let named = (created.len() + modified.len() + deleted.len()) as u64;
        let (total, complete) = (changes.total, changes.complete);
        Self { created, modified, deleted, total, truncated: named < total, complete }
    }
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Termination {
    Exited,
    Signaled,
    TimedOut,
    Cancelled,
    Oom,
}

/// How a command ended, with what it printed.
#[derive(Clone, Debug)]
pub(crate) struct CommandResult {
    pub(crate) termination: Termination,
    pub(crate) exit_code: u8,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: Inline,
    pub(crate) stderr: Inline,
    /// For `shell_output`, when a stream was cut.
    pub(crate) output_id: Option<String>,
    /// The same, cut or not.
    pub(crate) job: Option<String>,
    pub(crate) survivors: u32,
    pub(crate) duration: Duration,
}

/// Reads how a command ended, and adds a line to its errors if a limit ended it.
pub(crate) fn ended(output: &ExecOutput, survivors: u32, timeout: Duration, memory: Option<ByteSize>) -> CommandResult {
    let termination = match output.exit {
        _ if output.oom => Termination::Oom,
        Exit::TimedOut(_) | Exit::Running(_) => Termination::TimedOut,
        Exit::Cancelled => Termination::Cancelled,
        Exit::Code(_) if output.signal.is_some() => Termination::Signaled,
        Exit::Code(_) => Termination::Exited,
    };
    let exit_code = match output.exit {
        Exit::Code(code) => code,
        Exit::TimedOut(_) | Exit::Running(_) => 124,
        Exit::Cancelled => 130,
    };
    let (stdout, mut stderr) = (Inline::from_capture(&output.stdout), Inline::from_capture(&output.stderr));
    match termination {
        Termination::TimedOut => {
            stderr.add_line(&format!("coracle: time limit of {} s reached", timeout.as_secs_f64()));
        }
        Termination::Oom => {
            let limit = memory.map_or_else(String::new, |it| format!(" of {} MiB", it.0 >> 20));
            stderr.add_line(&format!("coracle: memory limit{limit} reached"));
        }
        _ => {}
    }
    let cut = stdout.truncated || stderr.truncated;
    let job = output.job.as_ref().map(ToString::to_string);
    CommandResult {
        termination,
        exit_code,
        signal: output.signal,
        stdout,
        stderr,
        output_id: job.clone().filter(|_| cut),
        job,
        survivors,
        duration: output.duration,
    }
}

impl Termination {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::Signaled => "signaled",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Oom => "oom",
        }
    }
}

/// A stream as text for a model: its start, and its end when it was cut.
pub(crate) fn stream_text(name: &str, stream: &str, tail: Option<&str>) -> Vec<String> {
    let start = (!stream.is_empty()).then(|| format!("{name}:\n{stream}"));
    start.into_iter().chain(tail.map(|it| format!("{name}, its end:\n{it}"))).collect()
}

/// How the rest of cut output is read.
pub(crate) fn rest_text(output_id: &str) -> String {
    format!("all of it: shell_output output_id={output_id}")
}

/// Milliseconds.
pub(crate) fn millis(it: Duration) -> u64 {
    u64::try_from(it.as_millis()).unwrap_or(u64::MAX)
}

impl ShellResult {
    pub(super) fn response(
        name: &str,
        run: CommandLine,
        ended: CommandResult,
        changed: Option<ChangedFiles>,
        capture: bool,
    ) -> Response<Self> {
        let CommandLine { command, cwd, .. } = run;
        let shown = |stream: &Inline| if capture { stream.text.clone() } else { "capture disabled".to_owned() };
        let termination = ended.termination;
        let message = match termination {
            Termination::TimedOut => format!("`{name}` exceeded the configured timeout."),
            Termination::Oom => format!("`{name}` was ended: memory limit reached."),
            Termination::Cancelled => format!("`{name}` was cancelled."),
            Termination::Exited | Termination::Signaled => format!("`{name}` exited with {}.", ended.exit_code),
        };
        let value = Self {
            command,
            cwd: cwd.to_string(),
            exit_code: ended.exit_code,
            stdout: shown(&ended.stdout),
            stderr: shown(&ended.stderr),
            duration_ms: millis(ended.duration),
            timed_out: termination == Termination::TimedOut,
            termination: termination.word().to_owned(),
            signal: ended.signal,
            stdout_bytes: ended.stdout.bytes,
            stderr_bytes: ended.stderr.bytes,
            stdout_truncated: ended.stdout.truncated && capture,
            stderr_truncated: ended.stderr.truncated && capture,
            stdout_tail: ended.stdout.tail.filter(|_| capture),
            stderr_tail: ended.stderr.tail.filter(|_| capture),
            output_id: ended.output_id.filter(|_| capture),
            survivors_ended: ended.survivors,
            changed,
        };
        // A run that was cut off is a failure; a program that failed by itself is a result.
        let code = match termination {
            Termination::TimedOut => Some(Code::TimedOut),
            Termination::Oom => Some(Code::OutOfMemory),
            Termination::Cancelled => Some(Code::Cancelled),
            Termination::Exited | Termination::Signaled => None,
        };
        let done = Response::done(message.clone(), value);
        match code {
            Some(code) => Response { failure: Some(Failure::new(code, message)), ..done },
            None => done,
        }
    }

    pub(super) fn text(&self) -> String {
        let mut parts = vec![format!("exit code {} after {} ms", self.exit_code, self.duration_ms)];
        for (name, stream, tail) in
            [("stdout", &self.stdout, &self.stdout_tail), ("stderr", &self.stderr, &self.stderr_tail)]
        {
            parts.extend(stream_text(name, stream, tail.as_deref()));
        }
        parts.extend(self.output_id.as_deref().map(rest_text));
        if let Some(changed) = self.changed.as_ref().filter(|it| it.total > 0) {
            let list = |sign: &str, all: &[String]| all.iter().map(|it| format!("{sign} {it}")).collect::<Vec<_>>();
            let files =
                [list("+", &changed.created), list("~", &changed.modified), list("-", &changed.deleted)].concat();
            parts.push(format!("changed:\n{}", files.join("\n")));
        }
        parts.join("\n")
    }
}
