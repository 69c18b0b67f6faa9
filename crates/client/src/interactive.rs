//! A command whose input stays open while its output is read: a terminal, or an interpreter.

use coracle_types::{Chunk, Exec, ExecOutput, Input, Result};
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::Link;

/// Bytes of input that the command has not taken.
const INPUT: usize = 64 << 10;

/// Pieces of output on the way.
const CHUNKS: usize = 16;

/// What is kept of its output beside what is passed on.
const KEPT: usize = 4 << 10;

/// A command that runs until it ends, or this is dropped.
#[derive(Debug)]
pub struct InteractiveCommand {
    /// Its input, as fast as it takes it. Dropped, the input ends.
    pub input: DuplexStream,
    /// Its output as it comes. It waits while this is not read.
    pub output: mpsc::Receiver<Chunk>,
    /// Its end.
    pub end: JoinHandle<Result<ExecOutput>>,
    /// Ends its tree when dropped.
    pub stop: DropGuard,
}

/// Starts a command and keeps its input open.
#[must_use]
pub fn start_interactive(link: &Link, mut exec: Exec) -> InteractiveCommand {
    let (input, theirs) = duplex(INPUT);
    let (live, output) = mpsc::channel(CHUNKS);
    let cancel = CancellationToken::new();
    exec.stdin = Some(Input::Stream(Box::new(theirs)));
    exec.live = Some(live);
    exec.cancel = cancel.clone();
    exec.keep_bytes = KEPT;
    let link = link.clone();
    let end = tokio::spawn(async move { link.exec(exec).await });
    InteractiveCommand { input, output, end, stop: cancel.drop_guard() }
}
