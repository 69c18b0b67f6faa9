//! `coracle worktree …`: its operations, and commands that enter a workflow's sandbox by the workflow's name.

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches, Command};
use coracle::{Effect, worktree};
use coracle_context::{Code, Failure, Host, Options, audit};
use coracle_lifecycle::guest_shell;
use coracle_prepare::sandbox::{self, Sandboxes};
use coracle_sandbox::{OpenSandbox, SandboxHandle};
use coracle_types::{Chunk, Exec, Exit, ProfileName, Stream, WorkflowId};
use coracle_worktrees::create::{CreateRequest, Worktree};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::named_commands::NamedCommands;
use super::operation_args::{callable, operation_word, option};
use super::operation_call::OperationCall;
use super::output::NOT_RUN;
use super::reporter::with_progress;
use super::stdio::{write_stderr, write_stdout};
use super::{exit, startup, terminal};
use crate::{render, signals};

/// Id of the arguments after `--`.
const WORDS: &str = "words";

/// The shell of a sandbox, which every image has.
const SHELL: &str = "/bin/sh";

/// The subcommands: each operation, and the commands for users only.
pub(super) fn command(named: NamedCommands<'_>) -> Command {
    let is_named = named.have("worktree");
    let operations = worktree::ALL.iter().map(|entry| {
        let name = operation_word(entry);
        if !is_named {
            return Command::new(name);
        }
        callable(entry.name, &format!("coracle worktree {name}"), &entry.arguments()).name(name)
    });
    Command::new("worktree")
        .about("Give each workflow a branch and a directory of its own, in a sandbox")
        .subcommand_required(true)
        .subcommands(operations)
        .subcommands(looks())
}

fn looks() -> [Command; 4] {
    let workflow = || Arg::new("workflow").value_name("WORKFLOW").required(true).help("Its id");
    let profile = || option("profile", "NAME", "The kind of sandbox [default: the one that has the workflow]");
    let json = || Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let words = Arg::new(WORDS).value_name("WORDS").last(true).num_args(1..).required(true);
    let exec = Command::new("exec").about("Run a program in the worktree, as the agent").args([
        workflow(),
        words.help("The program and its words, run as they stand"),
        profile(),
    ]);
    let shell = Command::new("shell").about("Open a shell in the worktree, as the agent").args([workflow(), profile()]);
    let about = "List the commits that the workflow made, newest first";
    let log = Command::new("log").about(about).args([workflow(), profile(), json()]);
    let about = "Tell where the worktree is, and what looks into it";
    let open = Command::new("open").about(about).args([workflow(), profile(), json()]);
    [exec, shell, log, open]
}

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((verb, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    if let Some(entry) = worktree::ALL.iter().find(|it| operation_word(it) == verb) {
        return Box::pin(OperationCall::from_matches(worktree::ALL, entry, matches).run(host, options)).await;
    }
    match verb {
        "exec" => match Box::pin(exec(matches, host, options)).await {
            Ok(code) => code,
            Err(failure) if failure.code == Code::Cancelled => ExitCode::from(signals::interrupted_code()),
            Err(failure) => {
                exit::failed(&failure);
                ExitCode::from(NOT_RUN)
            }
        },
        "shell" => match Box::pin(shell(matches, host, options)).await {
            Ok(code) => code,
            Err(failure) => exit::failed(&failure),
        },
        _ => {
            let json = matches.get_flag("json");
            match Box::pin(looked(verb, matches, host, options)).await {
                Ok(answer) if json => exit::finish(&answer),
                Ok(answer) => {
                    render::print(&render::worktree(verb, &Value::Object(answer)));
                    ExitCode::SUCCESS
                }
                Err(failure) if json => exit::finish(&failure.answer(Some(&format!("worktree {verb}")))),
                Err(failure) => exit::failed(&failure),
            }
        }
    }
}

/// A workflow's running sandbox, with its worktree.
struct EnteredWorktree {
    sandbox: Arc<SandboxHandle>,
    open: OpenSandbox,
    worktree: Worktree,
}

impl EnteredWorktree {
    async fn from_matches(sandboxes: Sandboxes<'_>, matches: &ArgMatches) -> Result<Self, Failure> {
        let word = |name: &str| matches.get_one::<String>(name).cloned();
        let profile = word("profile").map(ProfileName::parse).transpose()?;
        let id = WorkflowId::parse(word("workflow").unwrap_or_default())?;
        let sandbox = sandboxes.with_workflow(profile, &id).await?;
        let open = sandbox::opened(sandboxes.cx, &sandbox, &id).await?;
        let worktree = sandbox.worktrees.create(&open.inside, &CreateRequest::new(id)).await?;
        sandbox.set_env(&open, &worktree).await?;
        Ok(Self { sandbox, open, worktree })
    }
}

/// Runs a program, and returns its exit code.
async fn exec(matches: &ArgMatches, host: Host, options: &Options) -> Result<ExitCode, Failure> {
    let argv: Vec<String> = matches.get_many(WORDS).into_iter().flatten().cloned().collect();
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let args = audited(matches, &json!({ "command": argv }));
    let intent = audit::intent(cx, "worktree_exec", Effect::Mutating, &args).await?;
    let done = async {
        let entered = with_progress(cx, async |cx| {
            Box::pin(EnteredWorktree::from_matches(Sandboxes { cx, ..process.sandboxes() }, matches)).await
        })
        .await?;
        let (live, chunks) = mpsc::channel(8);
        let inside = &entered.open.inside;
        let mut exec =
            Exec::new(coracle_types::Command::Argv(argv), inside.agent, inside.tree_path(&entered.worktree.id));
        exec.env = entered.worktree.env();
        exec.cancel = cx.call.cancel.clone();
        exec.live = Some(live);
        let (output, ()) = tokio::join!(inside.link.exec(exec), shown(chunks));
        let exit = output?.exit;
        if cx.call.cancel.is_cancelled() { Err(Failure::cancelled()) } else { Ok(exit) }
    };
    let result = done.await;
    intent.finish_program(result.as_ref().map(|exit| Some(exit_code(*exit)))).await;
    Ok(ExitCode::from(exit_code(result?)))
}

/// The exit code in the form of a shell.
pub(super) fn exit_code(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => code,
        Exit::Cancelled => signals::interrupted_code(),
        Exit::TimedOut(_) | Exit::Running(_) => 124,
    }
}

