//! Records of agents' runs in workflows, for this process and others.
//!
//! **Invariant:** only the process that drives a run writes its record. A run whose process is dead is lost.

use std::fs::{File, OpenOptions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_host::{fs, state_file};
use coracle_types::{ContainerName, ProcessId, ProfileName, WorkflowId};
use coracle_worktrees::create::Worktree;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use crate::driver::Event;
use crate::protocol::Usage;
use crate::{Code, Failure, Result, SandboxDir};

/// Between two looks whether an agent that has to stop has stopped.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// The state of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// The agent works.
    Running,
    /// It gave its result.
    Done,
    /// It ended without one.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// The process that drove it is gone.
    Lost,
}

/// What is recorded of the last run of a workflow.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunRecord {
    /// The workflow.
    pub workflow: WorkflowId,
    /// The id of the run.
    pub run_id: String,
    /// The profile of the sandbox.
    pub profile: ProfileName,
    /// The branch of the worktree.
    pub branch: String,
    /// The model.
    pub model: String,
    /// The task. Records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// The state of the run.
    pub state: RunState,
    /// When it began.
    pub began: Timestamp,
    /// When it ended.
    pub ended: Option<Timestamp>,
    /// What it used.
    pub usage: Option<Usage>,
    /// Why it failed.
    pub code: Option<String>,
    /// The same in a sentence.
    pub message: Option<String>,
    /// The session whose call began it.
    pub session: ContainerName,
    /// The process that drives it.
    pub owner: ProcessId,
}

impl RunRecord {
    /// A run that this process begins now.
    #[must_use]
    pub fn begun(
        worktree: &Worktree,
        run_id: String,
        profile: ProfileName,
        model: String,
        session: ContainerName,
    ) -> Self {
        Self {
            workflow: worktree.id.clone(),
            run_id,
            profile,
            branch: worktree.branch.clone(),
            model,
            prompt: None,
            state: RunState::Running,
            began: Timestamp::now(),
            ended: None,
            usage: None,
            code: None,
            message: None,
            session,
            owner: ProcessId::current(),
        }
    }
}

/// The files of one workflow's run, below its sandbox's directory.
#[derive(Clone, Debug)]
pub struct RunRecords {
    dir: PathBuf,
    workflow: WorkflowId,
}

impl RunRecords {
    /// The files of a workflow.
    #[must_use]
    pub fn new(sandbox: &SandboxDir, workflow: &WorkflowId) -> Self {
        Self { dir: sandbox.root().join("runs"), workflow: workflow.clone() }
    }

    fn file(&self, end: &str) -> PathBuf {
        self.dir.join(format!("{}.{end}", self.workflow))
    }

