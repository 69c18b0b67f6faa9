//! Jobs: commands that the guest remembers (containers.md 10), and what it is asked of a user.

use std::time::Duration;

use coracle_protocol::{self as wire, Answer, Ask, FaultCode, MAX_PAYLOAD};
use coracle_types::{Error, JobId, Result};
use tokio::time::Instant;

use crate::call::{Again, Kind, Request, SOON};
use crate::command::ms;
use crate::link::Link;

/// The kind of answer that holds one thing.
macro_rules! holding {
    ($kind:ident) => {
        Kind {
            fits: |it| matches!(it, Answer::$kind(_)),
            take: |it| match it {
                Answer::$kind(it) => Some(it),
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
        let none = || Ask::Job { job: String::new() };
        match self.ask(Request::new("ping", holding!(Job)), none).await {
            Ok(_) | Err(Error::Refused(_)) => Ok(()),
            Err(err) => Err(err),
        }
    }

    /// All jobs, oldest first.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::GuestLost`].
    pub async fn jobs(&self) -> Result<Vec<wire::Job>> {
        Ok(self.ask(Request::new("jobs", holding!(Jobs)), || Ask::Jobs).await?.0)
    }

    /// One job.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn job(&self, job: &JobId) -> Result<wire::Job> {
        let asked = self.ask(Request::new("job", holding!(Job)), || Ask::Job { job: job.to_string() }).await;
        Ok(of(job, asked)?.0)
    }

    /// Ends a job with its tree. Whether it still ran, and how it stands.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn cancel(&self, job: &JobId, grace: Duration) -> Result<(bool, wire::Job)> {
        let kind = Kind {
            fits: |it| matches!(it, Answer::Cancelled { .. }),
            take: |it| match it {
                Answer::Cancelled { now, job } => Some((now, job)),
                _ => None,
            },
        };
        let request = Request { patience: grace + SOON, ..Request::new("cancel", kind) };
        let ask = || Ask::CancelJob { job: job.to_string(), grace_ms: ms(grace) };
        Ok(of(job, self.ask(request, ask).await)?.0)
    }

    /// A piece of kept output. `read.limit` is at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn read(&self, mut read: wire::Read) -> Result<(wire::Page, Vec<u8>)> {
        read.limit = read.limit.min(MAX_PAYLOAD as u64);
        let request = Request { payload: read.limit, ..Request::new("read", holding!(Page)) };
        of_text(&read.job, self.ask(request, || Ask::Read(read.clone())).await)
    }

    /// The last lines of both streams in order of arrival. `limit` is in bytes, at most 1 MiB.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn tail(&self, job: &JobId, lines: u64, limit: u64) -> Result<(wire::Page, Vec<u8>)> {
        let limit = limit.min(MAX_PAYLOAD as u64);
        let request = Request { payload: limit, ..Request::new("tail", holding!(Page)) };
        of(job, self.ask(request, || Ask::Tail { job: job.to_string(), lines, limit }).await)
    }

    /// Lines of kept output that match.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`]; [`Error::Refused`] with [`FaultCode::Invalid`] for a pattern that cannot be read.
    pub async fn search(&self, search: wire::Search) -> Result<wire::Found> {
        let request =
            Request { payload: MAX_PAYLOAD as u64, again: Again::List, ..Request::new("search", holding!(Found)) };
        let (found, payload) = of_text(&search.job, self.ask(request, || Ask::Search(search.clone())).await)?;
        let matches = serde_json::from_slice(&payload)
            .map_err(|err| Error::Unreadable { verb: "search", detail: format!("line {}", err.line()) })?;
        Ok(wire::Found { matches, ..found })
    }

    /// Waits for an event of a job: the guest waits, and one answer comes back, with the last lines if they are asked for.
    ///
    /// # Errors
    /// [`Error::NoSuchJob`].
    pub async fn wait(&self, mut wait: wire::Wait) -> Result<(wire::Waited, Vec<u8>)> {
        wait.tail = wait.tail.map(|it| wire::LastLines { limit: it.limit.min(MAX_PAYLOAD as u64), ..it });
        let payload = wait.tail.map_or(0, |it| it.limit);
        let begun = Instant::now();
        let patience = Duration::from_millis(wait.limit_ms).saturating_add(SOON);
        let request = Request { patience, payload, ..Request::new("wait", holding!(Waited)) };
        let left = || {
            let limit_ms = wait.limit_ms.saturating_sub(ms(begun.elapsed()));
            Ask::Wait(wire::Wait { limit_ms, ..wait.clone() })
        };
        of_text(&wait.job, self.ask(request, left).await)
    }

    /// Makes sure of a user and a directory.
    ///
    /// # Errors
    /// [`Error::Refused`].
    pub async fn settle(&self, settle: wire::Settle) -> Result<wire::Settled> {
        let request = Request { again: Again::Once, ..Request::new("settle", holding!(Settled)) };
        Ok(self.ask(request, || Ask::Settle(settle.clone())).await?.0)
    }
}

fn of<T>(job: &JobId, asked: Result<T>) -> Result<T> {
    asked.map_err(|err| match err {
        Error::Refused(fault) if fault.code == FaultCode::NoJob => Error::NoSuchJob(job.clone()),
        other => other,
    })
}

/// An id that is none is refused by the guest.
fn of_text<T>(job: &str, asked: Result<T>) -> Result<T> {
    match JobId::parse(job) {
        Ok(job) => of(&job, asked),
        Err(_) => asked,
    }
}
