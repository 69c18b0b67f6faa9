//! A command that is remembered: its kept output, what is searched for in it, and what is waited for.

use serde::{Deserialize, Serialize};

use super::ExecStatus;

/// A command that the guest remembers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobInfo {
    /// Its id.
    pub job: String,
    /// Its process id inside.
    pub pid: u32,
    /// The first 200 characters of its words, joined by blanks.
    pub command: String,
    /// It runs as uid 0.
    pub root: bool,
    /// Somebody waits for it, or waited.
    pub foreground: bool,
    /// Milliseconds since 1970.
    pub began_ms: u64,
    /// Milliseconds since 1970.
    pub ended_ms: Option<u64>,
    /// Where it stands.
    pub end: ExecStatus,
}

/// Asks whether the guest answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ping;

/// All jobs, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListJobs;

/// One job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GetJob {
    /// Which.
    pub job: String,
}

/// Ends a job with its tree: [`CancelReport`], when it is gone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelJob {
    /// Which.
    pub job: String,
    /// Milliseconds between TERM and KILL.
    pub grace_ms: u64,
}

/// A job that had to be ended, or had ended before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CancelReport {
    /// It ran, and this call ended it.
    pub now: bool,
    /// As it is.
    pub job: JobInfo,
}

/// The last lines of both streams in order of arrival.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TailRequest {
    /// Of which job.
    pub job: String,
    /// How many, and how long.
    pub last: LastLines,
}

/// Which kept output is meant.
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

/// Asks for a piece of kept output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadRequest {
    /// Of which job.
    pub job: String,
    /// Which output.
    pub part: StreamSelector,
    /// From where.
    pub from: Position,
    /// At most so many bytes.
    pub limit: u64,
}

/// A place in an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Position {
    /// A byte; negative counts from the end.
    Offset(i64),
    /// A line, from 1.
    Line(u64),
}

/// Where a piece of kept output lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OutputPage {
    /// Where its bytes begin.
    pub offset: u64,
    /// Where it ends.
    pub next: u64,
    /// The oldest byte that is kept.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// The command runs.
    pub running: bool,
}

/// Looks for lines in kept output.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchRequest {
    /// Of which job.
    pub job: String,
    /// Which output.
    pub part: StreamSelector,
    /// From where.
    pub from: Position,
    /// A regular expression, matched against each line without its end.
    pub pattern: String,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Lines before and after each match.
    pub context: u32,
    /// At most so many matches.
    pub most: u32,
}

/// Lines that match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SearchResult {
    /// In order.
    pub matches: Vec<LineMatch>,
    /// There are more.
    pub more: bool,
    /// Where the search stands: to go on from.
    pub next: u64,
    /// The oldest byte that is kept.
    pub first: u64,
    /// Bytes so far.
    pub total: u64,
    /// The command runs.
    pub running: bool,
}

/// A line that matches. Lines are cut at 4 KiB and hold what UTF-8 can say.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineMatch {
    /// Where the line begins.
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
    /// For which job.
    pub job: String,
    /// A line matches, as in [`SearchRequest`].
    pub pattern: Option<String>,
    /// Letters match in either case.
    pub ignore_case: bool,
    /// Where lines are looked at from, in [`StreamSelector::All`]; none is what comes from now on.
    pub from: Option<i64>,
    /// A connection to `host:port` from inside succeeds.
    pub port: Option<String>,
    /// Milliseconds without output.
    pub idle_ms: Option<u64>,
    /// Milliseconds after which nobody waits any longer.
    pub limit_ms: u64,
    /// What of the output comes with the reply.
    pub tail: Option<LastLines>,
}

/// The last lines of both streams in order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLines {
    /// How many.
    pub lines: u64,
    /// At most so many bytes.
    pub limit: u64,
}

/// What a wait came to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WaitResult {
    /// Why it ended.
    pub reason: WaitOutcome,
    /// The line that matched.
    pub found: Option<LineMatch>,
    /// The job as it is.
    pub job: JobInfo,
    /// Milliseconds waited.
    pub ms: u64,
    /// Where the last lines lie, if they were asked for. They may be newer than `job`, never older.
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
    /// The port takes connections.
    Port,
    /// It has been silent.
    Idle,
    /// The limit.
    Limit,
}
