//! One run of an agent, from its prompt to its result.

use std::time::Duration;

use coracle_context::config::{Provider, ProviderKind};
use coracle_context::configured_key::ConfiguredKey;
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

use super::{apply_devcontainer, open};

/// Interval of checks for a request to cancel the run.
const CANCEL_CHECK_INTERVAL: Duration = Duration::from_millis(300);

/// How long a worker may run over its time limit before the host ends the run.
const WORKER_GRACE_PERIOD: Duration = Duration::from_secs(60);

/// The task of an agent, and the profile of its sandbox.
#[derive(Clone, Debug)]
pub struct Task {
    /// The profile of the sandbox.
    pub profile: ProfileName,
    /// The task.
    pub prompt: String,
    /// The model, or `None` for the configured one.
    pub model: Option<String>,
    /// Instructions for the model beside the task.
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
    /// The lock that excludes other drivers of the workflow.
    driver_lock: Lock,
}

/// Returns the model of a task. Fails if the profile has no provider, so that nothing is started.
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

/// Fails if there is no key for a profile's provider: otherwise each request would fail after the sandbox has started.
///
/// `config_invalid`, with the configured source of the key. `config_invalid`, which names the place.
pub async fn ensure_key(cx: &Context, profile: &ProfileName) -> Result<(), Failure> {
    let Some(provider) = cx.config.sandbox.profile(profile).provider else { return Ok(()) };
    let key = ConfiguredKey::of_provider(cx, &provider)?;
    if key.key().await.is_some() {
        return Ok(());
    }
    let place = key.place();
    let setting = format!("sandbox.profiles.{profile}.provider");
    let message = format!("no key for the models of the profile `{profile}`: {}", place.missing);
    Err(Failure::config(format!("{setting}.{}", place.setting), None, message).hint(place.hint))
}

/// Fails for a model that the configuration does not list. The proxy would refuse it too, but only after the sandbox
/// has started.
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

/// Records a new run in a worktree.
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
    let driver_lock = runs.lock()?;
    let begun = RunRecord::begun(worktree, run_id, task.profile, model, cx.call.session.clone());
    let run = RunRecord { prompt, ..begun };
    runs.begin(&run)?;
    Ok(PreparedRun { run, runs, request, driver_lock })
}

/// The sandbox of a run, and how it is reached.
#[derive(Debug)]
pub struct RunTarget<'a> {
    pub sandbox: &'a SandboxHandle,
    pub open: &'a OpenSandbox,
}

/// Drives a run to its end. Records every event, and passes it to `on_event`.
pub async fn drive(
    cx: &Context,
    target: &RunTarget<'_>,
    begun: PreparedRun,
    mut on_event: impl FnMut(&Value) + Send,
) -> Result<(), Failure> {
    let RunTarget { sandbox, open } = *target;
    let PreparedRun { mut run, runs, request, driver_lock } = begun;
    let driver = sandbox.driver();
    // A worker that Coracle still controls ends the run before that.
    let until = Instant::now() + Duration::from_secs(cx.config.worker.wall_seconds) + WORKER_GRACE_PERIOD;
    let mut events = driver.run_agentic(request);
    let (mut number, mut ended) = (0, None);
    let mut cancel_checks = interval(CANCEL_CHECK_INTERVAL);
    cancel_checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while ended.is_none() {
        let event = tokio::select! {
            biased;
            () = cx.call.cancel.cancelled() => Some(Err(Failure::cancelled())),
            // Checked before the events, so that a stream of events cannot delay a cancellation.
            _ = cancel_checks.tick() => match check_cancelled(&runs, until) {
                Err(failure) => Some(Err(failure)),
                Ok(()) => continue,
            },
            event = events.next() => event.map(|it| it.map_err(Failure::from)),
        };
        ended = match event {
            Some(Ok(event)) => {
                let is_last = matches!(event, Event::Result { .. });
                let warnings =
                    if is_last { warnings_of_stray_work(sandbox, open, &run.workflow).await } else { Vec::new() };
                let events = warnings.into_iter().chain([event]);
                // A record that cannot be written ends the run.
                let noted = note_events(&runs, &mut number, events, &mut on_event);
                if is_last || noted.is_err() { Some(noted) } else { None }
            }
            Some(Err(failure)) => Some(Err(failure)),
            None => Some(Err(Failure::new(Code::NoResult, "The run ended without a result."))),
        };
    }
    // The worker ends before the result is reported.
    drop(events);
    if let Err(err) = driver.close().await {
        tracing::warn!(%err, "cannot confirm that a worker has ended");
    }
    run.usage = driver.usage();
    run.ended = Some(jiff::Timestamp::now());
    let ended = ended.unwrap_or(Ok(()));
    match &ended {
        Ok(()) => run.state = RunState::Done,
        Err(failure) => {
            run.state = if failure.code == Code::Cancelled { RunState::Cancelled } else { RunState::Failed };
            (run.code, run.message) = (Some(failure.code.word()), Some(failure.message.clone()));
            on_event(&failed(number + 1, failure));
        }
    }
    runs.save(&run)?;
    drop(driver_lock);
    ended
}

