//! One run of an agent, from its prompt to its result.

use std::time::Duration;

use coracle_context::config::{Provider, ProviderKind};
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::count;
use coracle_context::suggest;
use coracle_lifecycle::Lock;
use coracle_proxy::policy::KeySource as _;
use coracle_sandbox::driver::{AgenticRequest, Event};
use coracle_sandbox::protocol::RunLimits;
use coracle_sandbox::{OpenSandbox, RunRecord, RunRecords, RunState, SandboxHandle};
use coracle_types::{ProfileName, SandboxWarning, WorkflowId, random_hex};
use coracle_worktrees::create::{CreateRequest, Worktree};
use coracle_worktrees::remove::Leftover;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::key::ProviderKey;
use super::{apply_devcontainer, open};

/// How often a run looks for a request to cancel it.
const LOOKS: Duration = Duration::from_millis(300);

/// A worker that does not end a run when its time is over is ended after this.
const LATE: Duration = Duration::from_secs(60);

/// What an agent is to do, and in which kind of sandbox.
#[derive(Clone, Debug)]
pub struct Task {
    /// The kind of sandbox.
    pub profile: ProfileName,
    /// The task.
    pub prompt: String,
    /// The model that is asked; that of the configuration when missing.
    pub model: Option<String>,
    /// What the model is told beside the task.
    pub instructions: Option<String>,
    /// JSON Schema of the result.
    pub schema: Option<Value>,
}

/// A run that is about to begin.
#[derive(Debug)]
pub struct PreparedRun {
    pub run: RunRecord,
    runs: RunRecords,
    request: AgenticRequest,
    /// The lock that keeps other drivers from the workflow.
    alone: Lock,
}

/// The model that a task is for. Without a place to ask it, nothing is begun.
pub fn model(cx: &Context, profile: &ProfileName, named: Option<String>) -> Result<String, Failure> {
    let key = format!("sandbox.profiles.{profile}.provider");
    let own = cx.config.sandbox.profile(profile);
    let Some(provider) = &own.provider else {
        let message = format!("the profile `{profile}` has no provider of models");
        return Err(Failure::config(&key, None, message).hint_only_setting("set `base_url` and `key_env` in", &key));
    };
    if provider.kind == ProviderKind::Google {
        let message =
            format!("the worker does not speak to the provider of the profile `{profile}`, whose kind is google");
        let failure = Failure::config(format!("{key}.kind"), None, message);
        return Err(
            failure.hint("`coracle agent gemini` does; for the worker name Google's address for chat completions")
        );
    }
    let model = named
        .or_else(|| cx.config.worker.model.clone())
        .ok_or_else(|| Failure::invalid("model", "is missing").hint_setting("name one", "worker.model"))?;
    is_listed(profile, provider, &model)?;
    Ok(model)
}

/// Fails if there is no key for the provider of a profile: every request would be refused, after the sandbox has started.
///
/// # Errors
/// `config_invalid`, which names the place.
pub async fn ensure_key(cx: &Context, profile: &ProfileName) -> Result<(), Failure> {
    let Some(provider) = cx.config.sandbox.profile(profile).provider else { return Ok(()) };
    let key = ProviderKey::from_config(cx, &provider)?;
    if key.key().await.is_some() {
        return Ok(());
    }
    let place = key.place();
    let setting = format!("sandbox.profiles.{profile}.provider");
    let message = format!("no key for the models of the profile `{profile}`: {}", place.missing);
    Err(Failure::config(format!("{setting}.{}", place.setting), None, message).hint(place.hint))
}

/// Refuses a model that the person does not allow. Its route would refuse it as well, after the sandbox has started.
pub fn is_listed(profile: &ProfileName, provider: &Provider, model: &str) -> Result<(), Failure> {
    if coracle_proxy::policy::is_listed(&provider.models, model)? {
        return Ok(());
    }
    let key = format!("sandbox.profiles.{profile}.provider");
    let (shown, setting) = (model.escape_debug(), format!("{key}.models"));
    let message = format!("the model `{shown}` is not among the `models` of the profile `{profile}`");
    let failure = Failure::new(Code::PolicyDenied, message).detail("rule", "model").detail("value", model);
    let instead = match provider.models.as_slice() {
        [] => "no model is allowed yet".to_owned(),
        some => format!("name one of {}", some.join(", ")),
    };
    Err(failure.detail("setting", &setting).hint_setting(&instead, &setting))
}

