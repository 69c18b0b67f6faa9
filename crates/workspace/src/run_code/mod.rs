//! `run_code`: a snippet in a container of its own.

mod host_files;
mod preload;
mod response;
mod snippet;

use std::time::Duration;

use coracle_client::WriteFile;
use coracle_protocol::{FileRef, UserSpec};
use coracle_types::{Command, ContainerPath, Exec, ExecLimits, ExecOutput, Ids, Input, random_hex};
use schemars::JsonSchema;
use serde::Deserialize;

pub use self::response::RunCodeResult;
use self::snippet::{GRACE, Snippet};
use crate::output::{INLINE, KEEP};
use crate::persistent::{self, PersistentCode, PersistentRun};
use crate::response::{Result, fail};
use crate::shell::check::MAX_STDIN;
use crate::shell::{Termination, ended, millis};
use crate::time_limit::{TimeBounds, TimeLimit, given_twice};
use crate::{Alias, Code, Failure, Language, Mode, Reason, RunSettings, SessionHandle, SlotRole, Workspace};

/// Run a snippet of TypeScript, JavaScript, Python or bash in an isolated container and give back what it prints. Files in
/// `/packages` stay for the session.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RunCode {
    /// The snippet, at most 1 MiB.
    #[schemars(with = "String")]
    pub code: serde_json::Value,
    /// `typescript`, `javascript`, `python` or `bash`.
    #[schemars(with = "Option<String>", extend("default" = "typescript", "enum" = ["typescript", "javascript", "python", "bash"]))]
    pub language: Option<String>,
    /// Seconds, or a text such as `90s`, before it is ended.
    #[schemars(with = "Option<TimeLimit>", extend("default" = 30))]
    pub timeout: Option<serde_json::Value>,
    /// The same in milliseconds, where more than the maximum counts as the maximum.
    #[schemars(skip)]
    pub timeout_ms: Option<f64>,
    /// Text for its standard input.
    pub stdin: Option<String>,
    /// Run as Python that keeps variables for later calls; the last expression, figures and tables are shown.
    pub persistent: Option<bool>,
    /// With `persistent`: begin without earlier variables.
    pub restart: Option<bool>,
}

/// Where a container for snippets has them.
const CODE: &str = "/code";

/// Bytes of a snippet.
const MAX_CODE: usize = 1 << 20;

/// Seconds of a snippet whose caller gives no limit, and at least.
const SECONDS: (f64, f64) = (30.0, 0.1);

/// Its `timeout` was in milliseconds once.
const UNIT: &str = "A number is seconds: write 30 or \"30s\" for half a minute, or give milliseconds as timeout_ms.";

/// What a snippet left behind gets so long after TERM.
const LEFTOVER_GRACE: Duration = Duration::from_millis(100);

impl RunCode {
    /// The tool's name.
    pub const NAME: &'static str = "run_code";

    /// Further names of its fields.
    pub const ALIASES: &'static [Alias] = &[Alias { name: "timeout_ms", of: "timeout" }];

    /// Runs it. A failure is an answer, too, with the same fields.
    pub async fn run(self, workspace: &Workspace) -> RunCodeResult {
        let run_id = random_hex::<4>();
        let word = self.language.clone();
        let usual = self.usual_language();
        let limit =
            self.limit(&workspace.settings.run).unwrap_or_else(|_| bounds(&workspace.settings.run).clamped(SECONDS.0));
        let mode = &workspace.settings.run.mode;
        let ran = match (self.checked(&workspace.settings.run), mode) {
            (Ok(snippet), Mode::Container) if snippet.is_persistent => {
                Box::pin(run_persistent(workspace, &snippet)).await
            }
            (Ok(snippet), Mode::Preload(preload)) => preload.run(workspace, snippet).await,
            (Ok(snippet), _) => Box::pin(run(workspace, &run_id, snippet)).await,
            (Err(failure), _) => Err(failure),
        };
        let mut ran = ran.unwrap_or_else(|failure| RunCodeResult::failed(&failure, mode));
        ran.run_id = run_id;
        ran.language = word.unwrap_or_else(|| usual.word().to_owned());
        ran.timeout_ms = millis(limit);
        ran
    }

    fn usual_language(&self) -> Language {
        if self.persistent.unwrap_or_default() { Language::Python } else { Language::TypeScript }
    }

    /// Its time limit.
    fn limit(&self, settings: &RunSettings) -> Result<Duration> {
        let bounds = bounds(settings);
        match (&self.timeout, self.timeout_ms) {
            (Some(_), Some(_)) => given_twice("timeout_ms"),
            (Some(given), None) => bounds.read(given, Some(UNIT)),
            (None, given) => {
                let seconds = given.filter(|it| it.is_finite()).map(|it| it / 1000.0);
                Ok(bounds.clamped(seconds.unwrap_or(bounds.default)))
            }
        }
    }

