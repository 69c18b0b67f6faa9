//! The operations on the shells of a session, one file each.

mod close;
mod expect;
mod open;
mod read;
mod send;

use std::sync::Arc;

use coracle_context::arg_types::Seconds;
use coracle_context::context::{Context, Frontend};
use coracle_context::document::{Document, Render, StyledText};
use coracle_context::failure::{Code, Failure};
use coracle_prepare::process::Process;
use coracle_prepare::shells::{Shell, ShellEnd, TerminalOutput, WaitEnd};
use coracle_types::Exit;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Serialize;

pub(crate) use self::close::ShellClose;
pub(crate) use self::expect::ShellExpect;
pub(crate) use self::open::ShellOpen;
pub(crate) use self::read::ShellRead;
pub(crate) use self::send::ShellSend;

/// The answer of every operation on a shell.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ShellResponse {
    shell: String,
    /// Why the wait is over.
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<WaitEnd>,
    output: String,
    #[serde(skip_serializing_if = "is_zero")]
    omitted_bytes: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    r#match: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    screen: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cursor: Option<[u16; 2]>,
    running: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    exit_code: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    signal: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tree_ended: Option<bool>,
    /// Why it ended, where its command did not.
    #[serde(skip_serializing_if = "Option::is_none")]
    lost: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    container: Option<String>,
}

fn is_zero(it: &u64) -> bool {
    *it == 0
}

impl ShellResponse {
    fn new(shell: String, reason: Option<WaitEnd>, output: TerminalOutput) -> Self {
        let TerminalOutput { text, omitted, matched, screen, cursor, end } = output;
        let running = end.is_none();
        let (exit, signal, tree_ended, lost) = match end {
            None => (None, None, None, None),
            Some(ShellEnd::Exited { exit, signal, tree_ended }) => (Some(exit), signal, tree_ended, None),
            Some(ShellEnd::Lost(why)) => (None, None, None, Some(why)),
        };
        let exit_code = exit.and_then(|it| if let Exit::Code(code) = it { Some(code) } else { None });
        Self {
            shell,
            reason,
            output: text,
            omitted_bytes: omitted,
            r#match: matched,
            screen,
            cursor,
            running,
            exit_code,
            signal,
            tree_ended,
            lost,
            container: None,
        }
    }
}

impl Render for ShellResponse {
    fn render(&self, _: Timestamp) -> Document {
        let state = match (self.reason, self.exit_code, &self.lost) {
            (_, Some(code), _) => format!("ended with exit code {code}"),
            (_, _, Some(why)) => format!("is lost: {why}"),
            _ if !self.running => "ended".to_owned(),
            (Some(WaitEnd::Timeout), ..) => "runs; the wait is over".to_owned(),
            (Some(WaitEnd::Match), ..) => "runs; it matches".to_owned(),
            _ => "runs".to_owned(),
        };
        let screen = self.screen.iter().map(|it| StyledText::from(format!("[screen]\n{}", it.trim_end())));
        let text = (!self.output.is_empty()).then(|| StyledText::from(self.output.clone()));
        let state = StyledText::from(format!("[shell {} {state}]", self.shell));
        Document::default().and_lines(text.into_iter().chain(screen).chain([state]))
    }
}

/// A shell that is there, in a container that is there.
fn find(process: &Process, id: &str) -> Result<Arc<Shell>, Failure> {
    outlives_the_call(&process.context)?;
    let Some(shell) = process.shells().get(id) else { return Err(no_such_shell(process, id)) };
    let records = process.context.store()?.records().map_err(coracle_lifecycle::Error::from)?;
    if records.iter().any(|it| it.record_id == shell.record_id) {
        return Ok(shell);
    }
    process.shells().remove(id);
    Err(no_such_shell(process, id))
}

fn no_such_shell(process: &Process, id: &str) -> Failure {
    let open: Vec<String> =
        process.shells().list().into_iter().map(|(id, container)| format!("`{id}` in `{container}`")).collect();
    let hint = match open.as_slice() {
        [] => "`shell_open` opens one; none is open".to_owned(),
        open => format!("open are {}; `shell_open` opens another", open.join(", ")),
    };
    Failure::new(Code::NoSuchShell, format!("no shell `{}`", id.escape_debug())).detail("shell", id).hint(hint)
}

/// A single call ends at once, and the shell with it.
fn outlives_the_call(cx: &Context) -> Result<(), Failure> {
    if !matches!(cx.call.frontend, Frontend::Call | Frontend::Cli) {
        return Ok(());
    }
    let message = "a shell ends with the process that opened it, and a single call is one";
    Err(Failure::new(Code::Unsupported, message)
        .detail("capability", "shell")
        .hint("open it over MCP; `exec` runs one command"))
}

/// The time of a wait: that of the call, within the user's limit.
fn until(cx: &Context, timeout: Option<Seconds>, usual: Seconds) -> Result<tokio::time::Instant, Failure> {
    let most = cx.config.jobs.wait_max;
    let timeout = timeout.unwrap_or(usual.min(most));
    if timeout > most {
        let (rule, setting) = ("limit.wait", Some("jobs.wait_max"));
        let message = format!("timeout {timeout} is above {most}");
        let problem = coracle_runtime::Problem { rule, setting, value: timeout.to_string(), message };
        return Err(coracle_runtime::PolicyRefusal { problems: vec![problem] }.into());
    }
    Ok(tokio::time::Instant::now() + timeout.0)
}
