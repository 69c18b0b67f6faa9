//! A command whose input stays open while its output is read: a terminal, or an interpreter.

use coracle_types::{Chunk, Exec, ExecOutput, Input, Result};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Link;

/// Bytes of input that the command has not read.
const INPUT_BUFFER: usize = 64 << 10;

/// Queued pieces of output.
const CHUNKS: usize = 16;

/// Retained bytes of the output, besides those that are passed on.
const RETAINED: usize = 4 << 10;

/// A command that runs until it ends, or this value is dropped.
#[derive(Debug)]
#[non_exhaustive]
pub struct InteractiveCommand {
    /// Its input. Dropping it ends the input.
    pub input: DuplexStream,
    /// Its output. The command waits while this is not read.
    pub output: mpsc::Receiver<Chunk>,
    /// Its result.
    pub end: JoinHandle<Result<ExecOutput>>,
    /// Ends its tree when dropped.
    pub stop: DropGuard,
}

/// Starts a command and keeps its input open.
#[must_use]
pub fn start_interactive(link: &Link, mut exec: Exec) -> InteractiveCommand {
    let (input, theirs) = duplex(INPUT_BUFFER);
    let (live, output) = mpsc::channel(CHUNKS);
    let cancel = CancellationToken::new();
    exec.stdin = Some(Input::Stream(Box::new(theirs)));
    exec.live = Some(live);
    exec.cancel = cancel.clone();
    exec.keep_bytes = RETAINED;
    let link = link.clone();
    let end = tokio::spawn(async move { link.exec(exec).await });
    InteractiveCommand { input, output, end, stop: cancel.drop_guard() }
}