    fn checked(self, settings: &RunSettings) -> Result<Snippet> {
        mode(&settings.mode)?;
        let (timeout, usual) = (self.limit(settings), self.usual_language());
        let serde_json::Value::String(code) = self.code else {
            return fail(Code::CodeRequired, "Code parameter is required and must be a string");
        };
        if code.is_empty() {
            return fail(Code::CodeRequired, "Code parameter is required and must be a string");
        }
        if code.len() > MAX_CODE {
            return fail(Code::CodeTooLarge, "Code is too large (limit 1 MiB).");
        }
        if self.stdin.as_ref().is_some_and(|it| it.chars().count() > MAX_STDIN) {
            return fail(Code::InvalidStdin, "stdin exceeds 48,000 characters.");
        }
        let word = self.language.as_deref().unwrap_or(usual.word());
        let Some(language) = Language::parse(word) else {
            let message =
                format!("No language `{}`; there are typescript, javascript, python and bash.", word.escape_debug());
            return fail(Code::LanguageUnknown, message);
        };
        if let Mode::Preload(preload) = &settings.mode {
            preload.check(language)?;
        }
        let (is_persistent, restart) = (self.persistent.unwrap_or_default(), self.restart.unwrap_or_default());
        let snippet = Snippet { code, language, timeout: timeout?, stdin: self.stdin, is_persistent, restart };
        snippet.check_persistent(&settings.mode)?;
        Ok(snippet)
    }
}

fn mode(mode: &Mode) -> Result<()> {
    match mode {
        Mode::Container | Mode::Preload(_) => Ok(()),
        Mode::Unavailable => fail(
            Code::ExecutionModeUnavailable,
            "EXECUTION_MODE is `preload`, and no `run_code.preload` is configured; use `container`.",
        ),
        Mode::Invalid(word) => fail(
            Code::ExecutionModeInvalid,
            format!("EXECUTION_MODE is `{}`; it has to be `container` or `preload`.", word.escape_debug()),
        ),
    }
}

fn bounds(settings: &RunSettings) -> TimeBounds {
    TimeBounds { default: SECONDS.0, least: SECONDS.1, most: settings.max_timeout.as_secs_f64() }
}

async fn run(workspace: &Workspace, run_id: &str, snippet: Snippet) -> Result<RunCodeResult> {
    // The file's path is fixed, so snippets run one after another, and none sees another's.
    let _permit = workspace.runs().acquire().await?;
    let session = workspace.ensure_session(SlotRole::Run).await?;
    let settings = &workspace.settings.run;
    let place = SnippetPlace::new(&session, settings, run_id)?;
    match &session.code {
        Some(dir) => host_files::put(dir, run_id, &snippet)?,
        None => put(&session, &snippet, &place).await?,
    }
    let output = execute(workspace, &session, &snippet, &place).await;
    // The next snippet writes a file of its own; a leftover is visible to this session only.
    match &session.code {
        Some(dir) => host_files::remove(dir, snippet.language),
        None => drop(session.link.remove(place.to_remove(snippet.language), settings.is_named).await),
    }
    let output = output?;
    let left = output.left_running;
    if let Some(job) = output.job.as_ref().filter(|_| left > 0) {
        let _ = session.link.cancel(job, LEFTOVER_GRACE).await;
    }
    let ended = ended(&output, left, snippet.timeout, session.memory);
    if ended.termination == Termination::TimedOut && settings.discard_at_timeout {
        workspace.sessions().discard(SlotRole::Run, Reason::Timeout).await;
    } else {
        workspace.sessions().touch(SlotRole::Run);
    }
    Ok(RunCodeResult::new(ended, Some(&session), snippet.timeout, settings))
}

async fn run_persistent(workspace: &Workspace, snippet: &Snippet) -> Result<RunCodeResult> {
    let _permit = workspace.runs().acquire().await?;
    let session = workspace.ensure_session(SlotRole::Run).await?;
    let Snippet { code, timeout, restart, .. } = snippet;
    // In a container that is named, variables are those of `evaluate_python` there.
    let role = if workspace.settings.run.is_named { SlotRole::Workspace } else { SlotRole::Run };
    let code = PersistentCode { role, code, limit: *timeout, restart: *restart };
    let PersistentRun { ended, reply, state, warnings } = persistent::run(workspace, &session, code).await?;
    workspace.sessions().touch(SlotRole::Run);
    let mut ran = RunCodeResult::new(ended, Some(&session), *timeout, &workspace.settings.run);
    if let Some(error) = reply.error.as_ref().filter(|_| ran.code == Some(Code::RunFailed)) {
        ran.error = Some(persistent::raised(error));
        ran.message.clone_from(&ran.error);
    }
    ran.warnings.extend(warnings);
    Ok(RunCodeResult { outputs: reply.outputs, files: reply.files, kernel: Some(state), ..ran })
}

/// The path and owner of a snippet's file, and the directory in which the snippet runs.
#[derive(Debug)]
struct SnippetPlace {
    dir: String,
    owner: Ids,
    workdir: ContainerPath,
}