/// Passes output on. A reader that disconnects is not a failure of the program.
pub(super) async fn shown(mut chunks: mpsc::Receiver<Chunk>) {
    while let Some(chunk) = chunks.recv().await {
        let _ = match chunk.stream {
            Stream::Stdout => write_stdout(&chunk.bytes),
            Stream::Stderr => write_stderr(&chunk.bytes),
        };
    }
}

/// Opens a shell with the engine's own program, if it has one, because that has a terminal; the sandbox is in use until
/// it ends.
async fn shell(matches: &ArgMatches, host: Host, options: &Options) -> Result<ExitCode, Failure> {
    if !host.stdin_is_terminal {
        let failure = Failure::new(Code::InvalidInput, "`worktree shell` needs a terminal");
        return Err(failure.hint("use `coracle worktree exec WORKFLOW -- …` in a script"));
    }
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let intent = audit::intent(cx, "worktree_shell", Effect::Mutating, &audited(matches, &json!({}))).await?;
    let done = async {
        let entered = with_progress(cx, async |cx| {
            Box::pin(EnteredWorktree::from_matches(Sandboxes { cx, ..process.sandboxes() }, matches)).await
        })
        .await?;
        let engine = cx.runtime().await?;
        if !engine.kind().has_program() {
            return Ok(ExitCode::from(shell_by_guest(&entered, &cx.host.terminal_kind).await?));
        }
        let engine = cx.terminal_of(engine.kind(), &engine.endpoint().address)?;
        let EnteredWorktree { open, worktree, .. } = &entered;
        let words = guest_shell(open.container(), open.inside.agent, &worktree.path, SHELL);
        let mut words = engine.with_words(words);
        // The shell needs it to draw.
        words.env.insert("TERM".into(), cx.host.terminal_kind.clone().into());
        let code = words.run_on_terminal().await?.code().and_then(|it| u8::try_from(it).ok());
        Ok(ExitCode::from(code.unwrap_or(1)))
    };
    let result: Result<_, Failure> = done.await;
    let nothing = Map::new();
    intent.finish(result.as_ref().map(|_| &nothing)).await;
    result
}

async fn shell_by_guest(entered: &EnteredWorktree, kind: &str) -> Result<u8, Failure> {
    let inside = &entered.open.inside;
    let words = coracle_types::Command::Argv(vec![SHELL.to_owned()]);
    let mut exec = Exec::new(words, inside.agent, inside.tree_path(&entered.worktree.id));
    exec.env = entered.worktree.env();
    terminal::run(&inside.link, exec, kind).await
}

async fn looked(
    verb: &str,
    matches: &ArgMatches,
    host: Host,
    options: &Options,
) -> Result<Map<String, Value>, Failure> {
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let entered = with_progress(cx, async |cx| {
        Box::pin(EnteredWorktree::from_matches(Sandboxes { cx, ..process.sandboxes() }, matches)).await
    })
    .await?;
    let Worktree { id, path, host_path, branch, base_commit, .. } = &entered.worktree;
    let own = match verb {
        "log" => {
            let commits = entered.sandbox.worktrees.log(&entered.open.inside, id).await?;
            json!({ "base_commit": base_commit, "count": commits.len(), "commits": commits })
        }
        _ => {
            let engine = cx.runtime().await?.kind();
            let (container, profile) = (entered.open.container(), &entered.open.inside.profile);
            json!({
                "profile": profile, "engine": engine, "container": container, "path": path, "host_path": host_path,
            })
        }
    };
    let common = json!({ "success": true, "workflow": id, "branch": branch });
    Ok([common, own].into_iter().filter_map(|it| it.as_object().cloned()).flatten().collect())
}

fn audited(matches: &ArgMatches, own: &Value) -> Map<String, Value> {
    let mut args = own.as_object().cloned().unwrap_or_default();
    args.extend(matches.get_one::<String>("workflow").map(|it| ("workflow".to_owned(), it.as_str().into())));
    args
}
