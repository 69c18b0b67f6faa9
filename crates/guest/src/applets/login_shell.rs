//! An interactive shell: the engine starts it on the user's terminal, and PID 1 sends the environment of a command.

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

/// Requests the environment, and executes the program with its arguments: a shell, or a command on the user's terminal.
/// `own` is the environment from the engine, which contains the type of the terminal.
///
/// # Errors
/// Fails if PID 1 is not a guest or sends no environment, or if the program does not exist.
pub fn shell(program: &str, args: &[&str], own: &[Vec<u8>]) -> io::Result<Infallible> {
    // Variables pass through this memory. After `execve` the memory is readable to its own user again.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut environment = request_environment()?;
    if value(&environment, b"TERM").is_none() {
        let kind = value(own, b"TERM").unwrap_or(b"xterm-256color");
        environment.push([b"TERM=", kind].concat());
    }
    let argv = [program].iter().chain(args).map(|it| it.as_bytes().to_vec()).collect();
    let program = Program::from_argv(argv, environment)?;
    let name = program.argv[0].clone();
    let error = start::replace(program, &Filter::new());
    Err(io::Error::new(error.kind(), format!("cannot run `{}`: {error}", name.to_string_lossy())))
}

fn request_environment() -> io::Result<Vec<Vec<u8>>> {
    let mut stream = std::os::unix::net::UnixStream::connect(Path::new(RUN).join(SHELL_SOCKET))?;
    stream.set_read_timeout(Some(READ_TIMEOUT))?;
    if !rustix::net::sockopt::socket_peercred(&stream)?.pid.is_init() {
        return Err(io::Error::other("the process that listens on the socket is not the guest"));
    }
    let explain = |error: io::Error| match error.kind() {
        io::ErrorKind::UnexpectedEof => {
            io::Error::other("the guest sent no environment because it has too many clients; try again")
        }
        _ => error,
    };
    let mut length = [0; 4];
    stream.read_exact(&mut length).map_err(explain)?;
    let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
    if length > MAX_COMMAND {
        return Err(io::Error::other("the environment is too long"));
    }
    let mut variables = vec![0; length];
    stream.read_exact(&mut variables).map_err(explain)?;
    split_nul(&variables).map_err(io::Error::other)
}
