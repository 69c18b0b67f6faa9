//! Starts the one program of a container that has no supervisor.
#![expect(unsafe_code, reason = "what a child does between fork and exec has no safe wrapper")]

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::os::{raw_syscall, signal_queue};

/// A user by its ids, without supplementary groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
}

/// Streams of the program; a stream that is not set is inherited.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) input: Option<Stdio>,
    /// Standard output and standard error.
    pub(crate) outputs: Option<[Stdio; 2]>,
}

/// Starts a program in a new session, looked up in this process's `PATH`, with all signals unblocked.
///
/// # Errors
/// Fails if the user cannot be changed or the program cannot be executed.
#[expect(clippy::disallowed_methods, reason = "PID 1 starts the container's main program")]
pub(crate) fn spawn(argv: &[OsString], user: Option<RunUser>, streams: Streams) -> io::Result<i32> {
    let mut command = Command::new(argv.first().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(&argv[1..]);
    if let Some([stdout, stderr]) = streams.outputs {
        command.stdout(stdout).stderr(stderr);
    }
    if let Some(stdin) = streams.input {
        command.stdin(stdin);
    }
    // SAFETY: only system calls, and this process has one thread.
    unsafe {
        command.pre_exec(move || {
            raw_syscall::setsid()?;
            user.map_or(Ok(()), become_user)?;
            // `execve` retains the signal mask, and the standard library does not reset it.
            signal_queue::unblock_all()
        });
    }
    let child = command.spawn()?;
    // Dropping the child does not kill it: PID 1 reaps all children.
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// Sets all ids at once, so that the program cannot change back.
fn become_user(RunUser { uid, gid }: RunUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}