impl SnippetPlace {
    /// Root's own directory in a container for snippets. In a container that the call names, a directory of its user,
    /// which is removed after the run.
    fn new(session: &SessionHandle, settings: &RunSettings, run_id: &str) -> Result<Self> {
        if settings.is_named {
            let dir = format!("/tmp/coracle-run-{run_id}");
            return Ok(Self { dir, owner: session.user, workdir: session.workdir.clone() });
        }
        let workdir = ContainerPath::parse(CODE).map_err(|err| Failure::new(Code::Internal, err.to_string()))?;
        Ok(Self { dir: CODE.into(), owner: Ids::ROOT, workdir })
    }

    fn file(&self, language: Language) -> String {
        format!("{}/{}", self.dir, language.file_name())
    }

    fn at(&self, path: String) -> FileRef {
        FileRef { user: UserSpec::Ids { uid: self.owner.uid, gid: Some(self.owner.gid) }, path, follow: false }
    }

    fn to_remove(&self, language: Language) -> FileRef {
        self.at(if self.dir == CODE { self.file(language) } else { self.dir.clone() })
    }
}

/// A new file each time, because the last one may still be open in a process.
async fn put(session: &SessionHandle, snippet: &Snippet, place: &SnippetPlace) -> Result<()> {
    let put = WriteFile {
        at: place.at(place.file(snippet.language)),
        mode: Some(0o444),
        exact: true,
        parents: true,
        replace: true,
        content: Input::Bytes(snippet.code.clone().into_bytes()),
    };
    match session.link.put(put).await {
        Ok(_) => Ok(()),
        Err(err) => Err(crate::workspace::failed(&err, false)),
    }
}

async fn execute(
    workspace: &Workspace,
    session: &SessionHandle,
    snippet: &Snippet,
    place: &SnippetPlace,
) -> Result<ExecOutput> {
    let settings = &workspace.settings.run;
    let words = snippet.language.command(place.file(snippet.language), settings.has_network);
    let mut exec = Exec::new(Command::Argv(words), session.user, place.workdir.clone());
    exec.env = session.env.clone();
    exec.stdin = snippet.stdin.clone().map(|it| Input::Bytes(it.into_bytes()));
    exec.limits = ExecLimits { total: Some(snippet.timeout), silence: None, grace: GRACE };
    exec.keep_bytes = KEEP;
    exec.passes_on = Some(INLINE);
    exec.cancel = workspace.cancel.clone();
    exec.live = workspace.live.clone();
    workspace.exec(session, exec).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::time::Duration;

    use coracle_types::ByteSize;

    use super::{Language, Mode, RunCode, mode};
    use crate::RunSettings;

    fn settings() -> RunSettings {
        RunSettings {
            mode: Mode::Container,
            max_timeout: Duration::from_secs(120),
            memory: ByteSize(512 << 20),
            discard_at_timeout: true,
            has_network: false,
            is_named: false,
        }
    }

    #[test]
    fn r19_a_language_is_one_of_four_words() {
        for word in ["typescript", "javascript", "python", "bash"] {
            assert_eq!(Language::parse(word).unwrap().word(), word);
        }
        assert_eq!(Language::parse("ruby"), None);
        assert_eq!(
            Language::TypeScript.command("/code/main.ts".into(), false).join(" "),
            "bun run --no-install /code/main.ts"
        );
        assert_eq!(Language::JavaScript.command("/code/main.js".into(), true).join(" "), "bun run /code/main.js");
    }

    #[test]
    fn r03_only_two_words_are_modes() {
        assert!(mode(&Mode::Container).is_ok());
        let failure = mode(&Mode::Invalid("Container".into())).unwrap_err();
        assert_eq!(failure.code.word(), "execution_mode_invalid");
        assert_eq!(mode(&Mode::Unavailable).unwrap_err().code.word(), "execution_mode_unavailable");
    }

    #[test]
    fn time_is_within_bounds() {
        for (given, expected) in [
            (json!({}), Ok(30_000)),
            (json!({ "timeout": 5 }), Ok(5000)),
            (json!({ "timeout": "90s" }), Ok(90_000)),
            (json!({ "timeout": 0.01 }), Ok(100)),
            (json!({ "timeout_ms": 1 }), Ok(100)),
            (json!({ "timeout_ms": 1e12 }), Ok(120_000)),
            (json!({ "timeout_ms": 250.5 }), Ok(250)),
            (json!({ "timeout": 30_000 }), Err("milliseconds as timeout_ms")),
            (json!({ "timeout": 1, "timeout_ms": 1000 }), Err("the same limit")),
        ] {
            let mut call = given.clone();
            call["code"] = "1".into();
            let it: RunCode = serde_json::from_value(call).unwrap();
            match (it.limit(&settings()), expected) {
                (Ok(limit), Ok(expected)) => assert_eq!(limit.as_millis(), expected, "{given}"),
                (Err(failure), Err(says)) => assert!(failure.message.contains(says), "{given}: {}", failure.message),
                (other, _) => panic!("{given}: {other:?}"),
            }
        }
    }

    #[test]
    fn code_has_to_be_a_text() {
        let it: RunCode = serde_json::from_value(json!({ "code": 7 })).unwrap();
        assert!(it.code.is_number());
    }
}
