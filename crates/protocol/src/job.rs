//! Jobs: commands that the guest remembers, their retained output, and searches and waits.

use serde::{Deserialize, Serialize};

use super::ExecStatus;

/// A command that the guest remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its id.
    pub job: String,
    /// Its process id inside.
    pub pid: u32,
    /// The first 200 characters of its arguments, joined by spaces.
    pub command: String,
    /// Whether it runs as uid 0.
    pub root: bool,
    /// Whether a caller waits or waited for it.
    pub foreground: bool,
    /// Milliseconds since 1970.
    pub began_ms: u64,
    /// Milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// Its status.
    pub end: ExecStatus,
}

/// Checks whether the guest replies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping;

/// Lists all jobs, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListJobs;

/// Describes one job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetJob {
    /// Its id.
    pub job: String,
}

/// Ends a job with its tree: [`CancelReport`] when all processes have ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelJob {
    /// Its id.
    pub job: String,
    /// Milliseconds between TERM and KILL.
    pub grace_ms: u64,
}

/// The result of ending a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelReport {
    /// Whether it ran until this call ended it.
    pub now: bool,
    /// The job after that.
    pub job: JobInfo,
}

/// Reads the last lines of both streams in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailRequest {
    /// The job's id.
    pub job: String,
    /// Number and size of the lines.
    pub last: LastLines,
}

/// Selects retained output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamSelector {
    /// Both streams in order of arrival.
    All,
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// Reads retained output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// The job's id.
    pub job: String,
    /// The stream.
    pub part: StreamSelector,
    /// The start.
    pub from: Position,
    /// Limit of bytes.
    pub limit: u64,
}

/// A position in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// A byte offset; negative values count from the end.
    Offset(i64),
    /// A line, from 1.
    Line(u64),
}

/// The position of a page of retained output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPage {
    /// Offset of its first byte.
    pub offset: u64,
    /// Offset of the next page.
    pub next: u64,
    /// Offset of the oldest retained byte.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// Whether the command runs.
    pub running: bool,
}

/// Searches retained output for lines.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchRequest {
    /// The job's id.
    pub job: String,
    /// The stream.
    pub part: StreamSelector,
    /// The start.
    pub from: Position,
    /// A regular expression, matched against each line without its end.
    pub pattern: String,
    /// Whether letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match.
    pub context: u32,
    /// Limit of matches.
    pub most: u32,
}

/// The result of a search.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchResult {
    /// The matches, in order.
    pub matches: Vec<LineMatch>,
    /// Whether there are more.
    pub more: bool,
    /// The offset at which to continue.
    pub next: u64,
    /// Offset of the oldest retained byte.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// Whether the command runs.
    pub running: bool,
}

/// A line that matches. Lines are cut at 4 KiB, and invalid UTF-8 is replaced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineMatch {
    /// Offset of the line.
    pub offset: u64,
    /// Its number, from 1.
    pub line: u64,
    /// Without its end.
    pub text: String,
    /// Lines before.
    pub before: Vec<String>,
    /// Lines after.
    pub after: Vec<String>,
}

/// Waits for the first of some events; the end of the job is always one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitRequest {
    /// The job's id.
    pub job: String,
    /// Waits for a line that matches, as in [`SearchRequest`].
    pub pattern: Option<String>,
    /// Whether letters match in either case.
    pub ignore_case: bool,
    /// The offset in [`StreamSelector::All`] from which lines are searched; `None` searches future output.
    pub from: Option<i64>,
    /// Waits until a connection to `host:port` from inside succeeds.
    pub port: Option<String>,
    /// Waits until there was no output for this many milliseconds.
    pub idle_ms: Option<u64>,
    /// Timeout in milliseconds.
    pub limit_ms: u64,
    /// Which output is sent with the reply.
    pub tail: Option<LastLines>,
}

/// The last lines of both streams in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLines {
    /// How many.
    pub lines: u64,
    /// Limit of bytes.
    pub limit: u64,
}

/// The result of a wait.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitResult {
    /// Why it ended.
    pub reason: WaitOutcome,
    /// The line that matched.
    pub found: Option<LineMatch>,
    /// The job after that.
    pub job: JobInfo,
    /// Milliseconds waited.
    pub ms: u64,
    /// The position of the last lines, if requested. They may be newer than `job`, never older.
    pub tail: Option<OutputPage>,
}

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WaitOutcome {
    /// The job ended.
    Exit,
    /// A line matched.
    Pattern,
    /// The port accepts connections.
    Port,
    /// There was no output for the requested time.
    Idle,
    /// The timeout.
    Limit,
}