/// Notes a run of that task in a worktree.
pub fn begin(cx: &Context, sandbox: &SandboxHandle, worktree: &Worktree, task: Task) -> Result<PreparedRun, Failure> {
    let model = model(cx, &task.profile, task.model)?;
    let prompt = Some(task.prompt.clone());
    let limits = &cx.config.worker;
    let run_id = random_hex::<16>();
    let request = AgenticRequest {
        run_id: Some(run_id.clone()),
        prompt: task.prompt,
        model: Some(model.clone()),
        cwd: Some(worktree.path.clone()),
        instructions: task.instructions,
        schema: task.schema,
        limits: Some(RunLimits {
            max_turns: Some(limits.max_turns.into()),
            wall_seconds: Some(limits.wall_seconds),
            max_total_tokens: limits.max_total_tokens,
        }),
        session_id: Some(worktree.id.to_string()),
        ..AgenticRequest::default()
    };
    let runs = RunRecords::new(sandbox.sandbox.dir(), &worktree.id);
    let alone = runs.lock()?;
    let begun = RunRecord::begun(worktree, run_id, task.profile, model, cx.call.session.clone());
    let run = RunRecord { prompt, ..begun };
    runs.begin(&run)?;
    Ok(PreparedRun { run, runs, request, alone })
}

/// The sandbox of a run, and how it is reached.
#[derive(Debug)]
pub struct RunTarget<'a> {
    pub sandbox: &'a SandboxHandle,
    pub open: &'a OpenSandbox,
}

/// Drives a run to its end. Every event is noted, and told to `hear`.
pub async fn drive(
    cx: &Context,
    target: &RunTarget<'_>,
    begun: PreparedRun,
    mut hear: impl FnMut(&Value) + Send,
) -> Result<(), Failure> {
    let RunTarget { sandbox, open } = *target;
    let PreparedRun { mut run, runs, request, alone } = begun;
    let driver = sandbox.driver();
    // The worker ends it by itself before that, unless it is none of ours any more.
    let until = Instant::now() + Duration::from_secs(cx.config.worker.wall_seconds) + LATE;
    let mut events = driver.run_agentic(request);
    let (mut number, mut ended) = (0, None);
    let mut looks = interval(LOOKS);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ended.is_none() {
        let event = tokio::select! {
            biased;
            () = cx.call.cancel.cancelled() => Some(Err(Failure::cancelled())),
            // Before the events: one who talks without a pause is told to stop all the same.
            _ = looks.tick() => match check_cancelled(&runs, until) {
                Err(failure) => Some(Err(failure)),
                Ok(()) => continue,
            },
            event = events.next() => event.map(|it| it.map_err(Failure::from)),
        };
        ended = match event {
            Some(Ok(event)) => {
                let is_last = matches!(event, Event::Result { .. });
                let warnings = if is_last { what_is_left(sandbox, open, &run.workflow).await } else { Vec::new() };
                let events = warnings.into_iter().chain([event]);
                // A record that cannot be written ends the run.
                let noted = note_events(&runs, &mut number, events, &mut hear);
                if is_last || noted.is_err() { Some(noted) } else { None }
            }
            Some(Err(failure)) => Some(Err(failure)),
            None => Some(Err(Failure::new(Code::NoResult, "The run ended without a result."))),
        };
    }
    // It is over inside as well, before anybody is told so.
    drop(events);
    if let Err(err) = driver.close().await {
        tracing::warn!(%err, "a worker is not known to be gone");
    }
    run.usage = driver.usage();
    run.ended = Some(jiff::Timestamp::now());
    let ended = ended.unwrap_or(Ok(()));
    match &ended {
        Ok(()) => run.state = RunState::Done,
        Err(failure) => {
            run.state = if failure.code == Code::Cancelled { RunState::Cancelled } else { RunState::Failed };
            (run.code, run.message) = (Some(failure.code.word()), Some(failure.message.clone()));
            hear(&failed(number + 1, failure));
        }
    }
    runs.save(&run)?;
    drop(alone);
    ended
}

/// Appends events to the record of a run, and reports each.
fn note_events(
    runs: &RunRecords,
    number: &mut u64,
    events: impl Iterator<Item = Event>,
    hear: &mut impl FnMut(&Value),
) -> Result<(), Failure> {
    for event in events {
        let line = runs.append(*number + 1, &event)?;
        *number += 1;
        hear(&line);
    }
    Ok(())
}

/// Warnings about work of an agent that is not on its workflow's branch. Only commits there are pushed, so what it forgot to
/// commit is committed first.
pub async fn what_is_left(sandbox: &SandboxHandle, open: &OpenSandbox, id: &WorkflowId) -> Vec<Event> {
    let leftover = commit_leftover(sandbox, open, id).await;
    let stray = match sandbox.worktrees.stray_commits(&open.inside, id).await {
        Ok(stray) => stray.map(|it| it.warning()),
        Err(failure) => {
            tracing::warn!(%failure, "it is not known which commits are on another branch");
            None
        }
    };
    let stray = stray.map(|SandboxWarning { code, message }| Event::Warning { code, message });
    leftover.into_iter().chain(stray).collect()
}

