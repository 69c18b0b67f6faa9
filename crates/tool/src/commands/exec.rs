//! `exec`: runs a command in a container and waits for it.

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_context::arg_types::{Script, Seconds, Size};
use coracle_context::config::Config;
use coracle_context::container_proxy;
use coracle_context::context::{Context, Frontend};
use coracle_context::document::{Document, ProgramOutput, Render, StyledText, optional};
use coracle_context::failure::{Code, Failure, StoppedContainer};
use coracle_context::humanize::{duration, millis};
use coracle_context::model_text::CommandText;
use coracle_context::redaction;
use coracle_context::warning::Warning;
use coracle_lifecycle::Record;
use coracle_prepare::resolve::no_secret;
use coracle_runtime::ExecTarget;
use coracle_types::{
    AtLimit, ByteSize, Capture, ContainerPath, ExecLimits, ExecOutput, Exit, Handle, Ids, Input, JobId, LimitKind,
    Redactor,
};
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::TIMED_OUT;
use super::command_request::CommandRequest;
use super::job::Encoding;
use crate::dispatch::{Effect, Operation, SharedFields};
use crate::protected_paths;
use crate::schema::result_schema;
use crate::target::{Access, CommandTarget, reach_inside};

/// Run a command and wait. One that fails or is ended at a limit is a successful call: see `exit_code`
/// and `timed_out`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Exec {
    #[serde(flatten)]
    pub(crate) request: CommandRequest,
    /// Seconds (or `90s`, `10m`) before a wait ends, or a command and everything it started is ended (`exec_background`: 0
    /// is never).
    #[schemars(extend("default" = 300))]
    pub(crate) timeout: Option<Seconds>,
    /// What to do at a limit: `kill`, or `keep` to leave it running as a job.
    #[schemars(with = "Option<String>", extend("default" = "kill", "enum" = ["kill", "keep"]))]
    pub(crate) on_timeout: Option<OnTimeout>,
    /// Bytes answered of each stream; of more, both ends, as `base64` the first half.
    #[schemars(with = "Option<Size>")]
    pub(crate) max_output: Option<ByteSize>,
    /// `text` (what is not UTF-8 becomes U+FFFD) or `base64`.
    #[schemars(with = "Option<String>", extend("default" = "text", "enum" = ["text", "base64"]))]
    pub(crate) encoding: Option<Encoding>,
    /// The call with which the caller reads the omitted part of a stream.
    #[serde(skip)]
    pub(crate) rest: RestCall,
}

/// The call that reads the omitted part of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum RestCall {
    /// The operation `job_read`.
    #[default]
    JobRead,
    /// The tool `containers` of the toolset `agent`, whose tool `job` counts both streams together.
    ContainersTool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum OnTimeout {
    Kill,
    Keep,
}

/// The answer of `exec`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ExecResponse {
    returncode: Option<u8>,
    pub(crate) exit_code: Option<u8>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) timed_out: bool,
    #[schemars(with = "Option<String>")]
    timeout_kind: Option<LimitKind>,
    pub(crate) signal: Option<String>,
    pub(crate) truncated: bool,
    stdout_bytes: u64,
    stderr_bytes: u64,
    #[schemars(with = "Option<String>")]
    pub(crate) job_id: Option<JobId>,
    running: bool,
    left_running: u32,
    tree_ended: Option<bool>,
    container: String,
    #[schemars(with = "String")]
    user: Ids,
    #[schemars(with = "String")]
    workdir: ContainerPath,
    #[schemars(with = "String")]
    encoding: Encoding,
    pub(crate) duration_ms: u64,
}

/// Maximum length of one argument without a guest: the command then becomes arguments of the engine's program, and the
/// kernel takes none above 128 KiB.
const MAX_WORD: usize = 90 << 10;

/// Maximum length of a command in bytes, all arguments together.
const MAX_COMMAND: usize = 1 << 20;

impl Operation for Exec {
    const NAME: &'static str = "exec";
    const EFFECT: Effect = Effect::Mutating;
    const SHARED: SharedFields = SharedFields::for_type::<CommandRequest>();
    const RESULT: fn() -> Value = result_schema::<ExecResponse>;
    type Response = ExecResponse;

