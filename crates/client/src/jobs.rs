//! Jobs: commands that the guest remembers (containers.md 10), and what it is asked of a user.

use std::time::Duration;

use coracle_protocol::{self as protocol, CallReply, ErrorCode, MAX_PAYLOAD, Request};
use coracle_types::{Error, JobId, Result};
use tokio::time::Instant;

use crate::call::{CallOptions, DEFAULT_TIMEOUT, ReplyKind, Retry};
use crate::command::ms;
use crate::link::Link;

/// The kind of answer that holds one thing.
macro_rules! holding {
    ($kind:ident) => {
        ReplyKind {
            fits: |it| matches!(it, CallReply::$kind(_)),
            take: |it| match it {
                CallReply::$kind(it) => Some(it),
                _ => None,
            },
        }
    };
}
pub(crate) use holding;

impl Link {
    /// Whether the guest answers. It does without its files, so acts on them that hang do not hold it up.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn ping(&self) -> Result<()> {
        let none = || Request::Job { job: String::new() };
        match self.ask(CallOptions::new("ping", holding!(Job)), none).await {
            Ok(_) | Err(Error::Refused(_)) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// All jobs, oldest first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn jobs(&self) -> Result<Vec<protocol::JobInfo>> {
        Ok(self.ask(CallOptions::new("jobs", holding!(Jobs)), || Request::Jobs).await?.0)
    }

    /// One job.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn job(&self, job: &JobId) -> Result<protocol::JobInfo> {
        let asked = self.ask(CallOptions::new("job", holding!(Job)), || Request::Job { job: job.to_string() }).await;
        Ok(map_missing_job(job, asked)?.0)
    }

    /// Ends a job with its tree. Whether it still ran, and how it stands.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn cancel(&self, job: &JobId, grace: Duration) -> Result<(bool, protocol::JobInfo)> {
        let kind = ReplyKind {
            fits: |it| matches!(it, CallReply::Cancelled { .. }),
            take: |it| match it {
                CallReply::Cancelled { now, job } => Some((now, job)),
                _ => None,
            },
        };
        let request = CallOptions { patience: grace + DEFAULT_TIMEOUT, ..CallOptions::new("cancel", kind) };
        let ask = || Request::CancelJob { job: job.to_string(), grace_ms: ms(grace) };
        Ok(map_missing_job(job, self.ask(request, ask).await)?.0)
    }

    /// A piece of kept output. `read.limit` is at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn read(&self, mut read: protocol::ReadRequest) -> Result<(protocol::OutputPage, Vec<u8>)> {
        read.limit = read.limit.min(MAX_PAYLOAD as u64);
        let request = CallOptions { payload: read.limit, ..CallOptions::new("read", holding!(Page)) };
        map_missing_job_text(&read.job, self.ask(request, || Request::Read(read.clone())).await)
    }

    /// The last lines of both streams in order of arrival. `limit` is in bytes, at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn tail(&self, job: &JobId, lines: u64, limit: u64) -> Result<(protocol::OutputPage, Vec<u8>)> {
        let limit = limit.min(MAX_PAYLOAD as u64);
        let request = CallOptions { payload: limit, ..CallOptions::new("tail", holding!(Page)) };
        map_missing_job(job, self.ask(request, || Request::Tail { job: job.to_string(), lines, limit }).await)
    }

    /// Lines of kept output that match.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`]; [`Error::Refused`] with [`ErrorCode::Invalid`] for a pattern that cannot be read.
    pub async fn search(&self, search: protocol::SearchRequest) -> Result<protocol::SearchResult> {
        let request = CallOptions {
            payload: MAX_PAYLOAD as u64,
            again: Retry::List,
            ..CallOptions::new("search", holding!(Found))
        };
        let (found, payload) =
            map_missing_job_text(&search.job, self.ask(request, || Request::Search(search.clone())).await)?;
        let matches = serde_json::from_slice(&payload)
            .map_err(|err| Error::Unreadable { verb: "search", detail: format!("line {}", err.line()) })?;
        Ok(protocol::SearchResult { matches, ..found })
    }

    /// Waits for an event of a job: the guest waits, and one answer comes back, with the last lines if they are asked for.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn wait(&self, mut wait: protocol::WaitRequest) -> Result<(protocol::WaitResult, Vec<u8>)> {
        wait.tail = wait.tail.map(|it| protocol::LastLines { limit: it.limit.min(MAX_PAYLOAD as u64), ..it });
        let payload = wait.tail.map_or(0, |it| it.limit);
        let begun = Instant::now();
        let patience = Duration::from_millis(wait.limit_ms).saturating_add(DEFAULT_TIMEOUT);
        let request = CallOptions { patience, payload, ..CallOptions::new("wait", holding!(Waited)) };
        let left = || {
            let limit_ms = wait.limit_ms.saturating_sub(ms(begun.elapsed()));
            Request::Wait(protocol::WaitRequest { limit_ms, ..wait.clone() })
        };
        map_missing_job_text(&wait.job, self.ask(request, left).await)
    }

    /// Makes sure of a user and a directory.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn settle(&self, settle: protocol::EnsureUser) -> Result<protocol::UserInfo> {
        let request = CallOptions { again: Retry::Once, ..CallOptions::new("settle", holding!(Settled)) };
        Ok(self.ask(request, || Request::Settle(settle.clone())).await?.0)
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
