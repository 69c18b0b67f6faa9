//! `evaluate_python`: a short script.

use std::collections::BTreeMap;
use std::time::Duration;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::output::{Inline, characters};
use crate::persistent::{self, KernelState, PersistentCode, PersistentRun};
use crate::response::{Result, fail};
use crate::shell::{self, CommandLine, ShellCommand};
use crate::{Code, Effect, Failure, Response, RunFile, RunOutput, SessionHandle, SlotRole, Tool, Warning, Workspace};

/// Run a short Python script in the workspace, for at most 5 seconds. Print what you want to see.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct EvaluatePython {
    /// The script, at most 48000 characters.
    pub code: String,
    /// Has to be empty.
    #[serde(default)]
    pub globals: Map<String, Value>,
    /// Has to be empty: read files of the workspace directly.
    #[serde(default)]
    pub reads: Vec<Value>,
    /// Has to be empty: write with `write_file`.
    #[serde(default)]
    pub writes: Vec<Value>,
    /// Keep variables for later calls, for up to 50 seconds a run; the last expression, figures and tables are shown.
    #[serde(default)]
    pub persistent: Option<bool>,
    /// With `persistent`: begin without earlier variables.
    #[serde(default)]
    pub restart: Option<bool>,
}

/// What came of a script.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
#[schemars(rename = "Evaluated")]
pub struct EvaluationResult {
    /// The last expression's value, if variables are retained.
    pub value_repr: Option<String>,
    /// What it printed, at most 4096 characters.
    pub stdout: String,
    /// What it printed as errors, at most 4096 characters.
    pub stderr: String,
    /// The end of what was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stdout_tail: Option<String>,
    /// The end of what was cut.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stderr_tail: Option<String>,
    /// Always empty.
    pub globals: Map<String, Value>,
    /// Always empty.
    pub reads: Vec<Value>,
    /// Always empty.
    pub writes: Vec<Value>,
    /// As of a command.
    pub exit_code: u8,
    /// Its time was over.
    pub timed_out: bool,
    /// From its start to its end.
    pub duration_ms: u64,
    /// For `shell_output`: all that it printed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output_id: Option<String>,
    /// What it showed: values, images and tables.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    pub outputs: Vec<RunOutput>,
    /// Files that it wrote in its working directory, at most 50.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(with = "Vec<Value>")]
    pub files: Vec<RunFile>,
    /// The interpreter that keeps variables.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Map<String, Value>>")]
    pub kernel: Option<KernelState>,
}

/// Characters of a script.
const MAX_CODE: usize = 48_000;

/// Characters of each stream.
const MAX_SHOWN: usize = 4096;

/// Characters of the end of a stream that was cut.
const TAIL: usize = 2048;

/// The longest time of a script with persistent variables. Clients of MCP give up after a minute, and would not get the
/// reason.
const PERSISTENT_TIMEOUT: Duration = Duration::from_secs(50);

/// Another one takes no longer.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Tool for EvaluatePython {
    const NAME: &'static str = "evaluate_python";
    const EFFECT: Effect = Effect::Mutating;
    type Value = EvaluationResult;

    async fn call(self, workspace: &Workspace) -> Result<Response<EvaluationResult>> {
        let code = self.checked()?;
        let _permit = workspace.calls().acquire().await?;
        let session = workspace.ensure_session(SlotRole::Workspace).await?;
        if self.persistent.unwrap_or_default() {
            return self.run_persistent(workspace, &session, &code).await;
        }
        let command = ["python3", "-c", &code].map(str::to_owned).to_vec();
        let line = CommandLine { command, cwd: session.workdir.clone(), timeout: TIMEOUT };
        let run = ShellCommand { line, env: BTreeMap::new(), stdin: None, shown: Some(MAX_SHOWN) };
        let (output, survivors) = shell::run(workspace, &session, run).await?;
        let ended = shell::ended(&output, survivors, TIMEOUT, session.memory);
        // Nothing in the answer has room for it; the files' versions have.
        shell::detect_changes(workspace, &session, &output, Self::NAME).await;
        let mut answer = response(ended);
        answer.warnings.extend(shell::left_behind(survivors, workspace.settings.has_jobs));
        Ok(answer.at(&session))
    }

    fn render(answer: &Response<EvaluationResult>) -> String {
        let Some(it) = &answer.value else { return String::new() };
        let mut parts = Vec::new();
        parts.extend(shell::stream_text("stdout", &it.stdout, it.stdout_tail.as_deref()));
        parts.extend(persistent::render(&it.outputs, &it.files, it.kernel.as_ref()));
        parts.extend(shell::stream_text("stderr", &it.stderr, it.stderr_tail.as_deref()));
        parts.extend(it.output_id.as_deref().map(shell::rest_text));
        parts.join("\n")
    }
}

