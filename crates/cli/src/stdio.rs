//! The standard streams, as bytes.
//!
//! **Invariant:** an error of standard output is never lost: [`failure`] returns the first one, and the program does
//! not exit with 0 after it.

use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::OnceLock;

use coracle_context::{Code, Failure};
use rustix::event::{PollFd, PollFlags, poll};

/// Standard output instead of a path of the host.
pub(super) const STDOUT: &str = "-";

/// The first error of standard output.
static FAILED: OnceLock<io::Error> = OnceLock::new();

/// Writes bytes unchanged: the output of a command belongs to the user's terminal or pipe, including colours.
///
/// # Errors
/// They cannot be written. The exit code of the program reports it, even if the caller does not.
pub(super) fn write_stdout(bytes: &[u8]) -> io::Result<()> {
    let written = write_all(io::stdout().lock(), bytes);
    written.inspect_err(|err| drop(FAILED.set(io::Error::new(err.kind(), err.to_string()))))
}

/// Writes to standard error. Its errors cannot be reported.
pub(super) fn write_stderr(bytes: &[u8]) -> io::Result<()> {
    write_all(io::stderr().lock(), bytes)
}

/// The failure of standard output. A reader that disconnected is not a failure.
pub(super) fn failure() -> Option<Failure> {
    let err = FAILED.get().filter(|err| err.kind() != io::ErrorKind::BrokenPipe)?;
    let failure = Failure::new(Code::CopyFailed, format!("standard output cannot be written: {err}"));
    Some(failure.hint("free space where it is written to, or write it elsewhere"))
}

/// A terminal or pipe that another program made non-blocking accepts a part at a time.
fn write_all(mut to: impl Write + AsFd, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        match to.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(err) => wait_for_room(&to, err)?,
        }
    }
    loop {
        match to.flush() {
            Err(err) => wait_for_room(&to, err)?,
            Ok(()) => return Ok(()),
        }
    }
}

fn wait_for_room(to: &impl AsFd, err: io::Error) -> io::Result<()> {
    match err.kind() {
        io::ErrorKind::WouldBlock => match poll(&mut [PollFd::new(to, PollFlags::OUT)], None) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        },
        io::ErrorKind::Interrupted => Ok(()),
        _ => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, pipe};
    use std::os::fd::AsFd as _;

    use rustix::fs::{OFlags, fcntl_setfl};

    use super::*;

    #[test]
    fn a_slow_reader_of_a_pipe_that_does_not_block_gets_everything() {
        let (mut reader, writer) = pipe().unwrap();
        fcntl_setfl(writer.as_fd(), OFlags::NONBLOCK).unwrap();
        let bytes: Vec<u8> = (0..1_u32 << 20).map(|it| it.to_le_bytes()[1]).collect();
        let read = std::thread::spawn(move || {
            let mut read = Vec::new();
            reader.read_to_end(&mut read).map(|_| read)
        });
        write_all(writer, &bytes).unwrap();
        assert!(read.join().unwrap().unwrap() == bytes);
    }
}
