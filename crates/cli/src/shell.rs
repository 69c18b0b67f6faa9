//! The user's terminal in a container: `coracle shell`, and `coracle exec -it`. It uses the engine's program, or else
//! the guest.

use std::process::ExitCode;

use clap::ArgMatches;
use coracle::person_terminal::{enter, guest_link};
use coracle::{Effect, operations};
use coracle_context::{Code, Context, Failure, Host, Options, Script, audit};
use coracle_lifecycle::{ManagedContainer, OnTerminal, exec_on_terminal, on_terminal};
use coracle_types::{ContainerPath, Error, Handle};
use serde_json::{Map, Value, json};

use super::operation_args::COMMAND;
use super::{matches_to_json, startup, terminal};

/// The command on the terminal, and its entry in the audit trail.
#[derive(Debug, Default)]
struct Terminal {
    act: &'static str,
    container: String,
    /// Empty for the shell.
    words: Vec<String>,
    as_root: bool,
    workdir: Option<String>,
}

/// Fields of `exec` that a command on a terminal supports.
const KNOWN: &[&str] = &["operation", "container", "command", "as_root", "workdir"];

/// `coracle shell`: executes the engine's program, if it has one.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<ExitCode, Failure> {
    if !host.stdin_is_terminal {
        return Err(Failure::new(Code::InvalidInput, "`shell` needs a terminal").hint("use `coracle exec` in a script"));
    }
    let terminal = Terminal {
        act: "shell",
        container: matches.get_one::<String>("name").cloned().unwrap_or_default(),
        words: matches.get_many::<String>(COMMAND).into_iter().flatten().cloned().collect(),
        as_root: matches.get_flag("as-root"),
        workdir: None,
    };
    terminal.open(startup::open_configured(host, options)?.context).await
}

/// `coracle exec -t`: executes the engine's program, if it has one.
pub(super) async fn exec(matches: &ArgMatches, host: Host, options: &Options) -> Result<ExitCode, Failure> {
    let Some(entry) = operations::ALL.iter().find(|it| it.name == "exec") else {
        return Err(Failure::internal("there is no `exec`"));
    };
    let terminal = of_exec(matches_to_json::object(entry, matches))?;
    if !host.stdin_is_terminal {
        let failure = Failure::new(Code::InvalidInput, "`-t` needs a terminal, and standard input is none");
        return Err(failure.hint(format!("leave `-t` out: `coracle exec -i {} -- …`", terminal.container)));
    }
    terminal.open(startup::open_configured(host, options)?.context).await
}

/// The fields of a call of `exec`, if a terminal supports all of them.
fn of_exec(mut object: Map<String, Value>) -> Result<Terminal, Failure> {
    if let Some(field) = object.keys().find(|it| !KNOWN.contains(&it.as_str())) {
        let message = format!("`--{}` does not go with `-t`", super::operation_args::word(field));
        return Err(Failure::new(Code::ConflictingFields, message).hint("leave one of the two out"));
    }
    let missing = |field: &str| {
        let failure = Failure::new(Code::MissingField, format!("required: `{field}`"));
        failure.hint("usage: coracle exec -it <CONTAINER> -- <WORDS>...")
    };
    let text = |object: &Map<String, Value>, key: &str| object.get(key).and_then(Value::as_str).map(str::to_owned);
    let command = object.remove("command").ok_or_else(|| missing("command"))?;
    let command: Script =
        serde_json::from_value(command).map_err(|err| Failure::invalid("command", err.to_string()))?;
    Ok(Terminal {
        act: "exec",
        container: text(&object, "container").ok_or_else(|| missing("container"))?,
        words: command.0.into_argv(),
        as_root: object.get("as_root") == Some(&Value::Bool(true)),
        workdir: text(&object, "workdir"),
    })
}

impl Terminal {
    async fn open(self, cx: Context) -> Result<ExitCode, Failure> {
        let handle = Handle::parse(&self.container).map_err(|err| Failure::name("container", err))?;
        let (found, workdir) = self.entered(&cx, &handle).await?;
        // This process holds the connection to another machine, so it cannot execute another program.
        if !found.record.engine.has_program() || found.record.endpoint.starts_with("ssh://") {
            return self.open_by_guest(&cx, found, workdir.as_ref()).await;
        }
        let words = on_terminal(&found, &self.on_terminal(&cx, workdir.as_ref()))?.words;
        let engine = cx.terminal_of(found.record.engine, &found.record.endpoint)?;
        let intent = audit::intent(&cx, self.act, Effect::Mutating, &self.audited_args()).await?;
        let mut words = engine.with_words(words);
        // The shell needs it to draw.
        words.env.insert("TERM".into(), cx.host.terminal_kind.clone().into());
        let failure = Failure::from(Error::Spawn {
            program: words.program.display().to_string(),
            source: words.replace_this_process(),
        });
        intent.finish(Err(&failure)).await;
        Err(failure)
    }

