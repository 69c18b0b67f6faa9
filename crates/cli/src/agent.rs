//! `coracle agent …`: runs a coding agent from npm in a sandbox, on a task or interactively.

use std::io::Read as _;
use std::process::ExitCode;
use std::time::Duration;

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use coracle::Effect;
use coracle::agent_run::{self, AgentExit, AgentReport, AgentTask, PreparedAgent};
use coracle::worktree::AgentWorktree;
use coracle_context::document::sanitize;
use coracle_context::{Code, Context, Failure, Host, Options, audit};
use coracle_prepare::{Process, coding_agents};
use coracle_sandbox::OpenSandbox;
use coracle_types::{Exec, Exit, ProfileName, WorkflowId, random_hex};
use serde_json::{Map, Value, json};
use tokio::sync::mpsc;

use super::operation_args::option;
use super::reporter::with_progress;
use super::worktree::{exit_code, shown};
use super::{exit, startup, terminal};
use crate::{render, signals};

/// Maximum size of a task in bytes.
const MAX_TASK: u64 = 100 << 10;

/// Maximum size of the output in an answer.
const MAX_OUTPUT: usize = 64 << 10;

/// Id of the arguments after `--`.
const WORDS: &str = "words";

/// The subcommand.
pub(super) fn command() -> Command {
    let names: Vec<&str> = coding_agents::ALL.iter().map(|it| it.name).collect();
    let name = Arg::new("agent").value_name("AGENT").required(true).value_parser(PossibleValuesParser::new(names));
    let json = Arg::new("json").long("json").action(ArgAction::SetTrue).help("Print the answer as JSON");
    let words = Arg::new(WORDS).value_name("ARGS").last(true).num_args(0..);
    let timeout = option("timeout", "SECONDS", "End the agent after that").value_parser(value_parser!(u64).range(1..));
    Command::new("agent").about("Let a coding agent from npm work in a sandbox, on a branch of its own").args([
        name.help("Which agent"),
        option("repo", "SOURCE", "The repository: a URL or a directory [default: the current one]"),
        option("task", "TEXT", "What to do without you, `-` for standard input; without it you work with the agent"),
        option("model", "NAME", "The model [default: the agent's, or `worker.model`]"),
        option("base", "REF", "What to begin from: a branch, a tag or a commit [default: the repository's HEAD]"),
        option("workflow", "ID", "Go on in that workflow, or give the new one that id"),
        option("profile", "NAME", "The kind of sandbox [default: the agent's name]"),
        timeout,
        json,
        words.help("More arguments of the agent"),
    ])
}

/// Runs the agent, and returns its exit code.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    match Box::pin(work(matches, host, options)).await {
        Ok(code) => code,
        Err(failure) if json => exit::finish(&failure.answer(Some("agent"))),
        Err(failure) if failure.code == Code::Cancelled => ExitCode::from(signals::interrupted_code()),
        Err(failure) => exit::failed(&failure),
    }
}

async fn work(matches: &ArgMatches, host: Host, options: &Options) -> Result<ExitCode, Failure> {
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let task = task(matches)?;
    if task.prompt.is_none() && !cx.host.stdin_is_terminal {
        let failure = Failure::new(Code::InvalidInput, "an agent without a task needs a terminal");
        return Err(failure.hint("give it one with `--task`"));
    }
    let task = agent_run::check(cx, task).await?;
    let at = place(matches, &task)?;
    let workflow = at.workflow.clone();
    let args = json!({ "agent": task.agent.name, "workflow": workflow, "profile": task.profile, "model": task.model });
    let intent = audit::intent(cx, "agent", Effect::Mutating, args.as_object().unwrap_or(&Map::new())).await?;
    let done = Box::pin(run_in_sandbox(&process, at, &task, matches.get_flag("json"))).await;
    intent.finish_program(done.as_ref().map(|it| Some(it.0.exit_code))).await;
    let (ended, report) = done?;
    match matches.get_flag("json") {
        true => render::print(&answer(&task, &workflow, &ended, &report).to_string()),
        false => report_to_person(&task, &workflow, &report),
    }
    Ok(ExitCode::from(ended.exit_code))
}

async fn run_in_sandbox(
    process: &Process,
    at: AgentWorktree,
    task: &AgentTask,
    quiet: bool,
) -> Result<(AgentExit, AgentReport), Failure> {
    let cx = &process.context;
    let prepared: PreparedAgent = with_progress(cx, async |cx| {
        Box::pin(agent_run::prepare(&process.clone().with_context(cx.clone()), at, task)).await
    })
    .await?;
    let terminal = task.prompt.is_none();
    Box::pin(prepared.run(cx, async |open: &OpenSandbox, exec: Exec| match terminal {
        true => at_terminal(cx, open, exec).await,
        false => alone(open, exec, quiet).await,
    }))
    .await
}

