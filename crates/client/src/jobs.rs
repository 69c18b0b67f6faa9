//! Jobs: commands that the guest remembers, and what it is asked of a user.

use std::time::Duration;

use coracle_protocol::{self as protocol, ErrorCode, MAX_PAYLOAD};
use coracle_types::{Error, JobId, Result};
use tokio::time::Instant;

use crate::call::{attempt, encoded};
use crate::channels::ReplyShape;
use crate::command::ms;
use crate::link::Link;

impl Link {
    /// Whether the guest answers. It does without its files, so acts on them that hang do not hold it up.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn ping(&self) -> Result<()> {
        self.call(&protocol::Ping).await
    }

    /// All jobs, oldest first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn jobs(&self) -> Result<Vec<protocol::JobInfo>> {
        self.call(&protocol::ListJobs).await
    }

    /// One job.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn job(&self, job: &JobId) -> Result<protocol::JobInfo> {
        map_missing_job(job, self.call(&protocol::GetJob { job: job.to_string() }).await)
    }

    /// Ends a job with its tree. Whether it still ran, and how it stands.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn cancel(&self, job: &JobId, grace: Duration) -> Result<(bool, protocol::JobInfo)> {
        let call = protocol::CancelJob { job: job.to_string(), grace_ms: ms(grace) };
        let report = map_missing_job(job, self.call(&call).await)?;
        Ok((report.now, report.job))
    }

    /// A piece of kept output. `read.limit` is at most 1 MiB.
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

    /// Lines of kept output that match.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`]; [`Error::Refused`] with [`ErrorCode::Invalid`] for a pattern that cannot be read.
    pub async fn search(&self, search: protocol::SearchRequest) -> Result<protocol::SearchResult> {
        map_missing_job_text(&search.job, self.call(&search).await)
    }

    /// Waits for an event of a job: the guest waits, and one answer comes back, with the last lines if they are asked for.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn wait(&self, mut wait: protocol::WaitRequest) -> Result<(protocol::WaitResult, Vec<u8>)> {
        wait.tail = wait.tail.map(|it| protocol::LastLines { limit: it.limit.min(MAX_PAYLOAD as u64), ..it });
        let begun = Instant::now();
        // What is asked again waits for the rest of the time only.
        let once = || async {
            let limit_ms = wait.limit_ms.saturating_sub(ms(begun.elapsed()));
            let call = protocol::WaitRequest { limit_ms, ..wait.clone() };
            self.call_once::<protocol::WaitRequest>(&encoded(&call)?, ReplyShape::new(&call)).await
        };
        let (result, bytes) = map_missing_job_text(&wait.job, attempt(&wait, once).await)?;
        Ok((result, bytes.0))
    }

    /// Makes sure of a user and a directory.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn ensure_user(&self, settle: protocol::EnsureUser) -> Result<protocol::UserInfo> {
        self.call(&settle).await
    }
}

fn map_missing_job<T>(job: &JobId, asked: Result<T>) -> Result<T> {
    asked.map_err(|err| match err {
        Error::Refused(fault) if fault.code == ErrorCode::NoJob => Error::NoSuchJob(job.clone()),
        other => other,
    })
}

/// An id that is none is refused by the guest.
fn map_missing_job_text<T>(job: &str, asked: Result<T>) -> Result<T> {
    match JobId::parse(job) {
        Ok(job) => map_missing_job(&job, asked),
        Err(_) => asked,
    }
}
