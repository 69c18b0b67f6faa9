//! Starts the one program of a container that has no supervisor.
#![expect(unsafe_code, reason = "what a child does between fork and exec has no safe wrapper")]

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use rustix::thread::{Gid, Uid, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use crate::os::{raw_syscall, signal_queue};

/// A user by its ids, without further groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunUser {
    /// Its uid.
    pub(crate) uid: u32,
    /// Its gid.
    pub(crate) gid: u32,
}

/// Streams of the program; an unset one is this process's.
#[derive(Debug, Default)]
pub(crate) struct Streams {
    pub(crate) input: Option<Stdio>,
    /// Output and errors.
    pub(crate) outputs: Option<[Stdio; 2]>,
}

/// Starts a program in a session of its own, looked up along this process's `PATH`, with all signals unblocked.
///
/// # Errors
/// Those of `execve`, and of the change of the user.
#[expect(clippy::disallowed_methods, reason = "PID 1 starts what the container is for")]
pub(crate) fn spawn(words: &[OsString], user: Option<RunUser>, streams: Streams) -> io::Result<i32> {
    let mut command = Command::new(words.first().ok_or(io::ErrorKind::InvalidInput)?);
    command.args(&words[1..]);
    if let Some([stdout, stderr]) = streams.outputs {
        command.stdout(stdout).stderr(stderr);
    }
    if let Some(stdin) = streams.input {
        command.stdin(stdin);
    }
    // SAFETY: only system calls, in a process that has one thread.
    unsafe {
        command.pre_exec(move || {
            raw_syscall::setsid()?;
            user.map_or(Ok(()), become_user)?;
            // A mask outlives `execve`, and the standard library leaves it as it is.
            signal_queue::unblock_all()
        });
    }
    let child = command.spawn()?;
    // Dropping it leaves the process alone: PID 1 reaps all.
    i32::try_from(child.id()).map_err(io::Error::other)
}

/// All ids at once, so that there is no way back.
fn become_user(RunUser { uid, gid }: RunUser) -> io::Result<()> {
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    set_thread_groups(&[])?;
    set_thread_res_gid(gid, gid, gid)?;
    Ok(set_thread_res_uid(uid, uid, uid)?)
}
