//! `shell_execute`: one program with its arguments.

pub(crate) mod check;
mod path_hints;
mod request;
mod response;

use std::collections::BTreeMap;
use std::time::Duration;

use coracle_protocol::workspace::{EntryKind, WorkspaceErrorCode, WorkspaceOp, WorkspaceReply};
use coracle_types::{Command, ContainerPath, Exec, ExecLimits, ExecOutput, Input};

use self::check::ShellRequest;
pub use self::request::Shell;
pub use self::response::{ChangedFiles, ShellResult};
pub(crate) use self::response::{CommandResult, Termination, ended, millis, rest_text, stream_text};
use crate::output::{INLINE, KEEP};
use crate::response::{Result, fail};
use crate::workspace::SCAN;
use crate::{Alias, Code, Effect, Failure, Response, SessionHandle, SlotRole, Tool, Warning, Workspace};

/// Between TERM and KILL.
const GRACE: Duration = Duration::from_secs(2);

/// Between TERM and KILL of processes that a command left behind.
const LEFTOVER_GRACE: Duration = Duration::from_millis(500);

impl Tool for Shell {
    const NAME: &'static str = "shell_execute";
    const EFFECT: Effect = Effect::Mutating;
    const ALIASES: &'static [Alias] = &[Alias { name: "timeout_seconds", of: "timeout" }];
    type Value = ShellResult;

    async fn call(self, workspace: &Workspace) -> Result<Response<ShellResult>> {
        let checked = check::check(&self, workspace.settings.env_keys, &workspace.settings.paths.root)?;
        execute(Self::NAME, checked, workspace).await
    }

    fn render(answer: &Response<ShellResult>) -> String {
        answer.value.as_ref().map(ShellResult::text).unwrap_or_default()
    }
}

impl Shell {
    /// The same under another name, which messages use.
    pub async fn run_as(self, name: &str, workspace: &Workspace) -> Response<ShellResult> {
        match check::check(&self, workspace.settings.env_keys, &workspace.settings.paths.root) {
            Ok(checked) => execute(name, checked, workspace).await.unwrap_or_else(|it| Response::failed(*it)),
            Err(failure) => Response::failed(*failure),
        }
    }
}

async fn execute(name: &str, checked: ShellRequest, workspace: &Workspace) -> Result<Response<ShellResult>> {
    let _permit = workspace.calls().acquire().await?;
    let session = workspace.ensure_session(SlotRole::Workspace).await?;
    let cwd = match checked.cwd.as_str() {
        "" => session.workdir.clone(),
        cwd => directory(workspace, &session, cwd).await?,
    };
    let line = CommandLine { command: checked.command, cwd, timeout: checked.timeout };
    let shown = checked.capture.then_some(INLINE);
    let command = ShellCommand { line: line.clone(), env: checked.env, stdin: checked.stdin, shown };
    let (output, survivors) = run(workspace, &session, command).await?;
    let ended = ended(&output, survivors, line.timeout, session.memory);
    let changed = detect_changes(workspace, &session, &output, name).await;
    let mut answer = ShellResult::response(name, line, ended, changed, checked.capture);
    answer.warnings.extend(left_behind(survivors, workspace.settings.has_jobs));
    Ok(answer.at(&session))
}

/// A program with its arguments, where it runs and for how long.
#[derive(Clone, Debug)]
pub(crate) struct CommandLine {
    pub(crate) command: Vec<String>,
    pub(crate) cwd: ContainerPath,
    pub(crate) timeout: Duration,
}

/// A command with its environment and input.
#[derive(Debug)]
pub(crate) struct ShellCommand {
    pub(crate) line: CommandLine,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) stdin: Option<String>,
    /// Bytes of each stream that the answer has room for; without it the output is discarded.
    pub(crate) shown: Option<usize>,
}

/// Runs a command and ends the processes that it left behind; returns their number.
pub(crate) async fn run(
    workspace: &Workspace,
    session: &SessionHandle,
    command: ShellCommand,
) -> Result<(ExecOutput, u32)> {
    let ShellCommand { line, env, stdin, shown } = command;
    workspace.baseline_scan(session).await;
    let mut exec = Exec::new(Command::Argv(line.command), session.user, line.cwd);
    exec.env = session.env.clone();
    exec.env.extend(env);
    exec.stdin = stdin.map(|it| Input::Bytes(it.into_bytes()));
    exec.limits = ExecLimits { total: Some(line.timeout), silence: None, grace: GRACE };
    exec.keep_bytes = if shown.is_some() { KEEP } else { 0 };
    exec.passes_on = Some(shown.unwrap_or(usize::MAX));
    exec.cancel = workspace.cancel.clone();
    exec.live = workspace.live.clone();
    let output = workspace.exec(session, exec).await?;
    workspace.sessions().touch(SlotRole::Workspace);
    workspace.scan_disk_usage(session);
    let left = output.left_running;
    if let Some(job) = output.job.as_ref().filter(|_| left > 0) {
        // A process that cannot be ended goes with the container.
        let _ = session.link.cancel(job, LEFTOVER_GRACE).await;
    }
    Ok((output, left))
}

pub(crate) fn left_behind(survivors: u32, has_jobs: bool) -> Option<Warning> {
    let what = match survivors {
        0 => return None,
        1 => "1 process that the command left running was ended".to_owned(),
        more => format!("{more} processes that the command left running were ended"),
    };
    let instead = if has_jobs { "; for what has to go on use `exec_background` of `containers`" } else { "" };
    Some(Warning::new("background_ended", format!("{what}{instead}.")))
}

/// A directory of the workspace, as commands name it.
async fn directory(workspace: &Workspace, session: &SessionHandle, cwd: &str) -> Result<ContainerPath> {
    let act = WorkspaceOp::Stat { path: cwd.to_owned() };
    let found = workspace.act(session, act).await?;
    let missing = || fail(Code::CwdNotFound, "cwd does not exist.");
    match found {
        WorkspaceReply::Found(item) => match item.kind {
            EntryKind::Directory => {}
            _ => return fail(Code::CwdNotDirectory, "cwd must reference a directory."),
        },
        WorkspaceReply::Not(trouble) => match trouble.code {
            WorkspaceErrorCode::NotFound => return missing(),
            WorkspaceErrorCode::NotDirectory => {
                return fail(Code::CwdNotDirectory, "cwd must reference a directory.");
            }
            _ => return fail(Code::PathEscape, format!("Path escapes the workspace: {cwd}.")),
        },
        other => return Err(Box::new(crate::file_errors::unexpected(&other))),
    }
    session.workdir.join(cwd).map_err(|err| Box::new(Failure::new(Code::InvalidCwd, format!("{err}."))))
}

/// Finds the files that the command changed.
pub(crate) async fn detect_changes(
    workspace: &Workspace,
    session: &SessionHandle,
    output: &ExecOutput,
    tool: &str,
) -> Option<ChangedFiles> {
    let hints = path_hints::parse(&output.stdout.tail(), output.stdout.head(), &workspace.settings.paths.root);
    let act = WorkspaceOp::Changed {
        hints,
        exclude: workspace.settings.scan_exclude.clone(),
        bounds: SCAN,
        tool: tool.to_owned(),
    };
    match workspace.act(session, act).await {
        Ok(WorkspaceReply::Changed(changes)) => Some(ChangedFiles::from_report(&changes)),
        // A failed scan does not change the result of the command.
        _ => None,
    }
}
