//! Typed results of calls.

use std::path::PathBuf;
use std::time::Duration;

use coracle_context::warning::Warning;
use coracle_jobs::{JobState, WaitOutcome};
use coracle_lifecycle::{Finding, SaveReport};
use coracle_types::JobId;

use crate::commands::{ExecResponse, JobRow, JobWaitResponse};
use crate::operations::DestroyResponse;
use crate::snapshot::SnapshotResponse;

/// How a command ended, and what it printed.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CommandResult {
    /// Its exit code; `None` while it runs, and when a signal ended it.
    pub exit_code: Option<u8>,
    /// Standard output; if it is long, its beginning and its end.
    pub stdout: String,
    /// Standard error, truncated like `stdout`.
    pub stderr: String,
    /// Whether a time limit ended it.
    pub timed_out: bool,
    /// The signal that ended it, such as `SEGV`.
    pub signal: Option<String>,
    /// Whether part of the output is omitted; [`Job::read`](super::Job::read) of `job_id` reads all of it.
    pub truncated: bool,
    /// The job that has the complete output, if part is omitted here.
    pub job_id: Option<JobId>,
    /// How long it ran.
    pub duration: Duration,
    /// Warnings, such as about processes that it left running.
    pub warnings: Vec<Warning>,
}

impl CommandResult {
    /// Whether it exited with 0.
    #[must_use]
    pub fn is_success(&self) -> bool {
        self.exit_code == Some(0)
    }

    pub(super) fn new(response: ExecResponse, warnings: Vec<Warning>) -> Self {
        Self {
            exit_code: response.exit_code,
            stdout: response.stdout,
            stderr: response.stderr,
            timed_out: response.timed_out,
            signal: response.signal,
            truncated: response.truncated,
            job_id: response.job_id,
            duration: Duration::from_millis(response.duration_ms),
            warnings,
        }
    }
}

/// Why a wait for a job ended.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Waited {
    /// The condition that held, the end of the job, or the time limit.
    pub reason: WaitOutcome,
    /// The state of the job.
    pub state: JobState,
    /// Its exit code, once it has ended.
    pub exit_code: Option<u8>,
    /// The line that matched.
    pub line: Option<String>,
    /// The last lines of the output.
    pub output: String,
    /// The offset at which the next wait finds only new output.
    pub next_offset: u64,
}

impl From<JobWaitResponse> for Waited {
    fn from(response: JobWaitResponse) -> Self {
        Self {
            reason: response.reason,
            state: response.state,
            exit_code: response.exit_code,
            line: response.r#match.map(|found| found.text),
            output: response.output,
            next_offset: response.next_offset,
        }
    }
}

/// A page of the output of a job, both streams in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputPage {
    /// The bytes, at most 32 KiB.
    pub bytes: Vec<u8>,
    /// Where the next page begins.
    pub next_offset: u64,
    /// Bytes printed so far.
    pub total_bytes: u64,
    /// Whether this is the last page: the job has ended, and there is no more output.
    pub is_last: bool,
    /// Whether the job still runs.
    pub running: bool,
}

/// One job of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobInfo {
    /// Its id, for [`Container::job`](super::Container::job).
    pub id: JobId,
    /// The first 200 characters of its command.
    pub command: String,
    /// The state of the job.
    pub state: JobState,
    /// Its exit code, once it has ended.
    pub exit_code: Option<u8>,
    /// Bytes printed so far.
    pub total_bytes: u64,
}

impl From<JobRow> for JobInfo {
    fn from(row: JobRow) -> Self {
        let JobRow { job_id, command, state, exit_code, total_bytes, .. } = row;
        Self { id: job_id, command, state, exit_code, total_bytes }
    }
}

/// A snapshot, from which [`Client::restore`](super::Client::restore) creates containers.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SnapshotInfo {
    /// Its name.
    pub name: String,
    /// The size of its image in bytes.
    pub size_bytes: u64,
    /// Mounts and files that are not in it.
    pub not_included: Vec<String>,
    /// Warnings of the call.
    pub warnings: Vec<Warning>,
}

impl SnapshotInfo {
    pub(super) fn new(response: SnapshotResponse, warnings: Vec<Warning>) -> Self {
        let SnapshotResponse { snapshot, size_bytes, not_included, .. } = response;
        Self { name: snapshot.to_string(), size_bytes, not_included, warnings }
    }
}

/// The result of removing a container: saved work, and changes to review.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Removed {
    /// Work that existed only in the container, and where it is on the host now.
    pub saved: Vec<SaveReport>,
    /// Changes in mounted host directories to review, such as a changed git hook.
    pub review: Vec<Finding>,
    /// Whether the container had been removed before.
    pub already_gone: bool,
    /// Warnings of the call.
    pub warnings: Vec<Warning>,
}

impl Removed {
    /// The host directories with the saved work.
    pub fn locations(&self) -> impl Iterator<Item = &PathBuf> {
        self.saved.iter().map(|report| &report.location)
    }

    pub(super) fn new(response: DestroyResponse, warnings: Vec<Warning>) -> Self {
        let DestroyResponse { saved, review, already_gone, .. } = response;
        Self { saved, review, already_gone, warnings }
    }
}
