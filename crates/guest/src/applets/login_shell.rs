//! A person's shell: started by the engine on the person's terminal, with the environment that PID 1 gives a command.

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};

use crate::os::seccomp::Filter;
use crate::os::start;
use crate::os::start::env::value;
use crate::os::start::program::Program;
use crate::protocol::MAX_COMMAND;
use crate::protocol::codec::split_nul;
use crate::protocol::paths::{RUN, SHELL_SOCKET};

/// Twice as long as PID 1 waits for a slow client: there may be others before this one.
const READ_TIMEOUT: Duration = Duration::from_secs(10);

/// Requests the environment, and becomes the program with its further arguments: a shell, or a command on a person's
/// terminal. `own` is the engine's environment, which has the kind of the terminal.
///
/// # Errors
/// PID 1 is no guest or sends no environment; the program does not exist.
pub fn shell(program: &str, more: &[&str], own: &[Vec<u8>]) -> io::Result<Infallible> {
    // Variables pass through this memory. A program that is executed makes it readable to its own user again.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut environment = request_environment()?;
    if value(&environment, b"TERM").is_none() {
        let kind = value(own, b"TERM").unwrap_or(b"xterm-256color");
        environment.push([b"TERM=", kind].concat());
    }
    let words = [program].iter().chain(more).map(|it| it.as_bytes().to_vec()).collect();
    let program = Program::words(words, environment)?;
    let name = program.words[0].clone();
    let error = start::replace(program, &Filter::new());
    Err(io::Error::new(error.kind(), format!("cannot run `{}`: {error}", name.to_string_lossy())))
}

fn request_environment() -> io::Result<Vec<Vec<u8>>> {
    let mut stream = std::os::unix::net::UnixStream::connect(Path::new(RUN).join(SHELL_SOCKET))?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    if !rustix::net::sockopt::socket_peercred(&stream)?.pid.is_init() {
        return Err(io::Error::other("who listens on the socket is not the guest"));
    }
    let told = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => io::Error::other("the guest tells nothing; too many ask, so try again"),
        _ => error,
    };
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(told)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_COMMAND {
        return Err(io::Error::other("the environment is too long"));
    }
    let mut variables = vec![0; length];
    stream.read_exact(&mut variables).map_err(told)?;
    split_nul(&variables).map_err(io::Error::other)
}
