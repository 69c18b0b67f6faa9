//! A coding agent of others at work in the worktree of a workflow: how it starts, and what it leaves.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use coracle_context::config::{Provider, ProviderKind};
use coracle_context::context::Context;
use coracle_context::failure::{Code, Failure};
use coracle_lifecycle::Lock;
use coracle_prepare::coding_agents::{AgentStart, CodingAgent};
use coracle_prepare::process::Process;
use coracle_prepare::sandbox::run::{is_listed, warnings_of_stray_work};
use coracle_prepare::sandbox::{ensure_key, opened};
use coracle_sandbox::driver::Event;
use coracle_sandbox::{OpenSandbox, RunRecord, RunRecords, RunState, SandboxHandle};
use coracle_types::{Exec, ProfileName, SandboxWarning, random_hex};
use coracle_worktrees::changes::{ApplyMode, ApplyReport, Commit};
use coracle_worktrees::create::{CreateRequest, Worktree};
use serde::Serialize;
use tokio::time::sleep;

use crate::worktree::{AgentWorktree, CheckoutRequest, create_for_agent};

/// How often a run looks for a request to cancel it.
const LOOKS: Duration = Duration::from_millis(300);

/// Bytes of output that are retained; a record holds all of them.
const RETAINED_OUTPUT: usize = 64 << 10;

/// What an agent is to do, and in which sandbox.
#[derive(Clone, Debug)]
pub struct AgentTask {
    /// The agent.
    pub agent: &'static CodingAgent,
    /// The kind of sandbox.
    pub profile: ProfileName,
    /// The model; the agent's own choice, or that of the configuration, when missing.
    pub model: Option<String>,
    /// The task; with none a person works with it.
    pub prompt: Option<String>,
    /// More arguments of the agent.
    pub more: Vec<String>,
    /// It is ended after that.
    pub timeout: Option<Duration>,
}

/// How a program ended, and what it printed, if that was retained.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentExit {
    /// As a shell tells it.
    pub exit_code: u8,
    /// The end of its standard output.
    pub output: String,
}

/// What an agent left.
#[derive(Debug, Serialize)]
pub struct AgentReport {
    /// The branch of its commits: the workflow's, unless all of them are on another one.
    pub branch: String,
    /// Newest first.
    pub commits: Vec<Commit>,
    /// Where the branch arrived; none where the repository is elsewhere, or there is no commit.
    pub applied: Option<ApplyReport>,
    /// What did not go as it should.
    pub warnings: Vec<SandboxWarning>,
}

/// A workflow with an agent that is about to start.
#[derive(Debug)]
pub struct PreparedAgent {
    /// Its sandbox.
    pub sandbox: Arc<SandboxHandle>,
    /// The same, ready.
    pub open: OpenSandbox,
    /// Where it works.
    pub worktree: Worktree,
    exec: Exec,
    record: RunRecord,
    runs: RunRecords,
    /// The lock that keeps other drivers from the workflow.
    alone: Lock,
}

/// Decides the model, and refuses what could not work before anything is made.
///
/// # Errors
/// `config_invalid` without a provider that the agent speaks to, or without its key; `policy_denied` for a model that is not listed.
pub async fn check(cx: &Context, task: AgentTask) -> Result<AgentTask, Failure> {
    let provider = provider(cx, &task)?;
    let usual = || cx.config.worker.model.clone().filter(|_| task.agent.needs_model());
    let model = task.model.clone().or_else(usual);
    match &model {
        Some(model) => is_listed(&task.profile, &provider, model)?,
        None if task.agent.needs_model() => {
            let message = format!("is missing, and {} chooses none by itself", task.agent.name);
            return Err(Failure::invalid("model", message).hint_setting("name one", "worker.model"));
        }
        None => {}
    }
    ensure_key(cx, &task.profile).await?;
    Ok(AgentTask { model, ..task })
}