    /// The last run. It is lost if its process is gone.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn last(&self) -> Result<Option<RunRecord>> {
        let Some(mut run) = state_file::read::<RunRecord>(&self.file("json"))? else { return Ok(None) };
        if run.state == RunState::Running && !run.owner.alive() {
            run.state = RunState::Lost;
        }
        Ok(Some(run))
    }

    /// Locks the workflow, to drive a run or to remove it.
    ///
    /// # Errors
    /// `busy` while another process does.
    pub fn lock(&self) -> Result<Lock> {
        std::fs::create_dir_all(&self.dir).map_err(Failure::internal)?;
        Lock::try_take(&self.file("lock")).map_err(Failure::internal)?.ok_or_else(|| {
            let message = format!("an agent works in `{}` already", self.workflow);
            Failure::new(Code::Busy, message).hint("wait for it, or cancel it")
        })
    }

    /// Like [`lock`](Self::lock), but ends the agent that works there first.
    ///
    /// # Errors
    /// `busy` if the agent still works after `patience`; `cancelled`.
    pub async fn lock_without_agent(&self, cancel: &CancellationToken, patience: Duration) -> Result<Lock> {
        let give_up = Instant::now() + patience;
        let mut requested = false;
        loop {
            match self.lock() {
                Err(failure) if failure.code == Code::Busy && Instant::now() < give_up => {
                    if !std::mem::replace(&mut requested, true) {
                        self.request_cancel()?;
                    }
                    cancel.run_until_cancelled(sleep(POLL_INTERVAL)).await.ok_or_else(Failure::cancelled)?;
                }
                locked => return locked,
            }
        }
    }

    /// Begins a run. Its events replace those of the last one.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn begin(&self, run: &RunRecord) -> Result<()> {
        for end in ["jsonl", "cancel"] {
            fs::remove(&self.file(end)).map_err(Failure::internal)?;
        }
        self.save(run)
    }

    /// Records a run.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn save(&self, run: &RunRecord) -> Result<()> {
        state_file::write(&self.file("json"), run)
    }

    /// Appends an event with its number, from 1.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn append(&self, number: u64, event: &Event) -> Result<Value> {
        let mut line = serde_json::to_value(event).map_err(Failure::internal)?;
        line["number"] = number.into();
        let open = OpenOptions::new().append(true).create(true).mode(0o600).open(self.file("jsonl"));
        let written = open.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
        written.map_err(Failure::internal)?;
        Ok(line)
    }

    /// At most `limit` events after a number.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn events(&self, after: u64, limit: usize) -> Result<Vec<Value>> {
        let file = match File::open(self.file("jsonl")) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            file => file.map_err(Failure::internal)?,
        };
        let lines = BufReader::new(file).lines().map_while(Result::ok);
        // A line that is being written has no end yet, and is no JSON.
        let events = lines.filter_map(|line| serde_json::from_str::<Value>(&line).ok());
        Ok(events.filter(|it| it["number"].as_u64().is_some_and(|it| it > after)).take(limit).collect())
    }

    /// Bytes of all events so far: it grows with each event.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn events_bytes(&self) -> Result<u64> {
        match std::fs::metadata(self.file("jsonl")) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => Ok(0),
            meta => Ok(meta.map_err(Failure::internal)?.len()),
        }
    }

    /// The last event, which has the agent's answer, of a run that ended well.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn answer(&self) -> Result<Option<Value>> {
        let bytes = match std::fs::read(self.file("jsonl")) {
            Err(err) if err.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(Failure::internal)?,
        };
        let last = bytes.rsplit(|it| *it == b'\n').find_map(|line| serde_json::from_slice::<Value>(line).ok());
        Ok(last.filter(|it| it["type"] == "result"))
    }

    /// Requests the end of the run.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn request_cancel(&self) -> Result<()> {
        std::fs::write(self.file("cancel"), b"").map_err(Failure::internal)
    }

    /// Whether its end was requested.
    #[must_use]
    pub fn is_cancel_requested(&self) -> bool {
        self.file("cancel").exists()
    }

    /// Removes the records.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn forget(&self) -> Result<()> {
        ["json", "jsonl", "cancel"].iter().try_for_each(|end| fs::remove(&self.file(end)).map_err(Failure::internal))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Domain, SandboxKey};

    #[test]
    fn the_answer_is_the_last_whole_event() {
        let state = tempfile::tempdir().unwrap();
        let profile = ProfileName::parse("default").unwrap();
        let workflow = WorkflowId::parse("w").unwrap();
        let key = SandboxKey::new(&profile, &Domain::Workflow(workflow.clone()), "local");
        let runs = RunRecords::new(&SandboxDir::open(state.path(), &key).unwrap(), &workflow);
        assert_eq!((runs.answer().unwrap(), runs.events_bytes().unwrap()), (None, 0));
        drop(runs.lock().unwrap());
        let warning = Event::Warning { code: "c".into(), message: "m".into() };
        runs.append(1, &warning).unwrap();
        let before = runs.events_bytes().unwrap();
        assert_eq!(runs.answer().unwrap(), None, "a warning is no answer");
        runs.append(2, &Event::Result { content: "done".into(), is_error: false, model: None }).unwrap();
        assert!(runs.events_bytes().unwrap() > before);
        assert_eq!(runs.answer().unwrap().unwrap()["content"], "done");
        // Another event is just being written.
        let whole = std::fs::read(runs.file("jsonl")).unwrap();
        std::fs::write(runs.file("jsonl"), [&whole[..], &b"{\"type\":"[..]].concat()).unwrap();
        assert_eq!(runs.answer().unwrap().unwrap()["number"], 2);
    }
}
