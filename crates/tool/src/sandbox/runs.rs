//! Runs of agents in workflows, as they are remembered: for whoever asks, in this process or in another.
//!
//! **Invariant:** a run is written by the process that drives it alone. When that is dead, the run is lost.

use std::fs::{File, OpenOptions, TryLockError};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_runtime::host::fs::replace;
use coracle_runtime::{ContainerName, ProcessId};
use coracle_sandbox::driver::Event;
use coracle_sandbox::protocol::Usage;
use coracle_sandbox::{ProfileName, SandboxDir, WorkflowId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use crate::context::Context;
use crate::failure::{Code, Failure};

/// How often it is looked whether an agent that was told to stop has.
const LOOKS: Duration = Duration::from_millis(100);

/// How a run stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunState {
    /// The agent works.
    Running,
    /// It gave its result.
    Done,
    /// It ended without one.
    Failed,
    /// Somebody ended it.
    Cancelled,
    /// The process that drove it is gone.
    Lost,
}

/// What is remembered of the last run of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Run {
    pub(crate) workflow: WorkflowId,
    pub(crate) run_id: String,
    pub(crate) profile: ProfileName,
    pub(crate) branch: String,
    pub(crate) model: String,
    pub(crate) state: RunState,
    pub(crate) began: Timestamp,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) usage: Option<Usage>,
    /// Why it failed.
    pub(crate) code: Option<String>,
    pub(crate) message: Option<String>,
    /// Whose call began it.
    pub(crate) session: ContainerName,
    owner: ProcessId,
}

impl Run {
    pub(crate) fn new(
        workflow: &WorkflowId,
        (profile, branch, model): (&ProfileName, String, String),
        (session, run_id): (&ContainerName, String),
    ) -> Self {
        Self {
            workflow: workflow.clone(),
            run_id,
            profile: profile.clone(),
            branch,
            model,
            state: RunState::Running,
            began: Timestamp::now(),
            ended: None,
            usage: None,
            code: None,
            message: None,
            session: session.clone(),
            owner: ProcessId::current(),
        }
    }
}

/// The files of one workflow's run, below its sandbox's directory.
#[derive(Clone, Debug)]
pub(crate) struct Runs {
    dir: PathBuf,
    workflow: WorkflowId,
}

impl Runs {
    pub(crate) fn of(sandbox: &SandboxDir, workflow: &WorkflowId) -> Self {
        Self { dir: sandbox.root().join("runs"), workflow: workflow.clone() }
    }

    fn file(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.workflow))
    }

    /// The last run; one whose process is gone is lost.
    pub(crate) fn last(&self) -> Result<Option<Run>, Failure> {
        let bytes = match std::fs::read(self.file("json")) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(Failure::internal)?,
        };
        let mut run: Run = serde_json::from_slice(&bytes).map_err(Failure::internal)?;
        if run.state == RunState::Running && !run.owner.alive() {
            run.state = RunState::Lost;
        }
        Ok(Some(run))
    }

    /// Held by whoever drives a run, or takes the workflow away: nobody else does meanwhile.
    pub(crate) fn alone(&self) -> Result<File, Failure> {
        std::fs::create_dir_all(&self.dir).map_err(Failure::internal)?;
        let mut options = OpenOptions::new();
        let options = options.create(true).truncate(false).write(true).mode(0o600);
        let file = options.open(self.file("lock")).map_err(Failure::internal)?;
        match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => {
                let message = format!("an agent works in `{}` already", self.workflow);
                Err(Failure::new(Code::Busy, message).hint("wait for it, or cancel it"))
            }
            Err(TryLockError::Error(err)) => Err(Failure::internal(err)),
        }
    }

    /// Nobody works in the workflow any more, and nobody begins to as long as the answer is held. An agent that does is
    /// told to stop first.
    pub(crate) async fn without_agent(&self, cx: &Context, patience: Duration) -> Result<File, Failure> {
        let give_up = Instant::now() + patience;
        let mut told = false;
        loop {
            match self.alone() {
                Err(failure) if failure.code == Code::Busy && Instant::now() < give_up => {
                    if !std::mem::replace(&mut told, true) {
                        self.ask_to_cancel()?;
                    }
                    cx.unless_cancelled(async {
                        sleep(LOOKS).await;
                        Ok(())
                    })
                    .await?;
                }
                alone => return alone,
            }
        }
    }

    /// Begins one, whose events take the place of those before.
    pub(crate) fn begin(&self, run: &Run) -> Result<(), Failure> {
        for end in ["jsonl", "cancel"] {
            remove(&self.file(end))?;
        }
        self.save(run)
    }

    pub(crate) fn save(&self, run: &Run) -> Result<(), Failure> {
        let text = serde_json::to_vec_pretty(run).map_err(Failure::internal)?;
        replace(&self.file("json"), &text).map_err(Failure::internal)
    }

    /// Notes what happened, each with its number from 1.
    pub(crate) fn tell(&self, number: u64, event: &Event) -> Result<Value, Failure> {
        let mut line = serde_json::to_value(event).map_err(Failure::internal)?;
        line["number"] = number.into();
        let open = OpenOptions::new().append(true).create(true).mode(0o600).open(self.file("jsonl"));
        let written = open.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(Failure::internal)?;
        Ok(line)
    }

    /// What happened after that number, at most so many.
    pub(crate) fn events(&self, after: u64, most: usize) -> Result<Vec<Value>, Failure> {
        let file = match File::open(self.file("jsonl")) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file.map_err(Failure::internal)?,
        };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        // A line that is being written has no end yet, and is no JSON.
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        Ok(events.filter(|it| it["number"].as_u64().is_some_and(|it| it > after)).take(most).collect())
    }

    /// Asks whoever drives it to end it.
    pub(crate) fn ask_to_cancel(&self) -> Result<(), Failure> {
        std::fs::write(self.file("cancel"), b"").map_err(Failure::internal)
    }

    /// Whether somebody asked for its end.
    pub(crate) fn is_asked_to_cancel(&self) -> bool {
        self.file("cancel").exists()
    }

    /// Nothing is remembered any more.
    pub(crate) fn forget(&self) -> Result<(), Failure> {
        ["json", "jsonl", "cancel"].iter().try_for_each(|end| remove(&self.file(end)))
    }
}

fn remove(path: &Path) -> Result<(), Failure> {
    match std::fs::remove_file(path) {
        Err(err) if err.kind() != std::io::ErrorKind::NotFound => Err(Failure::internal(err)),
        _ => Ok(()),
    }
}

/// A failure as the last event of a run.
pub(crate) fn failed(number: u64, failure: &Failure) -> Value {
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