impl EvaluatePython {
    async fn run_persistent(
        &self,
        workspace: &Workspace,
        session: &SessionHandle,
        code: &str,
    ) -> Result<Response<EvaluationResult>> {
        let restart = self.restart.unwrap_or_default();
        let code = PersistentCode { role: SlotRole::Workspace, code, limit: PERSISTENT_TIMEOUT, restart };
        let PersistentRun { ended, reply, state, warnings } = persistent::run(workspace, session, code).await?;
        workspace.scan_disk_usage(session);
        let mut answer = response(ended);
        if let Some(error) = &reply.error
            && let Some(failure) = &mut answer.failure
            && failure.code == Code::EvaluationFailed
        {
            answer.message = format!("Evaluation failed: {}.", persistent::raised(error));
            failure.message.clone_from(&answer.message);
        }
        if let Some(value) = &mut answer.value {
            value.value_repr = reply.value;
            value.outputs = reply.outputs;
            value.files = reply.files;
            value.kernel = Some(state);
        }
        answer.warnings.extend(warnings);
        Ok(answer.at(session))
    }

    fn checked(&self) -> Result<String> {
        if self.restart.unwrap_or_default() && !self.persistent.unwrap_or_default() {
            return fail(Code::NotSupported, "`restart` needs `persistent`.");
        }
        for (given, message) in [
            (!self.globals.is_empty(), "evaluate_python globals are not supported."),
            (!self.reads.is_empty(), "evaluate_python reads are not supported; access the workspace directly."),
            (!self.writes.is_empty(), "evaluate_python writes are not supported; use the write_file tool."),
        ] {
            if given {
                return fail(Code::NotSupported, message);
            }
        }
        let code = self.code.replace("\r\n", "\n");
        if code.chars().any(|it| it < ' ' && it != '\n' && it != '\t') {
            return fail(Code::InvalidCode, "Code contains unsupported control characters.");
        }
        if code.chars().count() > MAX_CODE {
            return fail(Code::InvalidCode, "Code is too long (limit 48,000 characters).");
        }
        Ok(code)
    }
}

fn response(ended: shell::CommandResult) -> Response<EvaluationResult> {
    use crate::shell::Termination::{Cancelled, Exited, Oom, Signaled, TimedOut};

    let mut stderr = ended.stderr.clone();
    let timed_out = ended.termination == TimedOut;
    if timed_out {
        stderr.add_line("Execution timed out.");
    }
    let (message, code) = match (ended.termination, ended.exit_code) {
        (Exited, 0) => ("Evaluation succeeded (exit code 0).".to_owned(), None),
        (TimedOut, _) => ("Evaluation timed out.".to_owned(), Some(Code::TimedOut)),
        (Oom, _) => ("Evaluation was ended: memory limit reached.".to_owned(), Some(Code::OutOfMemory)),
        (Cancelled, _) => ("Evaluation was cancelled.".to_owned(), Some(Code::Cancelled)),
        (Exited | Signaled, exit) => (format!("Evaluation failed (exit code {exit})."), Some(Code::EvaluationFailed)),
    };
    let (stdout_tail, stderr_tail) = (end(&ended.stdout), end(&ended.stderr));
    let cut = stdout_tail.is_some() || stderr_tail.is_some();
    let value = EvaluationResult {
        value_repr: None,
        stdout: characters(&ended.stdout.text, MAX_SHOWN),
        stderr: ending(&stderr.text, timed_out),
        globals: Map::new(),
        reads: Vec::new(),
        writes: Vec::new(),
        exit_code: ended.exit_code,
        timed_out,
        duration_ms: shell::millis(ended.duration),
        output_id: ended.job.filter(|_| cut),
        stdout_tail,
        stderr_tail,
        outputs: Vec::new(),
        files: Vec::new(),
        kernel: None,
    };
    let mut answer = Response::done(message.clone(), value);
    answer.failure = code.map(|code| Failure::new(code, message));
    if ended.exit_code == 127 {
        answer.warnings.push(Warning::new("python_missing", "The image has no `python3`."));
    }
    answer
}

