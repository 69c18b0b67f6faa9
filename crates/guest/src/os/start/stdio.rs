//! Creates the pipes or the terminal for a command's input and output.

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

/// The guest's ends, as in [`Process`](crate::os::machine::Process).
pub(crate) struct ParentStdio {
    pub(crate) stdin: Option<Box<dyn AsyncWrite + Send + Unpin>>,
    pub(crate) stdout: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) stderr: Option<Box<dyn AsyncRead + Send + Unpin>>,
    pub(crate) terminal: Option<Arc<dyn TerminalDevice>>,
}

/// The command's ends: descriptors 0, 1 and 2.
pub(crate) type ChildStdio = [OwnedFd; 3];

/// Creates both ends. Without `stdin` the command reads an end of file at once.
///
/// The command's ends belong to its user, which could otherwise not reopen them as `/dev/stdout` or `/dev/tty`.
///
/// # Errors
/// Fails if there is no free descriptor or pseudo-terminal.
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
        (None, dev_null()?)
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
    // Not by its path, which is another device if the container has its own `/dev/pts`.
    let theirs = ioctl_tiocgptpeer(&master, flags)?;
    set_owner(&theirs, uid);
    tcsetwinsize(&master, window(size))?;
    fcntl_setfl(&master, fcntl_getfl(&master)? | OFlags::NONBLOCK)?;
    let device = PtyMaster(master.try_clone()?);
    let ours = ParentStdio {
        stdin: stdin.then(|| device.open_input()).transpose()?,
        // Tokio has no type for terminals; pipes work for reading and writing them.
        stdout: Box::new(PtyReader(pipe::Receiver::from_owned_fd_unchecked(master)?)),
        stderr: None,
        terminal: Some(Arc::new(device)),
    };
    let their_in = if stdin { theirs.try_clone()? } else { dev_null()? };
    Ok((ours, [their_in, theirs.try_clone()?, theirs]))
}

fn dev_null() -> io::Result<OwnedFd> {
    Ok(open(c"/dev/null", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// Errors are ignored: a guest that may not change the owner already runs as that user, or runs all commands as its own
/// user.
fn set_owner(end: &OwnedFd, uid: u32) {
    let _ = fchown(end, Some(Uid::from_raw(uid)), None);
}

fn window(size: TerminalSize) -> Winsize {
    Winsize { ws_col: size.cols, ws_row: size.rows, ws_xpixel: 0, ws_ypixel: 0 }
}

/// The guest's end of a terminal.
struct PtyMaster(OwnedFd);

impl TerminalDevice for PtyMaster {
    fn resize(&self, size: TerminalSize) {
        // The terminal may be closed already.
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
    /// The bytes that end the input: after an unfinished line, the first one only submits that line.
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
