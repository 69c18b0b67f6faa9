//! `shell_open`: a program on a terminal in a container, which stays open.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use coracle_context::arg_types::{Name, Pairs, Script, Seconds, pairs};
use coracle_context::failure::{Code, Failure};
use coracle_context::redaction;
use coracle_prepare::process::Process;
use coracle_prepare::resolve::plain_env;
use coracle_prepare::shells::{MAX_SHELLS, Shell};
use coracle_runtime::ExecTarget;
use coracle_types::{Command, ContainerPath, Exec, Handle, TerminalSize};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{ShellResponse, outlives_the_call, until};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::target::{CommandTarget, reach_inside};

/// Open a terminal in a container for a REPL, a debugger or whatever asks: the user's shell, or `command`. It stays open
/// until `shell_close` or the end of the session.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ShellOpen {
    /// Container to act on: its name, or an id of at least 12 digits.
    #[schemars(with = "Name")]
    container: Handle,
    /// What to run: a text for `/bin/sh -c`, or a list of words that runs as it stands.
    command: Option<Script>,
    /// Width of the terminal.
    #[schemars(extend("default" = 120), range(min = 20, max = 500))]
    columns: Option<u16>,
    /// Height of the terminal.
    #[schemars(extend("default" = 30), range(min = 5, max = 200))]
    rows: Option<u16>,
    /// Where commands run, and where the working directory is mounted. Created if missing.
    #[schemars(with = "Option<String>", extend("default" = "/workspace"))]
    workdir: Option<String>,
    /// Variables for commands. Their values are never written to disk.
    #[serde(default, deserialize_with = "pairs")]
    #[schemars(with = "Option<Pairs>")]
    env: Option<BTreeMap<String, Value>>,
    /// Run as root inside.
    #[schemars(extend("default" = false))]
    as_root: Option<bool>,
}

/// What starts slowly is not waited for any longer: `shell_expect` does that.
const STARTING: Seconds = Seconds::new(10);

/// Between TERM and KILL at its end. An interactive shell does not hear the first.
const GRACE: Duration = Duration::from_millis(300);

impl Operation<Process> for ShellOpen {
    const NAME: &'static str = "shell_open";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<ShellResponse>;
    type Response = ShellResponse;

    async fn run(self, process: &Process) -> Result<ShellResponse, Failure> {
        let cx = &process.context;
        outlives_the_call(cx)?;
        let size = self.size()?;
        if process.shells().is_full() {
            return Err(too_many());
        }
        let env = plain_env(&self.env)?;
        let target = reach_inside(cx, &self.container, self.as_root.unwrap_or(false)).await?;
        let redactor = Box::pin(redaction::redactor(cx, &target.record, &target.inside, &env)).await?;
        let exec = self.exec(&target, env)?;
        let CommandTarget { record, inside: ExecTarget::Guest(link), .. } = target else {
            return Err(no_guest(target.record.name.as_str()));
        };
        let until = until(cx, None, STARTING)?;
        let shell = Arc::new(Shell::start(&record, &link, exec, size, redactor));
        let id = process.shells().add(shell.clone());
        let waiting = async { Ok(shell.wait_until_quiet(shell.first_output(), until).await) };
        let waited = cx.unless_cancelled(waiting).await;
        let output = shell.read(false);
        if waited.is_err() {
            process.shells().remove(&id);
        }
        Ok(ShellResponse { container: Some(record.name.to_string()), ..ShellResponse::new(id, Some(waited?), output) })
    }
}

impl ShellOpen {
    fn size(&self) -> Result<TerminalSize, Failure> {
        let (cols, rows) = (self.columns.unwrap_or(120), self.rows.unwrap_or(30));
        if !(20..=500).contains(&cols) {
            return Err(Failure::invalid("columns", "from 20 to 500"));
        }
        if !(5..=200).contains(&rows) {
            return Err(Failure::invalid("rows", "from 5 to 200"));
        }
        Ok(TerminalSize { cols, rows })
    }

    fn exec(&self, target: &CommandTarget, env: BTreeMap<String, String>) -> Result<Exec, Failure> {
        let shell = || target.record.shell.as_ref().map_or("/bin/sh", ContainerPath::as_str).to_owned();
        let command = self.command.as_ref().map(|it| it.0.clone());
        let mut exec = target.session.exec(command.unwrap_or_else(|| Command::Argv(vec![shell()])));
        if let Some(workdir) = &self.workdir {
            exec.workdir = target.session.workdir.join(workdir)?;
        }
        exec.env.insert("TERM".into(), "xterm-256color".into());
        // `git log` is to print its text; a pager would wait for keys.
        exec.env.extend(["PAGER", "GIT_PAGER"].map(|it| (it.to_owned(), "cat".to_owned())));
        exec.env.extend(env);
        exec.limits.grace = GRACE;
        Ok(exec)
    }
}

fn no_guest(name: &str) -> Failure {
    Failure::new(Code::Unsupported, format!("`{name}` has no guest, which opens terminals inside"))
        .detail("capability", "guest")
        .hint("run single commands with `exec`")
}

fn too_many() -> Failure {
    Failure::new(Code::LimitReached, format!("this session has {MAX_SHELLS} shells already"))
        .detail("limit", MAX_SHELLS)
        .hint("close one with `shell_close`")
}