    async fn run(self, cx: &Context) -> Result<ExecResponse, Failure> {
        self.check(&cx.config)?;
        let (env, stdin, container) = (self.request.env()?, self.request.stdin()?, &self.request.container);
        let CommandTarget { record, inside, session } = reach_inside(cx, container, self.request.as_root()).await?;
        self.check_plain(&inside, &env)?;
        let redactor = Box::pin(redaction::redactor(cx, &record, &inside, &env)).await?;
        let mut exec = self.request.exec(&session, env)?;
        exec.stdin = stdin.map(Input::Bytes).or_else(|| cx.take_input());
        exec.limits = limits(cx, self.timeout, self.request.silence_timeout);
        exec.at_limit = if self.on_timeout == Some(OnTimeout::Keep) { AtLimit::Keep } else { AtLimit::End };
        exec.keep_bytes = inline_bytes(cx, self.max_output);
        exec.cancel = cx.call.cancel.clone();
        exec.live = redaction::live(cx.call.progress.live(), &redactor);
        let workdir = exec.workdir.clone();
        let _place = cx.engines().place().await?;
        let output = match inside.exec(exec).await {
            Ok(output) => output,
            Err(err) => {
                if let Some(removed) = removed_meanwhile(cx, &record).await {
                    return Err(removed);
                }
                let err = lost_with_container(cx, container, err).await;
                return Err(failed(err, &record, &redactor));
            }
        };
        if output.exit == Exit::Cancelled {
            if !cx.call.cancel.is_cancelled()
                && let Some(removed) = removed_meanwhile(cx, &record).await
            {
                return Err(removed.detail("tree_ended", output.tree_ended));
            }
            return Err(Failure::cancelled().known("container", &record.name).detail("tree_ended", output.tree_ended));
        }
        if let (Exit::Running(_), Some(job), ExecTarget::Guest(link)) = (output.exit, &output.job, &inside) {
            super::job::remember(cx, &record, link, job).await;
        }
        cx.warn(noteworthy(&output).into_iter().chain(protected_paths::refused_write(&record, &output)));
        cx.warn(container_proxy::refused(cx, &record).await);
        let encoding = self.encoding.unwrap_or_default();
        if encoding == Encoding::Base64 {
            let streams = [("stdout", &output.stdout), ("stderr", &output.stderr)];
            cx.warn(streams.into_iter().filter_map(|(name, stream)| cut_warning(name, stream, output.job.as_ref())));
        }
        Ok(ExecResponse {
            workdir,
            ..response(&output, encoding, (record.name.to_string(), session.user), &redactor, self.rest)
        })
    }
}

fn noteworthy(output: &ExecOutput) -> Vec<Warning> {
    let mut warnings = Vec::new();
    if output.tree_ended == Some(false) {
        warnings.push(Warning::new("left_running", "some of the command's processes could not be ended"));
    }
    if output.left_running > 0 {
        let left = output.left_running;
        let what = if left == 1 { "1 process".to_owned() } else { format!("{left} processes") };
        let message =
            format!("the command left {what} running; start processes that should continue with `exec_background`");
        warnings.push(Warning::new("left_running", message));
    }
    if output.retried {
        warnings.push(Warning::new("retried_link", "the link to the guest broke and was restored; nothing ran twice"));
    }
    warnings
}

/// Returns the error for a command whose container another call is removing or has removed.
async fn removed_meanwhile(cx: &Context, record: &Record) -> Option<Failure> {
    let store = cx.store().ok()?;
    // By the record's id, since another container may have the name by now.
    let is_gone = || store.records().is_ok_and(|records| records.iter().all(|it| it.record_id != record.record_id));
    if !store.is_being_removed(&record.name).await.unwrap_or(false) && !is_gone() {
        return None;
    }
    let message = format!("`{}` was removed by another call while the command ran", record.name);
    let failure = Failure::new(Code::ContainerRemoved, message).known("container", &record.name);
    Some(failure.hint("the command was ended; `create` makes another container"))
}

