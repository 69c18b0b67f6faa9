//! `coracle worker run`: the agent of a workflow works, and what it does is printed line by line.

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use clap::ArgMatches;
use coracle::sandbox::{self, Task};
use coracle::{Context, Failure, Host, Options};
use coracle_sandbox::{ProfileName, WorkflowId};
use serde_json::Value;

use super::reporter::{Reporter, with_events};
use super::{exit, startup};

/// Bytes of a prompt that are read.
const MAX_PROMPT: u64 = 16 << 20;

/// Runs it. Events go to standard output as JSON, one a line; the last one is the result.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else { return ExitCode::from(exit::NOT_UNDERSTOOD) };
    match Box::pin(work(matches, host, options)).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => exit::failed(&failure),
    }
}

async fn work(matches: &ArgMatches, host: Host, options: &Options) -> Result<(), Failure> {
    let process = startup::open_configured(host, options)?;
    let cx = &process.context;
    let (id, profile) = workflow(matches)?;
    let sandbox = process.sandboxes().with_workflow(profile, &id).await?;
    let task = requested(cx, matches, sandbox.profile.clone())?;
    let model = sandbox::model(cx, &task.profile, task.model.clone())?;
    sandbox::ensure_key(cx, &task.profile).await?;
    let screen = Mutex::new(Reporter::new(&cx.host));
    let reporter = || screen.lock().unwrap_or_else(PoisonError::into_inner);
    let hear = |event: &Value| {
        let mut screen = reporter();
        screen.print(&event.to_string());
        if let Some(text) = waited_for(event, &model, screen.is_on_terminal()) {
            screen.message(&text);
        }
    };
    let work = async |cx: &Context| Box::pin(sandbox::work(cx, &sandbox, &id, task, hear)).await;
    let done = with_events(cx, work, |event| reporter().show_event(&event)).await;
    reporter().clear();
    done
}

/// What goes on after an event. In a pipe the events themselves are the sign of life, once the model has answered.
fn waited_for(event: &Value, model: &str, terminal: bool) -> Option<String> {
    let text = |key: &str| event[key].as_str().unwrap_or_default();
    match text("type") {
        "started" => Some(format!("waiting for the model {model}")),
        "tool_call" if terminal => Some(format!("running {}", text("name"))),
        _ if terminal => Some(format!("waiting for the model {model}")),
        _ => None,
    }
}

fn workflow(matches: &ArgMatches) -> Result<(WorkflowId, Option<ProfileName>), Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let profile = word("profile").map(ProfileName::parse).transpose()?;
    Ok((WorkflowId::parse(word("worktree").unwrap_or_default())?, profile))
}

fn requested(cx: &Context, matches: &ArgMatches, profile: ProfileName) -> Result<Task, Failure> {
    let word = |name: &str| matches.get_one::<String>(name).cloned();
    let mut prompt = word("prompt").unwrap_or_default();
    if prompt == "-" {
        prompt.clear();
        let read = std::io::stdin().lock().take(MAX_PROMPT).read_to_string(&mut prompt);
        read.map_err(|err| Failure::invalid("prompt", format!("cannot be read: {err}")))?;
    }
    let schema = matches.get_one::<PathBuf>("schema").map(|it| schema(cx, it)).transpose()?;
    Ok(Task { profile, prompt, model: word("model"), instructions: word("instructions"), schema })
}

fn schema(cx: &Context, file: &Path) -> Result<Value, Failure> {
    let bad = |why: String| Failure::invalid("schema", why);
    let text = std::fs::read(cx.host.path(file)).map_err(|err| bad(format!("cannot be read: {err}")))?;
    serde_json::from_slice(&text).map_err(|err| bad(format!("is no JSON: {err}")))
}