/// Appends events to the record of a run, and reports each.
fn note_events(
    runs: &RunRecords,
    number: &mut u64,
    events: impl Iterator<Item = Event>,
    on_event: &mut impl FnMut(&Value),
) -> Result<(), Failure> {
    for event in events {
        let line = runs.append(*number + 1, &event)?;
        *number += 1;
        on_event(&line);
    }
    Ok(())
}

/// Warns of an agent's work that is not on its workflow's branch. Only commits there are pushed, so uncommitted changes
/// are committed first.
pub async fn warnings_of_stray_work(sandbox: &SandboxHandle, open: &OpenSandbox, id: &WorkflowId) -> Vec<Event> {
    let leftover = commit_leftover(sandbox, open, id).await;
    let stray = match sandbox.worktrees.stray_commits(&open.inside, id).await {
        Ok(stray) => stray.map(|it| it.warning()),
        Err(failure) => {
            tracing::warn!(%failure, "cannot find commits on other branches");
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

/// Fails if a cancellation was requested, or if the time is over.
fn check_cancelled(runs: &RunRecords, until: Instant) -> Result<(), Failure> {
    if runs.is_cancel_requested() {
        return Err(Failure::cancelled());
    }
    if Instant::now() >= until {
        return Err(Failure::new(Code::WallLimit, "The run did not end by itself when its time was over."));
    }
    Ok(())
}

/// Runs the agent of an existing workflow on a task.
pub async fn work(
    cx: &Context,
    sandbox: &SandboxHandle,
    workflow: &WorkflowId,
    task: Task,
    on_event: impl FnMut(&Value) + Send,
) -> Result<(), Failure> {
    let open = opened(cx, sandbox, workflow).await?;
    let worktree = sandbox.worktrees.create(&open.inside, &CreateRequest::new(workflow.clone())).await?;
    sandbox.set_env(&open, &worktree).await?;
    apply_devcontainer(cx, sandbox, &open, &worktree).await?;
    let begun = begin(cx, sandbox, &worktree, task)?;
    drive(cx, &RunTarget { sandbox, open: &open }, begun, on_event).await
}

/// Renders a failure as the last event of a run.
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

/// Lists the workflows of all sandboxes that have records.
async fn workflows(cx: &Context) -> Vec<String> {
    let rows = super::overview(cx).await.unwrap_or_default();
    let rows = serde_json::to_value(rows).unwrap_or_default();
    let workflows = rows.as_array().into_iter().flatten().flat_map(|it| it["workflows"].as_array().cloned());
    workflows.flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
}

/// Opens the sandbox of an existing workflow.
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
    fn a_refused_model_is_answered_with_the_list_and_without_the_key() {
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