/// Replaces the error of a broken link by that of a stopped container, if that is why the link broke.
pub(crate) async fn lost_with_container(
    cx: &Context,
    handle: &Handle,
    err: coracle_types::Error,
) -> coracle_types::Error {
    use coracle_types::Error::{GuestFailed, GuestLost, LifetimeOver, NotRunning};
    if !matches!(err, GuestLost { .. } | GuestFailed { .. }) {
        return err;
    }
    let Ok(found) = crate::target::reach(cx, handle, Access::Use).await else { return err };
    let Some(id) = &found.record.id else { return err };
    match coracle_runtime::ended(&*found.runtime, id).await {
        Some(NotRunning { status, exit_code, oom_killed, .. }) => {
            let output = if let GuestLost { output, .. } = err { output } else { None };
            NotRunning { status, exit_code, oom_killed, output }
        }
        Some(over @ LifetimeOver { .. }) => over,
        _ => err,
    }
}

impl Exec {
    fn check(&self, config: &Config) -> Result<(), Failure> {
        check_command(config, &self.request.command, self.timeout)?;
        if self.max_output.is_some_and(|it| !(1 << 10..=4 << 20).contains(&it.0)) {
            return Err(Failure::invalid("max_output", "from 1k to 4m"));
        }
        Ok(())
    }

    /// Refuses requests that need a guest, if the container has none.
    fn check_plain(&self, inside: &ExecTarget, env: &BTreeMap<String, String>) -> Result<(), Failure> {
        let ExecTarget::Plain(..) = inside else { return Ok(()) };
        no_secret(env, "leave it out: without a guest it would be seen in the host's process list")?;
        let unsupported = |message: &str, hint: &str| {
            Err(Failure::new(Code::Unsupported, message).detail("capability", "guest").hint(hint))
        };
        if self.on_timeout == Some(OnTimeout::Keep) {
            return unsupported(
                "a command without a guest cannot continue as a job",
                "omit `on_timeout` and set a longer `timeout`",
            );
        }
        if self.request.command.0.clone().into_argv().iter().any(|it| it.len() > MAX_WORD) {
            return unsupported(
                "an argument of the command is longer than 90 KiB, which needs a guest",
                "copy a script in with `copy_in`, or pass the data as `stdin`",
            );
        }
        Ok(())
    }
}

/// Refuses a command that is too long, and a timeout outside the configured limits.
pub(crate) fn check_command(config: &Config, command: &Script, timeout: Option<Seconds>) -> Result<(), Failure> {
    if command.0.clone().into_argv().iter().map(String::len).sum::<usize>() > MAX_COMMAND {
        return Err(Failure::invalid("command", "at most 1 MiB together")
            .hint("copy a script in with `copy_in`, or give the data as `stdin`"));
    }
    if timeout.is_some_and(|it| it.0 < Duration::from_millis(100)) {
        return Err(Failure::invalid("timeout", "at least 0.1 s").hint("leave it out for the configured time"));
    }
    let Some(timeout) = timeout.filter(|it| *it > config.exec.timeout_max) else { return Ok(()) };
    let message = format!("timeout {timeout} is above {}", config.exec.timeout_max);
    let (rule, setting) = ("limit.timeout", Some("exec.timeout_max"));
    let problem = coracle_runtime::Problem { rule, setting, value: timeout.to_string(), message };
    Err(coracle_runtime::PolicyRefusal { problems: vec![problem] }.into())
}

/// Returns the time limits of a command. A command that a user runs at a terminal, such as a development server, is ended with
/// Ctrl-C: it has a total limit only if the call or the configuration sets one.
pub(crate) fn limits(cx: &Context, timeout: Option<Seconds>, silence: Option<Seconds>) -> ExecLimits {
    let config = &cx.config;
    let is_at_terminal = cx.call.frontend == Frontend::Cli && cx.host.stdin_is_terminal && cx.host.stdout_is_terminal;
    let is_configured = config.exec.timeout != Config::default().exec.timeout;
    let usual = (!is_at_terminal || is_configured).then_some(config.exec.timeout);
    ExecLimits {
        total: timeout.or(usual).map(|it| it.0),
        silence: silence.unwrap_or(config.exec.silence_timeout).unless_zero(),
        grace: config.exec.grace.0,
    }
}