    /// The guest opens a terminal inside, and this process passes input and output on.
    async fn open_by_guest(
        &self,
        cx: &Context,
        mut found: ManagedContainer,
        workdir: Option<&ContainerPath>,
    ) -> Result<ExitCode, Failure> {
        let exec = exec_on_terminal(&found, &self.on_terminal(cx, workdir))?;
        let link = guest_link(cx, &mut found).await?;
        let intent = audit::intent(cx, self.act, Effect::Mutating, &self.audited_args()).await?;
        let done = terminal::run(&link, exec, &cx.host.terminal_kind).await;
        intent.finish_program(done.as_ref().map(|code| Some(*code))).await;
        done.map(ExitCode::from)
    }

    fn on_terminal<'a>(&'a self, cx: &'a Context, workdir: Option<&'a ContainerPath>) -> OnTerminal<'a> {
        OnTerminal { as_root: self.as_root, words: &self.words, workdir, kind: Some(&cx.host.terminal_kind) }
    }

    fn audited_args(&self) -> Map<String, Value> {
        let mut fields = Map::from_iter([
            ("container".to_owned(), self.container.clone().into()),
            ("as_root".to_owned(), self.as_root.into()),
        ]);
        if !self.words.is_empty() {
            fields.insert("command".into(), json!(self.words));
        }
        fields
    }

    /// The container, and the working directory if given. Users may enter containers of all sessions.
    async fn entered(
        &self,
        cx: &Context,
        handle: &Handle,
    ) -> Result<(ManagedContainer, Option<ContainerPath>), Failure> {
        let found = enter(cx, handle, self.as_root).await?;
        let workdir = self.workdir.as_deref().map(|it| found.record.workdir.join(it)).transpose()?;
        Ok((found, workdir))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle::{CallInput, execute};
    use coracle_context::Frontend;
    use coracle_context::config::{Config, Preset};
    use coracle_prepare::Process;
    use coracle_runtime::FakeRuntime;
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn no_shell_is_opened_under_strict_where_standard_made_root() {
        let dir = tempfile::tempdir().unwrap();
        let usual = Context::open(Host::below(dir.path()), &Options::default(), Frontend::Call).unwrap();
        let usual = usual.with_fake(FakeRuntime::new());
        let create = json!({
            "operation": "create", "name": "usual", "image": coracle_runtime::fake::LOCAL_IMAGE, "mount_cwd": false,
        });
        let made = execute(operations::ALL, &Process::new(usual.clone()), CallInput::Text(create.to_string().into()))
            .await
            .json;
        assert_eq!(made["success"], true, "{made:#?}");
        let handle = Handle::parse("usual").unwrap();
        let shell = |as_root| Terminal { as_root, ..Terminal::default() };
        let (found, _) = shell(false).entered(&usual, &handle).await.unwrap();
        assert_eq!(found.record.name.as_str(), "usual");
        let mut strict = usual.clone();
        strict.config = Arc::new(Config { policy: Preset::Strict, ..(*usual.config).clone() });
        for as_root in [false, true] {
            let refused = shell(as_root).entered(&strict, &handle).await.unwrap_err();
            assert_eq!(refused.details["rule"], "root.init", "{refused:?}");
        }
    }

    #[test]
    fn a_command_on_a_terminal_has_its_words_and_no_limits() {
        let read = |call: Value| of_exec(call.as_object().cloned().unwrap());
        let text = read(json!({ "operation": "exec", "container": "web", "command": "cd src && sh" })).unwrap();
        assert_eq!(text.words, ["/bin/sh", "-c", "cd src && sh"]);
        let words = read(json!({ "container": "web", "command": ["top"], "as_root": true, "workdir": "/x" })).unwrap();
        assert_eq!((words.words, words.as_root, words.workdir), (vec!["top".to_owned()], true, Some("/x".to_owned())));
        let limited = read(json!({ "container": "web", "command": ["top"], "timeout": 3 })).unwrap_err();
        assert_eq!(limited.message, "`--timeout` does not go with `-t`");
        assert_eq!(read(json!({ "container": "web" })).unwrap_err().code, Code::MissingField);
    }
}
