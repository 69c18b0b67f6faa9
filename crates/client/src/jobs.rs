//! Jobs, and other calls without input or output.

use std::time::Duration;

use coracle_protocol::{self as protocol, ErrorCode, MAX_PAYLOAD};
use coracle_types::{Error, JobId, Result};
use tokio::time::Instant;

use crate::call::{attempt, encoded};
use crate::channels::ReplyShape;
use crate::command::ms;
use crate::link::Link;

impl Link {
    /// Checks that the guest replies. It accesses no files, so file operations that hang do not delay it.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn ping(&self) -> Result<()> {
        self.call(&protocol::Ping).await
    }

    /// Lists all jobs, oldest first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn jobs(&self) -> Result<Vec<protocol::JobInfo>> {
        self.call(&protocol::ListJobs).await
    }

    /// Describes one job.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn job(&self, job: &JobId) -> Result<protocol::JobInfo> {
        map_missing_job(job, self.call(&protocol::GetJob { job: job.to_string() }).await)
    }

    /// Ends a job with its tree. Returns whether it still ran, and its state.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn cancel(&self, job: &JobId, grace: Duration) -> Result<(bool, protocol::JobInfo)> {
        let call = protocol::CancelJob { job: job.to_string(), grace_ms: ms(grace) };
        let report = map_missing_job(job, self.call(&call).await)?;
        Ok((report.now, report.job))
    }

    /// Reads retained output. `read.limit` is at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn read(&self, mut read: protocol::ReadRequest) -> Result<(protocol::OutputPage, Vec<u8>)> {
        read.limit = read.limit.min(MAX_PAYLOAD as u64);
        let (page, bytes) = map_missing_job_text(&read.job, self.call(&read).await)?;
        Ok((page, bytes.0))
    }

    /// The last lines of both streams in order of arrival. `limit` is in bytes, at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn tail(&self, job: &JobId, lines: u64, limit: u64) -> Result<(protocol::OutputPage, Vec<u8>)> {
        let last = protocol::LastLines { lines, limit: limit.min(MAX_PAYLOAD as u64) };
        let call = protocol::TailRequest { job: job.to_string(), last };
        let (page, bytes) = map_missing_job(job, self.call(&call).await)?;
        Ok((page, bytes.0))
    }

    /// Searches retained output for lines that match.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`]; [`Error::Refused`] with [`ErrorCode::Invalid`] for an invalid pattern.
    pub async fn search(&self, search: protocol::SearchRequest) -> Result<protocol::SearchResult> {
        map_missing_job_text(&search.job, self.call(&search).await)
    }

    /// Waits for an event of a job: the guest waits and replies once, with the last lines if requested.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn wait(&self, mut wait: protocol::WaitRequest) -> Result<(protocol::WaitResult, Vec<u8>)> {
        wait.tail = wait.tail.map(|it| protocol::LastLines { limit: it.limit.min(MAX_PAYLOAD as u64), ..it });
        let started = Instant::now();
        // A repeated call waits only for the rest of the time.
        let once = || async {
            let limit_ms = wait.limit_ms.saturating_sub(ms(started.elapsed()));
            let call = protocol::WaitRequest { limit_ms, ..wait.clone() };
            self.call_once::<protocol::WaitRequest>(&encoded(&call)?, ReplyShape::new(&call)).await
        };
        let (result, bytes) = map_missing_job_text(&wait.job, attempt(&wait, once).await)?;
        Ok((result, bytes.0))
    }

    /// Creates a user and a directory, if they are missing.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn ensure_user(&self, request: protocol::EnsureUser) -> Result<protocol::UserInfo> {
        self.call(&request).await
    }
}

fn map_missing_job<T>(job: &JobId, result: Result<T>) -> Result<T> {
    result.map_err(|err| match err {
        Error::Refused(fault) if fault.code == ErrorCode::NoJob => Error::NoSuchJob(job.clone()),
        other => other,
    })
}

/// The guest refuses an invalid id.
fn map_missing_job_text<T>(job: &str, result: Result<T>) -> Result<T> {
    match JobId::parse(job) {
        Ok(job) => map_missing_job(&job, result),
        Err(_) => result,
    }
}