/// Maximum number of bytes of each stream in a response.
pub(crate) fn inline_bytes(cx: &Context, requested: Option<ByteSize>) -> usize {
    let default = if cx.call.frontend == Frontend::Mcp { cx.config.exec.inline_mcp } else { cx.config.exec.inline };
    usize::try_from(requested.unwrap_or(default).0).unwrap_or(usize::MAX)
}

/// Builds the response for a command that ran in a sandbox. Its programs get no secrets, so nothing is redacted.
pub(crate) fn sandbox_response(
    cx: &Context,
    output: &ExecOutput,
    container: String,
    exec: (Ids, ContainerPath),
) -> ExecResponse {
    let (user, workdir) = exec;
    cx.warn(noteworthy(output));
    let answer = response(output, Encoding::Text, (container, user), &Redactor::default(), RestCall::JobRead);
    ExecResponse { workdir, ..answer }
}

/// Builds the error of a failed command. If its container ended, the error has the output so far.
fn failed(err: coracle_types::Error, record: &Record, redactor: &Redactor) -> Failure {
    let so_far = match &err {
        coracle_types::Error::NotRunning { output: Some(output), .. }
        | coracle_types::Error::GuestLost { output: Some(output), .. } => {
            let text = |it: &Capture| shown(it, Encoding::Text, None, redactor);
            Some((text(&output.stdout), text(&output.stderr)))
        }
        _ => None,
    };
    let oom_killed = match &err {
        coracle_types::Error::NotRunning { oom_killed, .. } => Some(*oom_killed),
        _ => None,
    };
    let mut failure = Failure::from(err).known("container", &record.name);
    if let Some(oom_killed) = oom_killed {
        let (name, engine) = (record.name.as_str(), Some(record.engine));
        failure = failure.hint_stopped(StoppedContainer { name, engine, oom_killed });
    }
    match so_far {
        Some((stdout, stderr)) => failure.known("stdout", stdout).known("stderr", stderr),
        None => failure,
    }
}

fn response(
    output: &ExecOutput,
    encoding: Encoding,
    (container, user): (String, Ids),
    redactor: &Redactor,
    rest: RestCall,
) -> ExecResponse {
    let (code, kind) = match output.exit {
        Exit::Code(code) => (Some(code), None),
        // `timed_out` distinguishes it from a command that exits with 124 itself.
        Exit::TimedOut(kind) => (Some(TIMED_OUT), Some(kind)),
        Exit::Running(kind) => (None, Some(kind)),
        Exit::Cancelled => (Some(130), None),
    };
    let job = output.job.as_ref();
    let rest = |stream| job.map(|job| StreamRest { call: rest, container: &container, job, stream });
    let stdout = shown(&output.stdout, encoding, rest("stdout"), redactor);
    let stderr = shown(&output.stderr, encoding, rest("stderr"), redactor);
    ExecResponse {
        returncode: code,
        exit_code: code,
        stdout,
        stderr,
        timed_out: kind.is_some(),
        timeout_kind: kind,
        signal: output.signal.map(coracle_jobs::signal_name).filter(|_| kind.is_none()),
        truncated: output.stdout.left_out() + output.stderr.left_out() > 0,
        stdout_bytes: output.stdout.total_bytes(),
        stderr_bytes: output.stderr.total_bytes(),
        job_id: output.job.clone(),
        running: matches!(output.exit, Exit::Running(_)),
        left_running: output.left_running,
        tree_ended: output.tree_ended,
        container,
        user,
        workdir: ContainerPath::root(),
        encoding,
        duration_ms: millis(output.duration),
    }
}

/// The omitted part of a stream, and how to read it.
struct StreamRest<'a> {
    call: RestCall,
    container: &'a str,
    job: &'a JobId,
    stream: &'a str,
}

