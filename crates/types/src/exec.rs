//! Commands as plain data, and their results.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

pub use coracle_protocol::TerminalSize;

use crate::{Capture, ContainerPath, Ids, JobId, Secret};

/// The program of a command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Command {
    /// A program and its arguments, executed without a shell.
    Argv(Vec<String>),
    /// A script for `/bin/sh -c`.
    Shell(String),
}

impl Command {
    /// A program and its arguments.
    pub fn argv(words: impl IntoIterator<Item = impl Into<String>>) -> Self {
        Self::Argv(words.into_iter().map(Into::into).collect())
    }

    /// A script for `/bin/sh -c`.
    pub fn shell(script: impl Into<String>) -> Self {
        Self::Shell(script.into())
    }

    /// The words that are executed.
    #[must_use]
    pub fn into_argv(self) -> Vec<String> {
        match self {
            Self::Argv(argv) => argv,
            Self::Shell(script) => vec!["/bin/sh".into(), "-c".into(), script],
        }
    }
}

/// Limits at which a command is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExecLimits {
    /// Total time.
    pub total: Option<Duration>,
    /// Time without a byte on either stream.
    pub silence: Option<Duration>,
    /// Time between TERM and KILL.
    pub grace: Duration,
}

impl Default for ExecLimits {
    fn default() -> Self {
        Self { total: None, silence: None, grace: Duration::from_secs(2) }
    }
}

/// The standard input of a command.
pub enum Input {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A stream, to its end.
    Stream(Box<dyn AsyncRead + Send + Sync + Unpin>),
}

impl fmt::Debug for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bytes(bytes) => write!(f, "{} bytes", bytes.len()),
            Self::Stream(_) => f.write_str("a stream"),
        }
    }
}

/// The action at a limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AtLimit {
    /// Its tree is ended.
    #[default]
    End,
    /// It continues as a job. Only with a guest.
    Keep,
}

/// One command in a container.
#[derive(Debug)]
pub struct Exec {
    /// Its id, if it has to have a certain one: an id that the guest knows already is refused. Only with a guest.
    pub job: Option<JobId>,
    /// The program and its arguments.
    pub command: Command,
    /// The user.
    pub user: Ids,
    /// The working directory.
    pub workdir: ContainerPath,
    /// Added to the image's environment. Plain values only: they pass through the engine's arguments.
    pub env: BTreeMap<String, String>,
    /// Its environment is exactly `env`. Only with a guest.
    pub bare: bool,
    /// Data that the program reads once from its descriptor 3, which no other process can open: at most 16 KiB. Only
    /// with a guest, and not for a script.
    pub secret: Option<Secret>,
    /// Names of secret files that exist only for this command: they are removed when it has ended, or does not begin.
    /// Only with a guest.
    pub files: Vec<String>,
    /// Data for the command; none is an end of file at once.
    pub stdin: Option<Input>,
    /// It runs on a terminal of that size, which may change; both outputs are then one. Only with a guest.
    pub terminal: Option<watch::Receiver<TerminalSize>>,
    /// Limits of time and output.
    pub limits: ExecLimits,
    /// The action at a limit.
    pub at_limit: AtLimit,
    /// Captured bytes of each stream: half from its start, half from its end.
    pub keep_bytes: usize,
    /// Bytes of each stream that the caller forwards, if fewer than are captured here: the rest of a longer output can
    /// be requested later.
    pub passes_on: Option<usize>,
    /// Ends the command's tree when fired.
    pub cancel: CancellationToken,
    /// Receives output while it is printed. A slow receiver slows the command.
    pub live: Option<mpsc::Sender<Chunk>>,
    /// Receives its process id inside when it has started. Only with a guest.
    pub started: Option<oneshot::Sender<u32>>,
}

impl Exec {
    /// A command without limits that captures 1 MiB of each stream.
    #[must_use]
    pub fn new(command: Command, user: Ids, workdir: ContainerPath) -> Self {
        Self {
            job: None,
            command,
            user,
            workdir,
            env: BTreeMap::new(),
            bare: false,
            secret: None,
            files: Vec::new(),
            stdin: None,
            terminal: None,
            limits: ExecLimits::default(),
            at_limit: AtLimit::End,
            keep_bytes: 1 << 20,
            passes_on: None,
            cancel: CancellationToken::new(),
            live: None,
            started: None,
        }
    }

    /// Whether only a guest can run it as requested: an engine's own exec has no equivalent of one of its options.
    #[must_use]
    pub fn needs_guest(&self) -> bool {
        // Without `..`, so that a new field does not compile until it is decided here.
        let Self {
            job,
            command: _,
            user: _,
            workdir: _,
            env: _,
            bare,
            secret,
            files,
            stdin: _,
            terminal,
            limits: _,
            at_limit,
            keep_bytes: _,
            passes_on: _,
            cancel: _,
            live: _,
            started,
        } = self;
        job.is_some()
            || *bare
            || secret.is_some()
            || !files.is_empty()
            || terminal.is_some()
            || started.is_some()
            || *at_limit == AtLimit::Keep
    }
}

/// A piece of output.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// The stream.
    pub stream: Stream,
    /// The output.
    pub bytes: Vec<u8>,
    /// Offset of this piece in the stream.
    pub offset: u64,
}

/// One of the two outputs of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// The limit that ended a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum LimitKind {
    /// The total time.
    Total,
    /// The time without output.
    Silence,
}

/// How a command ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// It exited. 128 + n when signal n ended it.
    Code(u8),
    /// One of the limits was reached.
    TimedOut(LimitKind),
    /// The caller cancelled it.
    Cancelled,
    /// It still runs: at a limit it was left to run as a job ([`AtLimit::Keep`]).
    Running(LimitKind),
}

/// The result of a command.
#[derive(Clone, Debug)]
pub struct ExecOutput {
    /// How it ended.
    pub exit: Exit,
    /// Standard output.
    pub stdout: Capture,
    /// Standard error.
    pub stderr: Capture,
    /// The signal that ended it, if it is known.
    pub signal: Option<i32>,
    /// After a limit or a cancellation: no process of its tree is left. `None` if nothing had to be ended.
    pub tree_ended: Option<bool>,
    /// Background processes that it left, if they are counted.
    pub left_running: u32,
    /// It failed, and the kernel killed a process of the container because of memory during its run.
    pub oom: bool,
    /// The job's id, under which omitted output can be requested.
    pub job: Option<JobId>,
    /// The link broke during the run, and was restored.
    pub retried: bool,
    /// Time from start to end.
    pub duration: Duration,
}

impl ExecOutput {
    /// The result of an engine's own exec: without signal, count and retained output.
    #[must_use]
    pub fn plain(
        exit: Exit,
        (stdout, stderr): (Capture, Capture),
        tree_ended: Option<bool>,
        duration: Duration,
    ) -> Self {
        let (signal, left_running, oom, job, retried) = (None, 0, false, None, false);
        Self { exit, stdout, stderr, signal, tree_ended, left_running, oom, job, retried, duration }
    }
}