async fn commit_leftover(sandbox: &SandboxHandle, open: &OpenSandbox, id: &WorkflowId) -> Option<Event> {
    let left = sandbox.worktrees.commit_leftover(&open.inside, id, &sandbox.git_identity.author).await;
    let (code, message) = match left {
        Ok(Leftover::Nothing) => return None,
        Ok(Leftover::Committed { commit, files, branch }) => {
            let what = count(files, "file", "files");
            let commit = commit.get(..12).unwrap_or(&commit);
            ("leftover_committed", format!("{what} not committed by the agent: committed on `{branch}` as {commit}"))
        }
        Ok(Leftover::Kept { reason, files }) => {
            let what = count(files, "file", "files");
            let exec = format!("coracle worktree exec {} -- git", open.inside.workflow_arguments(id));
            let commands = format!("`{exec} add --all`, then `{exec} commit --message MESSAGE`");
            let message = format!("{what} not committed, and not pushed: {reason}; once that is resolved: {commands}");
            ("uncommitted", message)
        }
        Err(failure) => ("uncommitted", format!("what the agent did not commit stays so: {}", failure.message)),
    };
    Some(Event::Warning { code: code.to_owned(), message })
}

/// Fails when the end of a run was requested, or its time is over.
fn check_cancelled(runs: &RunRecords, until: Instant) -> Result<(), Failure> {
    if runs.is_cancel_requested() {
        return Err(Failure::cancelled());
    }
    if Instant::now() >= until {
        return Err(Failure::new(Code::WallLimit, "The run did not end by itself when its time was over."));
    }
    Ok(())
}

/// Lets the agent of a workflow that is there work on a task.
pub async fn work(
    cx: &Context,
    sandbox: &SandboxHandle,
    workflow: &WorkflowId,
    task: Task,
    hear: impl FnMut(&Value) + Send,
) -> Result<(), Failure> {
    let open = opened(cx, sandbox, workflow).await?;
    let worktree = sandbox.worktrees.create(&open.inside, &CreateRequest::new(workflow.clone())).await?;
    sandbox.set_env(&open, &worktree).await?;
    apply_devcontainer(cx, sandbox, &open, &worktree).await?;
    let begun = begin(cx, sandbox, &worktree, task)?;
    drive(cx, &RunTarget { sandbox, open: &open }, begun, hear).await
}

/// A failure as the last event of a run.
fn failed(number: u64, failure: &Failure) -> Value {
    json!({
        "type": "result",
        "is_error": true,
        "code": failure.code,
        "content": failure.message,
        "hint": failure.hint,
        "details": failure.details,
        "number": number,
    })
}

/// The workflows of all sandboxes that are remembered.
async fn workflows(cx: &Context) -> Vec<String> {
    let rows = super::overview(cx).await.unwrap_or_default();
    let told = serde_json::to_value(rows).unwrap_or_default();
    let workflows = told.as_array().into_iter().flatten().flat_map(|it| it["workflows"].as_array().cloned());
    workflows.flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// The sandbox of a workflow that is there, ready.
pub async fn opened(cx: &Context, sandbox: &SandboxHandle, id: &WorkflowId) -> Result<OpenSandbox, Failure> {
    if !sandbox.worktrees.remembered(sandbox.key.as_str())?.contains(id) {
        let failure = Failure::new(Code::WorktreeMissing, format!("There is no worktree `{id}`."));
        let hint = "`coracle worktree create` makes one, `coracle worktree list` shows them, and `coracle saved list` what was saved";
        return Err(failure.hint(suggest::hint(id.as_str(), &workflows(cx).await, hint)));
    }
    open(cx, sandbox).await
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_context::config::Config;
    use coracle_context::context::Context;
    use coracle_context::failure::{Code, Failure, HintReader};
    use coracle_types::ProfileName;

    use super::model;

    fn check(models: &str, named: Option<&str>) -> Result<String, Failure> {
        let dir = tempfile::tempdir().unwrap();
        let mut cx = Context::for_tests(dir.path());
        let provider = format!(
            "[sandbox.profiles.default.provider]\nkind = \"openai\"\nbase_url = \"https://api.example.com/v1\"\n\
             key_env = \"KEY\"\nmodels = {models}\n"
        );
        cx.config = Arc::new(Config::read(&provider, false).unwrap());
        model(&cx, &ProfileName::parse("default").unwrap(), named.map(str::to_owned))
    }

    #[test]
    fn a_model_that_is_not_listed_names_the_list_and_no_key() {
        assert_eq!(check("[\"gpt-*\"]", Some("gpt-5")).unwrap(), "gpt-5");
        let refused = check("[\"gpt-*\", \"o3\"]", Some("claude-3")).unwrap_err();
        assert_eq!((refused.code, &refused.details["rule"]), (Code::PolicyDenied, &"model".into()));
        let person = refused.for_reader(&HintReader::Person("/c/config.toml".into())).into_inner().hint.unwrap();
        let expected = "name one of gpt-*, o3, or change `sandbox.profiles.default.provider.models` in /c/config.toml";
        assert_eq!(person, expected);
        assert!(
            check("[]", Some("gpt-5")).unwrap_err().into_inner().hint.unwrap().starts_with("no model is allowed yet")
        );
        assert!(check("[\"gpt-*\"]", None).unwrap_err().into_inner().hint.unwrap().starts_with("name one"));
    }
}