impl StreamRest<'_> {
    /// Renders the call that reads the stream from `offset` on.
    fn call_from(&self, offset: usize) -> String {
        let Self { call, container, job, stream } = self;
        match call {
            RestCall::JobRead => format!("; job_read job_id={job} stream={stream} offset={offset}"),
            RestCall::ContainersTool => {
                let fields = format!(r#""job_id":"{job}","stream":"{stream}","offset":{offset}"#);
                format!(r#": `containers` {{"operation":"job_read","container":"{container}",{fields}}}"#)
            }
        }
    }
}

/// Warns about a truncated stream in base64, which cannot contain a line that says what is missing.
fn cut_warning(name: &str, stream: &Capture, job: Option<&JobId>) -> Option<Warning> {
    (stream.left_out() > 0).then(|| {
        let (shown, all) = (stream.head().len(), stream.total_bytes());
        let rest = job.map_or_else(String::new, |job| {
            format!("; `job_read` with `job_id` {job}, `stream` {name}, `offset` {shown} and `encoding` base64 reads the rest")
        });
        Warning::new("output_cut", format!("`{name}` has the first {shown} of {all} bytes{rest}"))
    })
}

/// Renders a stream for the response: complete, or its two ends with a line between them that counts the omitted bytes.
/// Base64 has only the beginning, since two ends would not decode as one text.
fn shown(capture: &Capture, encoding: Encoding, rest: Option<StreamRest<'_>>, redactor: &Redactor) -> String {
    let (left_out, tail) = (capture.left_out(), capture.tail());
    let clean = |bytes: &[u8]| redactor.clean_between(&[], bytes, &[]);
    if left_out == 0 {
        let whole = clean(&capture.bytes());
        return match encoding {
            Encoding::Text => String::from_utf8_lossy(&whole).into_owned(),
            Encoding::Base64 => STANDARD.encode(whole),
        };
    }
    // A secret that was cut in half is not shown either.
    let head = &capture.head()[..capture.head().len() - redactor.unfinished(capture.head())];
    if encoding == Encoding::Base64 {
        return STANDARD.encode(clean(head));
    }
    let (head, tail) = (whole_start(head), whole_end(&tail));
    let tail = &tail[redactor.left_over(tail)..];
    let rest = rest.map_or_else(String::new, |rest| rest.call_from(head.len()));
    let (head, tail) = (clean(head), clean(tail));
    let (head, tail) = (String::from_utf8_lossy(&head), String::from_utf8_lossy(&tail));
    format!("{head}\n[… {left_out} bytes left out{rest} …]\n{tail}")
}

/// Removes a character that was cut off at the end.
fn whole_start(bytes: &[u8]) -> &[u8] {
    let cut = bytes.utf8_chunks().last().map_or(0, |it| it.invalid().len());
    if cut < 4 { &bytes[..bytes.len() - cut] } else { bytes }
}

/// Without the rest of a character that was cut at the start.
fn whole_end(bytes: &[u8]) -> &[u8] {
    let rest = bytes.iter().take(3).take_while(|it| **it & 0b1100_0000 == 0b1000_0000).count();
    &bytes[rest..]
}

impl Render for ExecResponse {
    fn render(&self, _: Timestamp) -> Document {
        let [stdout, stderr] = [&self.stdout, &self.stderr].map(|it| it.clone().into_bytes());
        let output = ProgramOutput::Command { stdout, stderr, exit_code: self.exit_code };
        // A command that was left running has no code yet, and its limit was reached all the same.
        let exit_code = self.exit_code.unwrap_or(TIMED_OUT);
        let document = Document { exit_code, ..Document::of_output(output) };
        if self.timed_out { document.note(self.limit_note()) } else { document }
    }

    fn render_for_model(&self) -> String {
        let text = CommandText {
            stdout: self.stdout.clone(),
            stderr: &self.stderr,
            exit_code: self.exit_code,
            signal: self.signal.as_deref(),
            timed_out: self.timed_out,
            running_as: self.job_id.as_ref().filter(|_| self.running).map(ToString::to_string),
            duration_ms: self.duration_ms,
        };
        text.render()
    }
}

impl ExecResponse {
    /// Why a command was ended before its time.
    fn limit_note(&self) -> StyledText {
        let limit = if self.timeout_kind == Some(LimitKind::Silence) { "--silence-timeout" } else { "--timeout" };
        let after = duration(self.duration_ms);
        let note = StyledText::new().doubtful("timed out");
        if self.running {
            let job = optional(self.job_id.as_ref());
            return note.plain(format!(": left running after {after} (`{limit}`) as job {job}"));
        }
        let left = match self.tree_ended {
            Some(true) => "; nothing of the command is left running",
            Some(false) => "; some of its processes could not be ended",
            None => "",
        };
        note.plain(format!(": ended after {after} (`{limit}`){left}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn capture(keep_bytes: usize, bytes: &[u8]) -> Capture {
        let mut it = Capture::new(keep_bytes);
        it.push(bytes);
        it
    }

    #[test]
    fn base64_that_is_cut_has_a_warning_with_the_call_that_reads_the_rest() {
        assert!(cut_warning("stdout", &capture(10, b"0123456789"), None).is_none());
        let job = JobId::parse("1f0c9a2e").unwrap();
        let warning = cut_warning("stdout", &capture(10, b"0123456789ab"), Some(&job)).unwrap();
        let rest =
            "; `job_read` with `job_id` 1f0c9a2e, `stream` stdout, `offset` 5 and `encoding` base64 reads the rest";
        assert_eq!(
            (&*warning.code, warning.message),
            ("output_cut", format!("`stdout` has the first 5 of 12 bytes{rest}"))
        );
    }

    #[test]
    fn a_stream_within_its_limit_is_given_whole() {
        assert_eq!(shown(&capture(10, b"a\xffb"), Encoding::Text, None, &Redactor::default()), "a\u{fffd}b");
        assert_eq!(shown(&capture(10, b"a\xffb"), Encoding::Base64, None, &Redactor::default()), "Yf9i");
    }

    #[test]
    fn a_cut_stream_has_both_ends_cut_between_characters() {
        let text = "ä".repeat(50);
        let cut = capture(10, text.as_bytes());
        assert_eq!(shown(&cut, Encoding::Text, None, &Redactor::default()), "ää\n[… 90 bytes left out …]\nää");
        let job = JobId::parse("0a1b2c3d").unwrap();
        let with_rest = |call| {
            let rest = StreamRest { call, container: "web", job: &job, stream: "stderr" };
            shown(&cut, Encoding::Text, Some(rest), &Redactor::default())
        };
        let rest = "; job_read job_id=0a1b2c3d stream=stderr offset=4 …]";
        assert!(with_rest(RestCall::JobRead).contains(rest));
        let call = r#"{"operation":"job_read","container":"web","job_id":"0a1b2c3d","stream":"stderr","offset":4}"#;
        assert!(with_rest(RestCall::ContainersTool).contains(&format!("left out: `containers` {call} …]")));
    }

    #[test]
    fn a_limit_is_noted_with_what_is_left() {
        let nothing = (capture(16, b""), capture(16, b""));
        let (exit, duration) = (Exit::TimedOut(LimitKind::Silence), Duration::from_millis(1204));
        let output = ExecOutput::plain(exit, nothing, Some(true), duration);
        let container = || ("web".to_owned(), Ids::ROOT);
        let mut ended = response(&output, Encoding::Text, container(), &Redactor::default(), RestCall::JobRead);
        assert_eq!(
            ended.limit_note().to_string(),
            "timed out: ended after 1.2 s (`--silence-timeout`); nothing of the command is left running"
        );
        assert_eq!(ended.render(Timestamp::UNIX_EPOCH).exit_code, 124);
        (ended.running, ended.job_id) = (true, Some(JobId::parse("0a1b2c3d").unwrap()));
        (ended.timeout_kind, ended.duration_ms) = (Some(LimitKind::Total), 500);
        assert_eq!(ended.limit_note().to_string(), "timed out: left running after 0.5 s (`--timeout`) as job 0a1b2c3d");
    }
}