async fn at_terminal(cx: &Context, open: &OpenSandbox, exec: Exec) -> Result<AgentExit, Failure> {
    let exit_code = terminal::run(&open.inside.link, exec, &cx.host.terminal_kind).await?;
    Ok(AgentExit { exit_code, output: String::new() })
}

/// Runs the agent on its task. Passes its output on, unless the JSON answer has it.
async fn alone(open: &OpenSandbox, mut exec: Exec, quiet: bool) -> Result<AgentExit, Failure> {
    let (live, chunks) = mpsc::channel(8);
    exec.live = (!quiet).then_some(live);
    let (output, ()) = tokio::join!(open.inside.link.exec(exec), shown(chunks));
    let output = output?;
    if output.exit == Exit::Cancelled {
        return Err(Failure::cancelled());
    }
    // A failed agent prints the reason to the other stream.
    let printed = if output.stdout.total_bytes() == 0 { &output.stderr } else { &output.stdout };
    let printed = printed.bytes();
    let end = &printed[printed.len().saturating_sub(MAX_OUTPUT)..];
    Ok(AgentExit { exit_code: exit_code(output.exit), output: String::from_utf8_lossy(end).into_owned() })
}

fn task(matches: &ArgMatches) -> Result<AgentTask, Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let name = word("agent").unwrap_or_default();
    let agent = coding_agents::find(&name).ok_or_else(|| Failure::invalid("agent", "there is no such agent"))?;
    let profile = ProfileName::parse(word("profile").unwrap_or(name))?;
    let mut prompt = word("task");
    if prompt.as_deref() == Some("-") {
        let mut text = String::new();
        let read = std::io::stdin().lock().take(MAX_TASK).read_to_string(&mut text);
        read.map_err(|err| Failure::invalid("task", format!("cannot be read: {err}")))?;
        prompt = Some(text);
    }
    if prompt.as_ref().is_some_and(|it| it.trim().is_empty() || it.len() as u64 >= MAX_TASK) {
        return Err(Failure::invalid("task", "has from 1 byte to 100 KiB"));
    }
    let more = matches.get_many::<String>(WORDS).into_iter().flatten().cloned().collect();
    let timeout = matches.get_one::<u64>("timeout").map(|it| Duration::from_secs(*it));
    Ok(AgentTask { agent, profile, model: word("model"), prompt, more, timeout })
}

fn place(matches: &ArgMatches, task: &AgentTask) -> Result<AgentWorktree, Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let workflow = word("workflow").unwrap_or_else(|| format!("{}-{}", task.agent.name, random_hex::<4>()));
    Ok(AgentWorktree { source: word("repo"), base: word("base"), workflow: WorkflowId::parse(workflow)? })
}

fn answer(task: &AgentTask, workflow: &WorkflowId, ended: &AgentExit, report: &AgentReport) -> Value {
    json!({
        "success": true,
        "agent": task.agent.name,
        "workflow": workflow,
        "profile": task.profile,
        "model": task.model,
        "exit_code": ended.exit_code,
        "output": ended.output,
        "branch": report.branch,
        "commits": report.commits,
        "applied": report.applied,
        "warnings": report.warnings,
    })
}

/// Prints the result of the task, which the agent's own output lacks.
fn report_to_person(task: &AgentTask, workflow: &WorkflowId, report: &AgentReport) {
    for warning in &report.warnings {
        render::note(&sanitize(&warning.message));
    }
    let profile = &task.profile;
    let commits = match report.commits.len() {
        0 => "no commit".to_owned(),
        1 => "1 commit".to_owned(),
        some => format!("{some} commits"),
    };
    let branch = sanitize(&report.branch);
    render::note(&match &report.applied {
        Some(applied) => format!("{commits}: branch {branch} is in {}", applied.to.display()),
        None => format!("{commits} on {branch}, in the sandbox"),
    });
    render::note(&format!("`coracle worktree diff {workflow} --profile {profile}` shows the work"));
    render::note(&format!("`coracle agent {} --workflow {workflow} --profile {profile}` goes on", task.agent.name));
    render::note(&format!("`coracle worktree remove {workflow} --profile {profile}` removes the sandbox"));
}
