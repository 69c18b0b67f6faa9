//! A job as reported to callers.

use std::fmt;

use coracle_client::Link;
use coracle_protocol as protocol;
use coracle_types::JobId;
use serde::Serialize;

use crate::Result;

/// Maximum number of shown characters of a command.
const MAX_COMMAND: usize = 200;

/// The exit code of `timeout` of coreutils; the state distinguishes it from a command's own 124.
const TIMED_OUT: u8 = 124;

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    /// Its process runs.
    Running,
    /// It exited by itself, or was ended by a signal that this program did not send.
    Exited,
    /// A limit ended it.
    TimedOut,
    /// It was cancelled.
    Cancelled,
    /// The container was restarted since: the job ended with an unknown status, and its output is gone.
    Lost,
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Running => "running",
            Self::Exited => "exited",
            Self::TimedOut => "timed_out",
            Self::Cancelled => "cancelled",
            Self::Lost => "lost",
        })
    }
}

/// A command in the guest's registry.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Job {
    /// Its id.
    pub id: JobId,
    /// Its process id in the container.
    pub pid: u32,
    /// The first 200 characters of its arguments, joined by spaces.
    pub command: String,
    /// Its state.
    pub state: JobState,
    /// 128 + n when signal n ended it, 124 after a limit; `None` while it runs.
    pub exit_code: Option<u8>,
    /// The signal that ended it; `None` after a limit.
    pub signal: Option<i32>,
    /// After a limit or a cancellation: whether its whole tree has ended. `None` if the guest ended nothing.
    pub tree_ended: Option<bool>,
    /// Bytes printed to both streams.
    pub total_bytes: u64,
    /// Start, in milliseconds since 1970.
    pub began_ms: u64,
    /// End, in milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// Whether it runs as root in the container.
    pub as_root: bool,
    /// Whether a call waits for it, or waited.
    pub foreground: bool,
}

impl Job {
    /// Converts the guest's description of the requested job.
    pub(crate) fn from_info(id: JobId, info: protocol::JobInfo) -> Self {
        let protocol::JobInfo { pid, command, root, foreground, began_ms, ended_ms, end, .. } = info;
        let state = state(&end);
        let (exit_code, signal) = match state {
            JobState::Running | JobState::Lost => (None, None),
            JobState::TimedOut => (Some(TIMED_OUT), None),
            JobState::Exited | JobState::Cancelled => (end.code, end.signal),
        };
        Self {
            id,
            pid,
            command: command.chars().take(MAX_COMMAND).collect(),
            state,
            exit_code,
            signal,
            tree_ended: end.tree_ended,
            total_bytes: end.stdout.saturating_add(end.stderr),
            began_ms,
            ended_ms: ended_ms.filter(|_| state != JobState::Running),
            as_root: root,
            foreground,
        }
    }

    /// A job of an earlier run of the container.
    #[must_use]
    pub fn lost(id: JobId, began_ms: u64) -> Self {
        Self {
            id,
            pid: 0,
            command: String::new(),
            state: JobState::Lost,
            exit_code: None,
            signal: None,
            tree_ended: None,
            total_bytes: 0,
            began_ms,
            ended_ms: None,
            as_root: false,
            foreground: false,
        }
    }

    /// Whether its process has not ended.
    #[must_use]
    pub fn running(&self) -> bool {
        self.state == JobState::Running
    }
}

/// A process without an exit code still runs, even if it passed a limit.
fn state(end: &protocol::ExecStatus) -> JobState {
    match end.state {
        _ if end.code.is_none() => JobState::Running,
        protocol::ExecState::Running => JobState::Running,
        protocol::ExecState::Exited => JobState::Exited,
        protocol::ExecState::TotalTime | protocol::ExecState::Silence => JobState::TimedOut,
        protocol::ExecState::Cancelled => JobState::Cancelled,
    }
}

/// All jobs of a container, oldest first, with the commands of running calls.
///
/// # Errors
/// Errors of the link.
pub async fn list(link: &Link) -> Result<Vec<Job>> {
    let info = link.jobs().await?;
    // An invalid id cannot be requested later.
    Ok(info.into_iter().filter_map(|it| Some(Job::from_info(JobId::parse(&it.job).ok()?, it))).collect())
}

/// `KILL`, `SEGV`, …; the number if the signal has no name.
#[must_use]
pub fn signal_name(signal: i32) -> String {
    const NAMES: [&str; 31] = [
        "HUP", "INT", "QUIT", "ILL", "TRAP", "ABRT", "BUS", "FPE", "KILL", "USR1", "SEGV", "USR2", "PIPE", "ALRM",
        "TERM", "STKFLT", "CHLD", "CONT", "STOP", "TSTP", "TTIN", "TTOU", "URG", "XCPU", "XFSZ", "VTALRM", "PROF",
        "WINCH", "IO", "PWR", "SYS",
    ];
    let at = signal.checked_sub(1).and_then(|it| usize::try_from(it).ok());
    at.and_then(|it| NAMES.get(it)).map_or_else(|| signal.to_string(), |it| (*it).to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn info(state: protocol::ExecState, code: Option<u8>, signal: Option<i32>) -> protocol::JobInfo {
        let end = protocol::ExecStatus {
            state,
            code,
            signal,
            stdout: 3,
            stderr: 4,
            dropped: 0,
            left: 0,
            tree_ended: None,
            oom: false,
            ms: 5,
            kept: true,
        };
        let (job, command) = ("another".into(), "x".repeat(300));
        protocol::JobInfo { job, pid: 7, command, root: false, foreground: false, began_ms: 1, ended_ms: Some(2), end }
    }

    fn check(state: protocol::ExecState, code: Option<u8>, signal: Option<i32>) -> (JobState, Option<u8>, Option<i32>) {
        let job = Job::from_info(JobId::parse("0123abcd").unwrap(), info(state, code, signal));
        (job.state, job.exit_code, job.signal)
    }

    #[test]
    fn a_job_without_an_exit_code_runs_even_after_it_reached_a_limit() {
        assert_eq!(check(protocol::ExecState::Running, None, None), (JobState::Running, None, None));
        assert_eq!(check(protocol::ExecState::TotalTime, None, None), (JobState::Running, None, None));
        let job = Job::from_info(JobId::parse("0123abcd").unwrap(), info(protocol::ExecState::Running, None, None));
        assert_eq!(job.ended_ms, None);
    }

    #[test]
    fn a_limit_gives_124_and_only_a_foreign_signal_is_reported() {
        assert_eq!(check(protocol::ExecState::Silence, Some(143), Some(15)), (JobState::TimedOut, Some(124), None));
        assert_eq!(check(protocol::ExecState::Exited, Some(139), Some(11)), (JobState::Exited, Some(139), Some(11)));
        assert_eq!(
            check(protocol::ExecState::Cancelled, Some(137), Some(9)),
            (JobState::Cancelled, Some(137), Some(9))
        );
    }

    #[test]
    fn the_id_is_the_requested_one_and_the_command_is_shortened() {
        let job = Job::from_info(JobId::parse("0123abcd").unwrap(), info(protocol::ExecState::Exited, Some(0), None));
        assert_eq!((job.id.as_str(), job.command.len(), job.total_bytes), ("0123abcd", 200, 7));
    }

    #[test]
    fn signals_have_names() {
        assert_eq!([9, 11, 31, 0, 40, i32::MIN].map(signal_name).join(" "), "KILL SEGV SYS 0 40 -2147483648");
    }
}