/// The end of a stream that is longer than its part in the answer, without what stands there already.
fn end(stream: &Inline) -> Option<String> {
    let after_start = match &stream.tail {
        Some(tail) => tail.chars().collect::<Vec<_>>(),
        None => stream.text.chars().skip(MAX_SHOWN - 3).collect(),
    };
    let is_cut = stream.truncated || stream.text.chars().count() > MAX_SHOWN;
    is_cut.then(|| after_start[after_start.len().saturating_sub(TAIL)..].iter().collect())
}

/// The reported part of the errors: the beginning of long ones, and at a timeout the last line in any case.
fn ending(stderr: &str, timed_out: bool) -> String {
    const LAST: &str = "Execution timed out.\n";
    if !timed_out || stderr.chars().count() <= MAX_SHOWN {
        return characters(stderr, MAX_SHOWN);
    }
    format!("{}\n{LAST}", characters(stderr, MAX_SHOWN - LAST.len() - 1))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use coracle_types::Capture;

    use super::{EvaluatePython, MAX_SHOWN, TAIL, end};
    use crate::output::{Inline, KEEP};

    fn end_of(text: &str) -> Option<String> {
        let mut capture = Capture::new(KEEP);
        capture.push(text.as_bytes());
        end(&Inline::from_capture(&capture))
    }

    #[test]
    fn a_stream_that_is_cut_shows_its_end_and_nothing_twice() {
        assert_eq!(end_of(&"x".repeat(MAX_SHOWN)), None);
        assert_eq!(end_of(&format!("{}yz", "x".repeat(MAX_SHOWN))).unwrap(), "xxxyz");
        let long = format!("{}end", "ä".repeat(100_000));
        let end = end_of(&long).unwrap();
        assert!(end.ends_with("ääend") && end.chars().count() == TAIL, "{}", end.chars().count());
    }

    #[test]
    fn w38_scripts_are_text_and_nothing_goes_beside_them() {
        let checked = |args: serde_json::Value| {
            let it: EvaluatePython = serde_json::from_value(args).unwrap();
            it.checked().map_err(|it| format!("{}: {}", it.code.word(), it.message))
        };
        assert_eq!(checked(json!({ "code": "a\r\n\tb" })).unwrap(), "a\n\tb");
        for (args, expected) in [
            (json!({ "code": "a\u{7}" }), "invalid_code: Code contains unsupported control characters."),
            (json!({ "code": "a\rb" }), "invalid_code: Code contains unsupported control characters."),
            (json!({ "code": "x".repeat(48_001) }), "invalid_code: Code is too long (limit 48,000 characters)."),
            (json!({ "code": "", "globals": {"a": 1} }), "not_supported: evaluate_python globals are not supported."),
            (
                json!({ "code": "", "reads": ["a"] }),
                "not_supported: evaluate_python reads are not supported; access the workspace directly.",
            ),
            (
                json!({ "code": "", "writes": ["a"] }),
                "not_supported: evaluate_python writes are not supported; use the write_file tool.",
            ),
        ] {
            assert_eq!(checked(args).unwrap_err(), expected);
        }
    }
}