/// Where its models are.
fn provider(cx: &Context, task: &AgentTask) -> Result<Provider, Failure> {
    let key = format!("sandbox.profiles.{}.provider", task.profile);
    let kinds: Vec<_> = task.agent.kinds().map(word).collect();
    let Some(provider) = cx.config.sandbox.profile(&task.profile).provider else {
        let message = format!("the profile `{}` has no provider of models", task.profile);
        let verb = format!("set `kind = \"{}\"`, `base_url` and `key_env` in", kinds[0]);
        return Err(Failure::config(&key, None, message).hint_only_setting(&verb, &key));
    };
    if task.agent.kinds().all(|it| it != provider.kind) {
        let (name, kind) = (task.agent.name, word(provider.kind));
        let message = format!("{name} speaks to a provider of kind {}, and this one is {kind}", kinds.join(" or "));
        let verb = format!("give the profile `{}` a provider of its own by", task.profile);
        return Err(Failure::config(format!("{key}.kind"), None, message).hint_only_setting(&verb, &key));
    }
    Ok(provider)
}

fn word(kind: ProviderKind) -> &'static str {
    match kind {
        ProviderKind::Openai => "openai",
        ProviderKind::Anthropic => "anthropic",
        ProviderKind::Google => "google",
    }
}

/// Makes the sandbox and the worktree, or finds them, and records the run.
///
/// # Errors
/// Those of `worktree create`; `busy` while another agent works there.
pub async fn prepare(process: &Process, at: AgentWorktree, task: &AgentTask) -> Result<PreparedAgent, Failure> {
    let cx = &process.context;
    let id = create_for_agent(process, at, &task.profile).await?;
    let sandbox = process.sandboxes().of_workflow(&task.profile, &id).await?;
    let open = opened(cx, &sandbox, &id).await?;
    let worktree = sandbox.worktrees.create(&open.inside, &CreateRequest::new(id)).await?;
    sandbox.set_env(&open, &worktree).await?;
    let exec = exec(cx, &sandbox, &open, &worktree, task)?;
    let runs = RunRecords::new(sandbox.sandbox.dir(), &worktree.id);
    let alone = runs.lock()?;
    let model = task.model.clone().unwrap_or_else(|| task.agent.name.to_owned());
    let session = cx.call.session.clone();
    let begun = RunRecord::begun(&worktree, random_hex::<16>(), task.profile.clone(), model, session);
    let record = RunRecord { prompt: task.prompt.clone(), ..begun };
    runs.begin(&record)?;
    Ok(PreparedAgent { sandbox, open, worktree, exec, record, runs, alone })
}

fn exec(
    cx: &Context,
    sandbox: &SandboxHandle,
    open: &OpenSandbox,
    worktree: &Worktree,
    task: &AgentTask,
) -> Result<Exec, Failure> {
    let kind = provider(cx, task)?.kind;
    let (model, prompt) = (task.model.as_deref(), task.prompt.as_deref());
    let start = AgentStart { kind, model, task: prompt, more: &task.more };
    let command = task.agent.command(&start).ok_or_else(|| Failure::internal("the agent does not speak to it"))?;
    let inside = &open.inside;
    let mut exec = Exec::new(command, inside.agent, inside.tree_path(&worktree.id));
    exec.env = worktree.env();
    exec.env.extend(task.agent.env(&start));
    // Where files belong to the user, the volume is the user's home.
    let volume = if sandbox.shared.is_some() { "/home/agent" } else { "/workspace" };
    exec.env.insert("HOME".into(), task.agent.home(volume));
    exec.limits.total = task.timeout;
    exec.keep_bytes = 2 * RETAINED_OUTPUT;
    exec.cancel = cx.call.cancel.child_token();
    Ok(exec)
}

