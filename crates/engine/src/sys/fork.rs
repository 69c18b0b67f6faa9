//! Runs a closure in a forked child: for work in other namespaces or as another user, which a thread cannot do.
#![expect(unsafe_code, reason = "fork and setns")]

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rustix::process::{Pid, WaitOptions, waitpid};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::enter::{enter, last_error};
use super::kernel::exit;

/// An I/O error that crosses a pipe.
#[derive(Debug, Serialize, Deserialize)]
struct RemoteError {
    code: Option<i32>,
    text: String,
}

/// Forks, enters the namespaces, runs `work` there and gives its result. The child has one thread: `work` must not take
/// locks that other threads of this process may hold at the moment of the fork (those of memory are safe), and must not
/// use tokio.
///
/// # Errors
/// Those of `work`; when the child ends without a result.
pub(crate) fn run_in_child<T: Serialize + DeserializeOwned>(
    namespaces: &[(BorrowedFd<'_>, libc::c_int)],
    work: impl FnOnce() -> io::Result<T>,
) -> io::Result<T> {
    let (mut reader, writer) = io::pipe()?;
    // SAFETY: the child runs with a copy of this thread alone, writes its result and exits without running destructors of
    // others; memory allocation is safe after glibc's `fork`.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        drop(reader);
        run_and_exit(namespaces, work, writer);
    }
    drop(writer);
    let pid = Pid::from_raw(pid).ok_or_else(|| io::Error::from(last_error()))?;
    let mut answer = Vec::new();
    let read = reader.read_to_end(&mut answer);
    let _ = waitpid(Some(pid), WaitOptions::empty());
    read?;
    let result: Result<T, RemoteError> =
        serde_json::from_slice(&answer).map_err(|_| io::Error::other("the child process ended without a result"))?;
    result.map_err(|err| match err.code {
        Some(code) => io::Error::from_raw_os_error(code),
        None => io::Error::other(err.text),
    })
}

fn run_and_exit<T: Serialize>(
    namespaces: &[(BorrowedFd<'_>, libc::c_int)],
    work: impl FnOnce() -> io::Result<T>,
    mut into: io::PipeWriter,
) -> ! {
    let entered = namespaces.iter().try_for_each(|(of, kinds)| enter(of.as_fd(), *kinds).map_err(io::Error::from));
    let result = entered.and_then(|()| {
        catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(io::Error::other("the child process failed")))
    });
    let result = result.map_err(|err| RemoteError { code: err.raw_os_error(), text: err.to_string() });
    let written = serde_json::to_vec(&result).map_err(io::Error::from).and_then(|it| into.write_all(&it));
    exit(i32::from(written.is_err()))
}
