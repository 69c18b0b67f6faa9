//! A person's terminal on a command in a container, over the link to its guest: for an engine that has no program.

use std::io;

use coracle::Failure;
use coracle_runtime::link::Link;
use coracle_runtime::{Chunk, Exec, Exit, Input, TerminalSize};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::{mpsc, watch};

use super::stdio::write_stdout;

/// Chunks of output on the way.
const CHUNKS: usize = 8;

/// Runs a command on this terminal, and gives its exit code as a shell does. Keys go to the command, also those that would
/// end this process.
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

/// A terminal that does not tell its size is as large as the first ones were.
pub(super) fn size() -> TerminalSize {
    match tcgetwinsize(io::stdin()) {
        Ok(it) if it.ws_col > 0 && it.ws_row > 0 => TerminalSize { cols: it.ws_col, rows: it.ws_row },
        _ => TerminalSize { cols: 80, rows: 24 },
    }
}

/// Tells the sizes that the terminal gets.
pub(super) async fn follow_size(mut windows: Signal, sender: watch::Sender<TerminalSize>) -> std::convert::Infallible {
    while windows.recv().await.is_some() {
        sender.send_if_modified(|before| std::mem::replace(before, size()) != size());
    }
    std::future::pending().await
}

/// Passes output on as it comes. A terminal that is gone ends this process by itself.
async fn show(mut chunks: mpsc::Receiver<Chunk>) {
    while let Some(chunk) = chunks.recv().await {
        let _ = write_stdout(&chunk.bytes);
    }
}

/// A terminal that passes every key on as it is; as before when dropped.
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
        // There is nobody to tell.
        let _ = tcsetattr(io::stdin(), OptionalActions::Drain, &self.0);
    }
}