impl PreparedAgent {
    /// Runs it by `start` to its end, records that, and brings its commits to the repository that they began from.
    ///
    /// # Errors
    /// Those of `start`; `cancelled`.
    pub async fn run(
        self,
        cx: &Context,
        start: impl AsyncFnOnce(&OpenSandbox, Exec) -> Result<AgentExit, Failure>,
    ) -> Result<(AgentExit, AgentReport), Failure> {
        let Self { sandbox, open, worktree, exec, mut record, runs, alone } = self;
        let cancel = exec.cancel.clone();
        let ended = tokio::select! {
            ended = start(&open, exec) => ended,
            never = cancel_on_request(&runs, &cancel) => match never {},
        };
        let ended = ended.and_then(|it| if cancel.is_cancelled() { Err(Failure::cancelled()) } else { Ok(it) });
        let report = match &ended {
            Ok(_) => deliver(cx, &sandbox, &open, &worktree).await,
            Err(_) => Ok(AgentReport::new(&worktree)),
        };
        record.ended = Some(jiff::Timestamp::now());
        let noted = match &ended {
            Ok(exit) => {
                let content = exit.output.clone();
                let result = Event::Result { content, is_error: exit.exit_code != 0, model: None };
                runs.append(1, &result).map(drop).map_err(Failure::from)
            }
            Err(_) => Ok(()),
        };
        // A run whose result cannot be recorded has ended all the same.
        let failure = match (&ended, &noted) {
            (Ok(exit), Ok(())) => {
                record.state = if exit.exit_code == 0 { RunState::Done } else { RunState::Failed };
                (exit.exit_code != 0).then(|| ("command_failed".to_owned(), format!("exit code {}", exit.exit_code)))
            }
            (Err(failure), _) | (_, Err(failure)) => {
                let cancelled = failure.code == Code::Cancelled;
                record.state = if cancelled { RunState::Cancelled } else { RunState::Failed };
                Some((failure.code.word(), failure.message.clone()))
            }
        };
        (record.code, record.message) = failure.unzip();
        runs.save(&record)?;
        drop(alone);
        let exit = ended?;
        noted?;
        Ok((exit, report?))
    }
}

/// Another process, such as one that removes the sandbox, may want the end of the run.
async fn cancel_on_request(
    runs: &RunRecords,
    cancel: &tokio_util::sync::CancellationToken,
) -> std::convert::Infallible {
    loop {
        sleep(LOOKS).await;
        if runs.is_cancel_requested() {
            cancel.cancel();
        }
    }
}

impl AgentReport {
    fn new(worktree: &Worktree) -> Self {
        Self { branch: worktree.branch.clone(), commits: Vec::new(), applied: None, warnings: Vec::new() }
    }
}

/// Commits what the agent left, and fetches its branch into the directory that the workflow began from.
async fn deliver(
    cx: &Context,
    sandbox: &SandboxHandle,
    open: &OpenSandbox,
    worktree: &Worktree,
) -> Result<AgentReport, Failure> {
    let mut report = AgentReport::new(worktree);
    let left = warnings_of_stray_work(sandbox, open, &worktree.id).await;
    report.warnings.extend(left.into_iter().filter_map(|it| match it {
        Event::Warning { code, message } => Some(SandboxWarning { code, message }),
        _ => None,
    }));
    report.commits = sandbox.worktrees.log(&open.inside, &worktree.id).await?;
    let is_local = sandbox.repository().is_some_and(|it| Path::new(it).is_absolute());
    if report.commits.is_empty() || !is_local {
        return Ok(report);
    }
    // The commits may all be on another branch: then there is nothing to fetch.
    let stray = sandbox.worktrees.stray_commits(&open.inside, &worktree.id).await?;
    if let Some(stray) = stray.filter(|it| !it.expected_has_some) {
        report.branch = stray.branch.unwrap_or(stray.commit);
        return Ok(report);
    }
    let request = CheckoutRequest { to: None, mode: ApplyMode::Branch, protected: false }.resolve(cx, sandbox).await?;
    match sandbox.worktrees.apply(&open.inside, &worktree.id, &request).await {
        Ok(applied) => report.applied = Some(applied),
        Err(failure) => {
            let message = format!("the commits stay in the sandbox: {}", failure.message);
            report.warnings.push(SandboxWarning::new("not_applied", message));
        }
    }
    Ok(report)
}
