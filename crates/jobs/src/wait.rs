//! Waits for a job's output, port, silence or end.

use std::time::Duration;

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_types::{JobId, PortTarget};
use serde::Serialize;

use crate::tail::{Tail, last_lines, tail};
use crate::{Job, LineMatch, Result};

/// A condition to wait for, beside the job's end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WaitFor {
    /// A line matches a regular expression.
    Line {
        /// The expression, of at most 1 KiB.
        pattern: String,
        /// The offset to search from; without one only new output counts.
        from: Option<i64>,
    },
    /// A port takes connections from inside.
    Port(PortTarget),
    /// No output for that long.
    Idle(Duration),
}

/// A request to wait.
#[derive(Clone, Debug)]
pub struct Wait {
    /// The job.
    pub job: JobId,
    /// The first of these ends the wait, and so does the end of the job. One of a kind: of several the last counts.
    pub events: Vec<WaitFor>,
    /// The longest wait.
    pub limit: Duration,
    /// Lines of output in the answer.
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
    /// It has been silent.
    Idle,
    /// The limit.
    Timeout,
}

/// The result of a wait.
#[derive(Clone, Debug)]
pub struct WaitResult {
    /// Why it ended.
    pub reason: WaitOutcome,
    /// The line that matched.
    pub found: Option<LineMatch>,
    /// The job as it is.
    pub job: Job,
    /// Its last lines.
    pub tail: Tail,
    /// The duration.
    pub waited: Duration,
}

/// Waits for the first event. The guest waits: there is one question and one answer.
///
/// # Errors
/// [`Error::Invalid`](crate::Error::Invalid) for what is no pattern; [`Error::NoSuchJob`](crate::Error::NoSuchJob); those
/// of the link.
pub async fn wait(link: &Link, ask: Wait) -> Result<WaitResult> {
    let (told, bytes) = link.wait(question(&ask)).await?;
    let protocol::WaitResult { reason, found, job, ms, tail: page } = told;
    let tail = match page {
        Some(page) => Tail::new(page, bytes),
        // An older guest needs a request of its own for the lines.
        None => tail(link, &ask.job, ask.lines).await?,
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
        job: Job::from_info(ask.job, job),
        tail,
        waited: Duration::from_millis(ms),
    })
}

fn question(ask: &Wait) -> protocol::WaitRequest {
    let mut question = protocol::WaitRequest {
        job: ask.job.to_string(),
        pattern: None,
        ignore_case: false,
        from: None,
        port: None,
        idle_ms: None,
        limit_ms: ms(ask.limit),
        tail: Some(last_lines(ask.lines)),
    };
    for event in &ask.events {
        match event {
            WaitFor::Line { pattern, from } => (question.pattern, question.from) = (Some(pattern.clone()), *from),
            WaitFor::Port(port) => question.port = Some(port.to_string()),
            WaitFor::Idle(time) => question.idle_ms = Some(ms(*time)),
        }
    }
    question
}

fn ms(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_become_one_question() {
        let events = vec![
            WaitFor::Line { pattern: "up".into(), from: Some(-5) },
            WaitFor::Port(PortTarget::parse("80").unwrap()),
            WaitFor::Idle(Duration::from_millis(100)),
        ];
        let job = JobId::parse("0123abcd").unwrap();
        let question = question(&Wait { job, events, limit: Duration::from_secs(2), lines: 1 });
        assert_eq!((question.pattern.as_deref(), question.from, question.limit_ms), (Some("up"), Some(-5), 2000));
        assert_eq!((question.port.as_deref(), question.idle_ms), (Some("localhost:80"), Some(100)));
        assert_eq!(question.tail.map(|it| it.lines), Some(1));
    }
}
