//! The result of a snippet: flat, as its callers know it.

use std::time::Duration;

use schemars::JsonSchema;
use serde::Serialize;

use crate::persistent::{self, KernelState};
use crate::shell::{CommandResult, Termination, millis, rest_text, stream_text};
use crate::{Code, Failure, Mode, Preload, Reason, RunFile, RunOutput, RunSettings, SessionHandle, Warning};

/// The result of a snippet.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
// The schema that clients know has this title.
#[schemars(rename = "Ran")]
pub struct RunCodeResult {
    /// It ended with 0, in time and in its memory.
    pub success: bool,
    /// What it printed.
    pub output: String,
    /// What it printed as errors.
    pub stderr: String,
    /// Why it failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Its own code; 124 at a timeout; null when nothing ran.
    pub exit_code: Option<u8>,
    /// Its time was over.
    pub timed_out: bool,
    /// It was ended for its memory.
    pub oom: bool,
    /// Milliseconds that it had.
    pub timeout_ms: u64,
    /// Milliseconds that it took.
    pub duration_ms: u64,
    /// The signal that ended it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signal: Option<i32>,
    /// The language.
    pub language: String,
    /// `container` or `preload`.
    pub mode: String,
    /// Names this run.
    pub run_id: String,
    /// The how manieth container of the session; 0 without one.
    pub generation: u64,
    /// This container replaced another.
    pub container_restarted: bool,
    /// `output` or `stderr` is not all of it.
    pub truncated: bool,
    /// Bytes that it printed.
    pub output_bytes: u64,
    /// Bytes that it printed as errors.
    pub stderr_bytes: u64,
    /// The end of `output`, when it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_tail: Option<String>,
    /// The end of `stderr`, when it was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,
    /// For `shell_output`: all that it printed.
    #[serde(rename = "output_id", skip_serializing_if = "Option::is_none")]
    pub output_id: Option<String>,
    /// The same under its former name.
    #[serde(rename = "outputId", skip_serializing_if = "Option::is_none")]
    pub former_output_id: Option<String>,
    /// What it showed, if variables are retained: values, images and tables.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, with = "Vec<serde_json::Value>")]
    pub outputs: Vec<RunOutput>,
    /// Files that it wrote in its working directory, at most 50.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, with = "Vec<serde_json::Value>")]
    pub files: Vec<RunFile>,
    /// The interpreter that keeps variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<serde_json::Map<String, serde_json::Value>>")]
    pub kernel: Option<KernelState>,
    /// What agents branch on.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<String>")]
    pub code: Option<Code>,
    /// One sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// What to do next.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hint: Option<String>,
    /// More, by code.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    #[schemars(default)]
    pub details: serde_json::Map<String, serde_json::Value>,
    /// News that is not the answer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default, with = "Vec<serde_json::Value>")]
    pub warnings: Vec<Warning>,
}

impl RunCodeResult {
    fn nothing(mode: &Mode) -> Self {
        let (mode, warnings) = match mode {
            Mode::Preload(_) => ("preload", vec![Preload::warning()]),
            _ => ("container", Vec::new()),
        };
        Self { mode: mode.to_owned(), warnings, ..Self::default() }
    }

    /// The result if nothing ran, or the outcome is unknown.
    #[must_use]
    pub fn failed(failure: &Failure, mode: &Mode) -> Self {
        Self {
            error: Some(failure.message.clone()),
            code: Some(failure.code),
            message: Some(failure.message.clone()),
            hint: failure.hint.clone(),
            details: failure.details.clone(),
            ..Self::nothing(mode)
        }
    }

    /// The result as text for a model: of a stream that was cut both ends, and how the rest is read.
    #[must_use]
    pub fn text(&self) -> String {
        let mut parts: Vec<String> = self.error.iter().map(|it| format!("error: {it}")).collect();
        parts.extend(Some(self.output.clone()).filter(|it| !it.is_empty()));
        parts.extend(stream_text("output", "", self.output_tail.as_deref()));
        parts.extend(persistent::render(&self.outputs, &self.files, self.kernel.as_ref()));
        let is_repeated = self.error.as_ref() == Some(&self.stderr);
        let stderr = if is_repeated { "" } else { &self.stderr };
        parts.extend(stream_text("stderr", stderr, self.stderr_tail.as_deref()));
        parts.extend(self.output_id.as_deref().map(rest_text));
        if self.truncated && self.output_id.is_none() {
            parts.push("the rest of the output is not stored".to_owned());
        }
        if parts.is_empty() {
            parts.push("It printed nothing.".to_owned());
        }
        parts.join("\n")
    }
}

impl RunCodeResult {
    /// The result of a snippet that ran in a session's container, or on the host. `run` adds its id and language.
    pub(super) fn new(
        ended: CommandResult,
        session: Option<&SessionHandle>,
        timeout: Duration,
        settings: &RunSettings,
    ) -> Self {
        let (error, code) = match ended.termination {
            Termination::TimedOut => {
                (Some(format!("Execution timed out after {} ms.", millis(timeout))), Some(Code::TimedOut))
            }
            Termination::Oom => {
                let message = format!("Execution exceeded the memory limit of {} MiB.", settings.memory.0 >> 20);
                (Some(message), Some(Code::OutOfMemory))
            }
            Termination::Cancelled => (Some("The run was cancelled.".to_owned()), Some(Code::Cancelled)),
            Termination::Exited if ended.exit_code == 0 => (None, None),
            Termination::Exited if ended.exit_code == 127 => {
                (Some(describe_end(&ended)), Some(Code::LanguageUnavailable))
            }
            Termination::Exited | Termination::Signaled => (Some(describe_end(&ended)), Some(Code::RunFailed)),
        };
        let nothing = Self::nothing(&settings.mode);
        let (generation, replaced, session_warnings) = match session {
            Some(session) => (session.generation, session.replaced.as_ref(), session.warnings.clone()),
            None => (nothing.generation, None, Vec::new()),
        };
        // The run that timed out has reported that itself.
        let news = replaced.filter(|it| it.reason != Reason::Timeout).map(|it| Warning::recreated(it, "/packages"));
        Self {
            success: code.is_none(),
            message: error.clone(),
            error,
            exit_code: Some(ended.exit_code),
            timed_out: ended.termination == Termination::TimedOut,
            oom: ended.termination == Termination::Oom,
            duration_ms: millis(ended.duration),
            signal: ended.signal,
            generation,
            container_restarted: replaced.is_some(),
            truncated: ended.stdout.truncated || ended.stderr.truncated,
            output_bytes: ended.stdout.bytes,
            stderr_bytes: ended.stderr.bytes,
            output: ended.stdout.text,
            stderr: ended.stderr.text,
            output_tail: ended.stdout.tail,
            stderr_tail: ended.stderr.tail,
            former_output_id: ended.output_id.clone(),
            output_id: ended.output_id,
            code,
            warnings: nothing.warnings.into_iter().chain(news).chain(session_warnings).collect(),
            ..Self::nothing(&settings.mode)
        }
    }
}

/// The error output of a failed program, else its exit code.
fn describe_end(ended: &CommandResult) -> String {
    if ended.stderr.text.is_empty() {
        return format!("Process exited with code {}.", ended.exit_code);
    }
    ended.stderr.text.clone()
}
