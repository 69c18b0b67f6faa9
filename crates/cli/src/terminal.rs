//! A user's terminal on a command in a container, over the link to its guest: for an engine without a program.

use std::io;

use coracle_client::Link;
use coracle_context::Failure;
use coracle_types::{Chunk, Exec, Exit, Input, TerminalSize};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::stdio::write_stdout;

/// Capacity of the channel of output.
const CHUNKS: usize = 8;

/// Runs a command on this terminal, and returns its exit code as a shell does. All keys go to the command, including
/// those that would end this process.
pub(super) async fn run(link: &Link, mut exec: Exec, kind: &str) -> Result<u8, Failure> {
    let (sender, sizes) = watch::channel(size());
    let (live, chunks) = mpsc::channel(CHUNKS);
    exec.env.insert("TERM".into(), kind.to_owned());
    exec.stdin = Some(Input::Stream(Box::new(tokio::io::stdin())));
    exec.terminal = Some(sizes);
    exec.live = Some(live);
    let windows = signal(SignalKind::window_change()).map_err(Failure::internal)?;
    let raw = RawTerminal::enter().map_err(Failure::internal)?;
    let output = tokio::select! {
        (output, ()) = async { tokio::join!(link.exec(exec), show(chunks)) } => output,
        never = follow_size(windows, sender) => match never {},
    };
    drop(raw);
    Ok(match output?.exit {
        Exit::Code(code) => code,
        Exit::Cancelled => crate::signals::interrupted_code(),
        Exit::TimedOut(_) | Exit::Running(_) => 124,
    })
}

/// The size of the terminal; a classic default if it is unknown.
pub(super) fn size() -> TerminalSize {
    match tcgetwinsize(io::stdin()) {
        Ok(it) if it.ws_col > 0 && it.ws_row > 0 => TerminalSize { cols: it.ws_col, rows: it.ws_row },
        _ => TerminalSize { cols: 80, rows: 24 },
    }
}

/// Sends new sizes of the terminal.
pub(super) async fn follow_size(mut windows: Signal, sender: watch::Sender<TerminalSize>) -> std::convert::Infallible {
    while windows.recv().await.is_some() {
        sender.send_if_modified(|before| std::mem::replace(before, size()) != size());
    }
    std::future::pending().await
}

/// Passes output on. A closed terminal ends this process anyway.
async fn show(mut chunks: mpsc::Receiver<Chunk>) {
    while let Some(chunk) = chunks.recv().await {
        let _ = write_stdout(&chunk.bytes);
    }
}

/// A terminal in raw mode; restored when dropped.
pub(super) struct RawTerminal(Termios);

impl RawTerminal {
    pub(super) fn enter() -> io::Result<Self> {
        let before = tcgetattr(io::stdin())?;
        let mut raw = before.clone();
        raw.make_raw();
        tcsetattr(io::stdin(), OptionalActions::Drain, &raw)?;
        Ok(Self(before))
    }
}

impl Drop for RawTerminal {
    fn drop(&mut self) {
        // The error cannot be reported.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}
