//! A command: what is asked for, and how it went.

use serde::{Deserialize, Serialize};

use super::UserSpec;
use super::body::Bytes;
#[cfg(doc)]
use super::{ErrorCode, MAX_COMMAND, MAX_SECRET, PutSecret};

/// Runs a command and follows it: [`ExecStarted`], its output, then [`ExecStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Its id: 8 hex digits that the host chose. One that is in use is [`ErrorCode::JobTaken`], so nothing runs twice.
    pub job: String,
    /// The only argument is a script for `/bin/sh`.
    pub shell: bool,
    /// Its arguments, the program first. With the environment at most [`MAX_COMMAND`] bytes, each counted with a NUL.
    pub argv: Vec<Bytes>,
    /// `NAME=value` each. It is added to the environment of the guest itself, unless `clear_env`.
    pub env: Vec<Bytes>,
    /// What the program reads from its descriptor 3, at most [`MAX_SECRET`] bytes. Not with `shell`.
    pub secret: Option<Bytes>,
    /// Its environment is what was sent, and nothing else.
    pub clear_env: bool,
    /// Names of [`PutSecret`] files that are there for it alone: gone when it has ended, or does not begin.
    pub files: Vec<String>,
    /// A caller inside asked for it. Set where it is received, and never sent.
    #[serde(skip)]
    pub from_container: bool,
    /// As whom.
    pub user: UserSpec,
    /// Where: an absolute path beneath the root.
    pub cwd: String,
    /// Input follows by [`HostMessage::Data`](crate::HostMessage::Data); without it there is an end of file at once.
    pub stdin: bool,
    /// On a terminal of that size; both outputs are one then.
    pub terminal: Option<TerminalSize>,
    /// When it is ended.
    pub limits: ExecTimeouts,
    /// What becomes of it when the channel is left, or a limit is reached.
    pub life: Lifetime,
    /// What of its output is sent.
    pub show: OutputMode,
    /// Bytes of each stream that the caller passes on: a command that printed more is kept, so that the rest can be had.
    pub inline_limit: u64,
    /// Refused when so many jobs run that were begun as [`Lifetime::Job`].
    pub max_running: Option<u32>,
}

/// Follows a command that was started on an earlier connection, as [`ExecRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRequest {
    /// Which.
    pub job: String,
    /// Bytes of its standard output that were received.
    pub stdout: u64,
    /// Bytes of its standard error that were received.
    pub stderr: u64,
    /// As in [`ExecRequest::show`].
    pub show: OutputMode,
}

/// What becomes of a command when nobody waits for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// It is ended at a limit, and when its connection has been gone for 5 s.
    Foreground,
    /// At a limit [`ExecStatus`] is said and it goes on as a job; so it does when its connection is gone.
    Keep,
    /// [`ExecStatus`] is said at once and it goes on. A limit ends it.
    Job,
}

/// What of a command's output is sent by [`GuestMessage::Output`](crate::GuestMessage::Output).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// All, as it comes. A slow receiver slows the command.
    All,
    /// Of each stream so many bytes from its start as they come, and as many from its end when it ended.
    Ends {
        /// Bytes of each end.
        bytes: u64,
    },
    /// Nothing.
    Nothing,
}

/// Size of a terminal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalSize {
    /// Columns.
    pub cols: u16,
    /// Rows.
    pub rows: u16,
}

/// When a command is ended before its end, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTimeouts {
    /// Total time.
    pub total_ms: Option<u64>,
    /// Time without a byte on either stream.
    pub silence_ms: Option<u64>,
    /// Time between TERM and KILL.
    pub grace_ms: u64,
}

/// One of the two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A command that runs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Its id.
    pub job: String,
    /// Its process id inside.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// How a command ended, or that it goes on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStatus {
    /// How far it is.
    pub state: ExecState,
    /// Exit code, 128 + n when signal n ended it; none while it runs.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Bytes printed to standard output.
    pub stdout: u64,
    /// Bytes printed to standard error.
    pub stderr: u64,
    /// Bytes of both that are not kept any more.
    pub dropped: u64,
    /// Processes that it left behind.
    pub left: u32,
    /// After a limit or a cancel: nothing of its tree is left. `None` when nothing had to be ended.
    pub tree_ended: Option<bool>,
    /// It did not end well, and meanwhile the kernel ended a process of the container for memory.
    pub oom: bool,
    /// From start to end.
    pub ms: u64,
    /// Its output can be asked for by its id.
    pub kept: bool,
}

/// How far a command is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    /// It runs.
    Running,
    /// It ended by itself, or by a signal of somebody else's.
    Exited,
    /// Its total time ended it. With [`Lifetime::Keep`] and no code: it was reached, and the command goes on.
    TotalTime,
    /// Silence ended it. With [`Lifetime::Keep`] as for the total time.
    Silence,
    /// It was cancelled.
    Cancelled,
}
