//! Waits for a job's output, port, silence or end.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use coracle_runtime::link::protocol;
use coracle_runtime::{JobId, Link};
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

/// A port inside, on the loopback or at an address. Names are invalid, because the guest uses no name server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortTarget {
    address: IpAddr,
    port: u16,
}

/// A text that is not a port.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no port from 1 to 65535 and no `address:port`")]
pub struct InvalidPort(String);

impl PortTarget {
    /// Reads `8080`, `10.0.0.2:8080`, `[::1]:8080` or `localhost:8080`.
    ///
    /// # Errors
    /// [`InvalidPort`] for everything else, a host name too.
    pub fn parse(text: &str) -> Result<Self, InvalidPort> {
        let invalid = || InvalidPort(text.chars().take(80).collect());
        let (host, port) = text.rsplit_once(':').unwrap_or(("localhost", text));
        let digits = port.bytes().all(|it| it.is_ascii_digit());
        let port = port.parse().ok().filter(|it| digits && *it > 0).ok_or_else(invalid)?;
        let bare = match host.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').filter(|it| it.contains(':')),
            None => Some(host).filter(|it| !it.contains(':')),
        };
        let address = match bare.ok_or_else(invalid)? {
            "localhost" => Ok(IpAddr::from([127, 0, 0, 1])),
            other => other.parse().map_err(|_| invalid()),
        };
        Ok(Self { address: address?, port })
    }
}

impl PortTarget {
    /// The address.
    #[must_use]
    pub fn at(&self) -> std::net::SocketAddr {
        std::net::SocketAddr::new(self.address, self.port)
    }
}

impl fmt::Display for PortTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.at().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_is_a_number_or_stands_behind_an_address() {
        for (given, read) in [
            ("8080", "127.0.0.1:8080"),
            ("localhost:1", "127.0.0.1:1"),
            ("10.0.0.2:80", "10.0.0.2:80"),
            ("[::1]:80", "[::1]:80"),
        ] {
            assert_eq!(PortTarget::parse(given).unwrap().to_string(), read);
        }
        for bad in ["", "0", "65536", "+80", "db:5432", ":80", "::1:80", "[10.0.0.1]:80", "[::1:80", "80:", "a b"] {
            assert!(PortTarget::parse(bad).is_err(), "{bad}");
        }
    }

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
        assert_eq!((question.port.as_deref(), question.idle_ms), (Some("127.0.0.1:80"), Some(100)));
        assert_eq!(question.tail.map(|it| it.lines), Some(1));
    }
}
