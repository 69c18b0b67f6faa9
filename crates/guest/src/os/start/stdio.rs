//! The ends of a command's input and output.

use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustix::fs::{Mode, OFlags, Uid, fchown, fcntl_getfl, fcntl_setfl, open};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::unix::pipe;

use crate::os::machine::TerminalDevice;
use crate::protocol::TerminalSize;

/// The ends that stay here, as a [`Process`](crate::os::machine::Process) has them.
pub(crate) struct ParentStdio {
    pub(crate) stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(crate) stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) terminal: Option<Arc<dyn TerminalDevice>>,
}

/// The command's ends: its 0, 1 and 2.
pub(crate) type ChildStdio = [OwnedFd; 3];

/// Makes both ends. Without `stdin` there is an end of file at once.
///
/// The command's ends are given to its user, which could otherwise not open them again as `/dev/stdout` or `/dev/tty`.
///
/// # Errors
/// The kernel's: too many descriptors, or no pseudo-terminals.
pub(crate) fn create(stdin: bool, terminal: Option<TerminalSize>, uid: u32) -> io::Result<(ParentStdio, ChildStdio)> {
    match terminal {
        Some(size) => on_terminal(stdin, size, uid),
        None => on_pipes(stdin, uid),
    }
}

fn on_pipes(stdin: bool, uid: u32) -> io::Result<(ParentStdio, ChildStdio)> {
    let (out, their_out) = pipe_with(PipeFlags::CLOEXEC)?;
    let (err, their_err) = pipe_with(PipeFlags::CLOEXEC)?;
    let (input, their_in) = if stdin {
        let (theirs, ours) = pipe_with(PipeFlags::CLOEXEC)?;
        set_owner(&theirs, uid);
        (Some(Box::new(pipe::Sender::from_owned_fd(ours)?) as Box<_>), theirs)
    } else {
        (None, nothing()?)
    };
    set_owner(&their_out, uid);
    set_owner(&their_err, uid);
    let ours = ParentStdio {
        stdin: input,
        stdout: Box::new(pipe::Receiver::from_owned_fd(out)?),
        stderr: Some(Box::new(pipe::Receiver::from_owned_fd(err)?)),
        terminal: None,
    };
    Ok((ours, [their_in, their_out, their_err]))
}

fn on_terminal(stdin: bool, size: TerminalSize, uid: u32) -> io::Result<(ParentStdio, ChildStdio)> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let master = openpt(flags)?;
    unlockpt(&master)?;
    // Not by its name, which means something else where the container has another `/dev/pts`.
    let theirs = ioctl_tiocgptpeer(&master, flags)?;
    set_owner(&theirs, uid);
    tcsetwinsize(&master, window(size))?;
    fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
    let device = PtyMaster(master.try_clone()?);
    let ours = ParentStdio {
        stdin: stdin.then(|| device.open_input()).transpose()?,
        // Tokio knows no terminals, and reads and writes them as it does pipes.
        stdout: Box::new(PtyReader(pipe::Receiver::from_owned_fd_unchecked(master)?)),
        stderr: None,
        terminal: Some(Arc::new(device)),
    };
    let their_in = if stdin { theirs.try_clone()? } else { nothing()? };
    Ok((ours, [their_in, theirs.try_clone()?, theirs]))
}

fn nothing() -> io::Result<OwnedFd> {
    Ok(open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Errors are ignored: a guest that may not change the owner is that user already, or runs all commands as its own
/// user.
fn set_owner(end: &OwnedFd, uid: u32) {
    let _ = fchown(end, Some(Uid::from_raw(uid)), None);
}

fn window(size: TerminalSize) -> Winsize {
    Winsize { ws_col: size.cols, ws_row: size.rows, ws_xpixel: 0, ws_ypixel: 0 }
}

/// Our end of a terminal.
struct PtyMaster(OwnedFd);

impl TerminalDevice for PtyMaster {
    fn resize(&self, size: TerminalSize) {
        // A terminal that is gone has no size.
        let _ = tcsetwinsize(&self.0, window(size));
    }

    fn open_input(&self) -> io::Result<Box<dyn AsyncWrite + Send + Unpin>> {
        let to = pipe::Sender::from_owned_fd_unchecked(self.0.try_clone()?)?;
        Ok(Box::new(PtyWriter { to, ends: b"\x04" }))
    }
}

/// The output of a terminal.
struct PtyReader(pipe::Receiver);

impl AsyncRead for PtyReader {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        match ready!(Pin::new(&mut self.0).poll_read(cx, into)) {
            // No process has the terminal open any more.
            Err(error) if error.raw_os_error() == Some(Errno::IO.raw_os_error()) => Poll::Ready(Ok(())),
            read => Poll::Ready(read),
        }
    }
}

/// The input of a terminal.
struct PtyWriter {
    to: pipe::Sender,
    /// Ends the input: after an unfinished line, the first one only sends that line.
    ends: &'static [u8],
}

impl AsyncWrite for PtyWriter {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let count = ready!(Pin::new(&mut self.to).poll_write(cx, bytes))?;
        if let Some(last) = bytes[..count].last() {
            self.ends = if matches!(last, b'\n' | b'\r') { b"\x04" } else { b"\x04\x04" };
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.ends.is_empty() {
            let ends = self.ends;
            let count = ready!(Pin::new(&mut self.to).poll_write(cx, ends))?;
            self.ends = &ends[count..];
        }
        Poll::Ready(Ok(()))
    }
}
