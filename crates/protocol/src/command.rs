//! The request for a command, and its status.

use serde::{Deserialize, Serialize};

use super::UserSpec;
use super::body::Bytes;
#[cfg(doc)]
use super::{ErrorCode, MAX_COMMAND, MAX_SECRET, PutSecret};

/// Runs a command and streams its output: [`ExecStarted`], the output, then [`ExecStatus`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecRequest {
    /// Its id: 8 hex digits that the host chose. An id in use is [`ErrorCode::JobTaken`], so no command starts twice.
    pub job: String,
    /// Whether the only argument is a script for `/bin/sh`.
    pub shell: bool,
    /// Its arguments, the program first. With the environment at most [`MAX_COMMAND`] bytes, each counted with a NUL.
    pub argv: Vec<Bytes>,
    /// `NAME=value` each, added to the environment of the guest itself, unless `clear_env`.
    pub env: Vec<Bytes>,
    /// Bytes that the program can read from its descriptor 3, at most [`MAX_SECRET`]. Not with `shell`.
    pub secret: Option<Bytes>,
    /// Whether the environment consists of `env` alone.
    pub clear_env: bool,
    /// Names of [`PutSecret`] files for this command alone: removed when it has ended, or does not start.
    pub files: Vec<String>,
    /// Whether a caller inside made the request. Set by the receiver, never sent.
    #[serde(skip)]
    pub from_container: bool,
    /// The exec user.
    pub user: UserSpec,
    /// The working directory: an absolute path beneath the root.
    pub cwd: String,
    /// Whether [`HostMessage::Data`](crate::HostMessage::Data) with input follows; otherwise the input is empty.
    pub stdin: bool,
    /// The size of its terminal, if it gets one; then both outputs are one stream.
    pub terminal: Option<TerminalSize>,
    /// When it is ended.
    pub limits: ExecTimeouts,
    /// What happens if the channel is closed, or a limit is reached.
    pub life: Lifetime,
    /// Which output is sent.
    pub show: OutputMode,
    /// Bytes of each stream that the caller passes on: if a command prints more, its output is retained to be read later.
    pub inline_limit: u64,
    /// Refuses the command if this many jobs with [`Lifetime::Job`] run.
    pub max_running: Option<u32>,
}

/// Streams the output of a command that was started on an earlier connection, as [`ExecRequest`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachRequest {
    /// The command's id.
    pub job: String,
    /// Received bytes of its standard output.
    pub stdout: u64,
    /// Received bytes of its standard error.
    pub stderr: u64,
    /// As in [`ExecRequest::show`].
    pub show: OutputMode,
}

/// What happens to a command without a waiting caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifetime {
    /// It is ended at a limit, and 5 s after its connection was lost.
    Foreground,
    /// At a limit [`ExecStatus`] is sent and it continues as a job; it also continues if its connection is lost.
    Keep,
    /// [`ExecStatus`] is sent at once and it continues. A limit ends it.
    Job,
}

/// Which output of a command is sent in [`GuestMessage::Output`](crate::GuestMessage::Output).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OutputMode {
    /// All output. A slow receiver slows the command.
    All,
    /// Of each stream this many bytes from its start, and as many from its end when the command has ended.
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

/// Limits after which a command is ended, in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecTimeouts {
    /// Total time.
    pub total_ms: Option<u64>,
    /// Time without output on either stream.
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

/// A command that has started.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStarted {
    /// Its id.
    pub job: String,
    /// Its process id inside.
    pub pid: u32,
    /// Milliseconds since 1970.
    pub at_ms: u64,
}

/// The status of a command, running or ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecStatus {
    /// The state.
    pub state: ExecState,
    /// Exit code, 128 + n if signal n ended it; `None` while it runs.
    pub code: Option<u8>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// Bytes printed to standard output.
    pub stdout: u64,
    /// Bytes printed to standard error.
    pub stderr: u64,
    /// Bytes of both streams that are no longer retained.
    pub dropped: u64,
    /// Processes that it left behind.
    pub left: u32,
    /// After a limit or a cancel: whether all processes of its tree have ended. `None` if none had to be ended.
    pub tree_ended: Option<bool>,
    /// Whether it failed, and the kernel killed a process of the container for lack of memory while it ran.
    pub oom: bool,
    /// Milliseconds from start to end.
    pub ms: u64,
    /// Whether its output can be read by its id.
    pub kept: bool,
}

/// The state of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExecState {
    /// It runs.
    Running,
    /// It exited by itself, or by a signal from another process.
    Exited,
    /// Its total time ended it. With [`Lifetime::Keep`] and no code: the limit was reached, and the command continues.
    TotalTime,
    /// Silence ended it. With [`Lifetime::Keep`] as for the total time.
    Silence,
    /// It was cancelled.
    Cancelled,
}
