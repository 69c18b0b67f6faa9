//! Waits for a job's output, port, silence or end.

use std::time::Duration;

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_types::{JobId, PortTarget};
use serde::Serialize;

use crate::tail::{Tail, last_lines, tail};
use crate::{Job, LineMatch, Result};

/// A condition to wait for, in addition to the job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A line matches a regular expression.
    Line {
        /// The expression, of at most 1 KiB.
        pattern: String,
        /// The offset to search from; without it only new output is searched.
        from: Option<i64>,
    },
    /// A port takes connections from inside.
    Port(PortTarget),
    /// The job printed no output for that long.
    Idle(Duration),
}

/// A wait request.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The job.
    pub job: JobId,
    /// The first condition that is met ends the wait, as does the end of the job. Of several conditions of one kind the
    /// last is used.
    pub events: Vec<WaitFor>,
    /// The time limit of the wait.
    pub limit: Duration,
    /// Number of output lines in the result.
    pub lines: u32,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitOutcome {
    /// The job ended.
    Exit,
    /// A line matched.
    Regex,
    /// The port takes connections.
    Port,
    /// The job was silent.
    Idle,
    /// The time limit was reached.
    Timeout,
}

/// The result of a wait.
#[derive(Clone, Debug)]
pub struct WaitResult {
    /// Why it ended.
    pub reason: WaitOutcome,
    /// The line that matched.
    pub found: Option<LineMatch>,
    /// The job's state at the end of the wait.
    pub job: Job,
    /// Its last lines.
    pub tail: Tail,
    /// The duration of the wait.
    pub waited: Duration,
}

/// Waits for the first event with one request; the guest sends one reply.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for an invalid pattern; [`Error::NoSuchJob`](crate::Error::NoSuchJob);
/// errors of the link.
pub async fn wait(link: &Link, request: Wait) -> Result<WaitResult> {
    let (result, bytes) = link.wait(wait_request(&request)).await?;
    let protocol::WaitResult { reason, found, job, ms, tail: page } = result;
    let tail = match page {
        Some(page) => Tail::new(page, bytes),
        // An older guest needs a separate request for the lines.
        None => tail(link, &request.job, request.lines).await?,
    };
    Ok(WaitResult {
        reason: match reason {
            protocol::WaitOutcome::Exit => WaitOutcome::Exit,
            protocol::WaitOutcome::Pattern => WaitOutcome::Regex,
            protocol::WaitOutcome::Port => WaitOutcome::Port,
            protocol::WaitOutcome::Idle => WaitOutcome::Idle,
            protocol::WaitOutcome::Limit => WaitOutcome::Timeout,
        },
        found,
        job: Job::from_info(request.job, job),
        tail,
        waited: Duration::from_millis(ms),
    })
}

fn wait_request(request: &Wait) -> protocol::WaitRequest {
    let mut wait_request = protocol::WaitRequest {
        job: request.job.to_string(),
        pattern: None,
        ignore_case: false,
        from: None,
        port: None,
        idle_ms: None,
        limit_ms: ms(request.limit),
        tail: Some(last_lines(request.lines)),
    };
    for event in &request.events {
        match event {
            WaitFor::Line { pattern, from } => {
                wait_request.pattern = Some(pattern.clone());
                wait_request.from = *from;
            }
            WaitFor::Port(port) => wait_request.port = Some(port.to_string()),
            WaitFor::Idle(time) => wait_request.idle_ms = Some(ms(*time)),
        }
    }
    wait_request
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_conditions_are_sent_in_one_request() {
        let events = vec![
            WaitFor::Line { pattern: "up".into(), from: Some(-5) },
            WaitFor::Port(PortTarget::parse("80").unwrap()),
            WaitFor::Idle(Duration::from_millis(100)),
        ];
        let job = JobId::parse("0123abcd").unwrap();
        let wait_request = wait_request(&Wait { job, events, limit: Duration::from_secs(2), lines: 1 });
        assert_eq!(
            (wait_request.pattern.as_deref(), wait_request.from, wait_request.limit_ms),
            (Some("up"), Some(-5), 2000)
        );
        assert_eq!((wait_request.port.as_deref(), wait_request.idle_ms), (Some("localhost:80"), Some(100)));
        assert_eq!(wait_request.tail.map(|it| it.lines), Some(1));
    }
}
