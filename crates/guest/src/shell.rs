//! A person's shell: started by the engine on the person's terminal, with the environment that PID 1 gives a command.
//!
//! **Invariant:** PID 1 hears nothing on this socket. It says an environment once, and closes.
//! **Invariant:** the session's variables go to root and to the user that was settled, and the kernel says who asks.
//! Others get what the image and the passwd file say, which is no secret of anybody's.

use std::convert::Infallible;
use std::io::{self, Read as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{DumpableBehavior, set_dumpable_behavior};
use tokio::io::AsyncWriteExt as _;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::command::split;
use crate::container::Container;
use crate::filter::Filter;
use crate::start;
use crate::start::env::value;
use crate::start::program::Program;
use crate::supervisor::Supervisor;
use crate::wire::{MAX_COMMAND, Who};

/// Its name in `/.coracle/run`.
pub(crate) const SOCKET: &str = "shell";

/// Who asks at once. More are told nothing, and say so.
const MOST: usize = 16;

/// What is said fits into no buffer: who does not read it gives up its place after this time, and who waits for it waits
/// no longer than twice as long.
const PATIENCE: Duration = Duration::from_secs(5);

/// Says to each that connects which environment a command of its user would have.
pub(crate) async fn attend(listener: UnixListener, container: Arc<Container>, supervisor: Arc<Supervisor>) {
    let places = Arc::new(Semaphore::new(MOST));
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            // Out of descriptors, for one: there may be some in a moment.
            sleep(Duration::from_millis(50)).await;
            continue;
        };
        let Ok(place) = places.clone().try_acquire_owned() else { continue };
        let Some(said) = said(&stream, &container, &supervisor) else { continue };
        tokio::spawn(async move {
            let _place = place;
            let _ = timeout(PATIENCE, say(stream, &said)).await;
        });
    }
}

async fn say(mut stream: UnixStream, said: &[u8]) -> io::Result<()> {
    stream.write_all(said).await?;
    stream.shutdown().await
}

/// Bytes that follow, as four bytes, then `NAME=value`, each ended by a NUL.
fn said(stream: &UnixStream, container: &Container, supervisor: &Supervisor) -> Option<Vec<u8>> {
    let peer = stream.peer_cred().ok()?;
    let session = supervisor.session_of(peer.uid());
    let who = Who::Ids { uid: peer.uid(), gid: Some(peer.gid()) };
    let environment = container.environment_of(&who, &session).ok()?;
    let variables = environment.iter().flat_map(|it| it.iter().copied().chain([0])).collect::<Vec<u8>>();
    let mut said = u32::try_from(variables.len()).ok()?.to_be_bytes().to_vec();
    said.extend(variables);
    Some(said)
}

/// Asks for the environment, and becomes the program with its further words: a shell, or a command on a person's terminal.
/// `own` is what the engine gave, which knows the kind of the terminal.
///
/// # Errors
/// PID 1 is no guest or tells nothing; there is no such program.
pub fn shell(program: &str, more: &[&str], own: &[Vec<u8>]) -> io::Result<Infallible> {
    // Variables pass through this memory. A program that is executed makes it readable to its own user again.
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    let mut environment = ask()?;
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

fn ask() -> io::Result<Vec<Vec<u8>>> {
    let mut stream = std::os::unix::net::UnixStream::connect(Path::new(crate::wire::paths::RUN).join(SOCKET))?;
    stream.set_read_timeout(Some(2 * PATIENCE))?;
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
    split(&variables).map_err(io::Error::other)
}
