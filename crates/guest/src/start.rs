//! Starts processes: everything is prepared, then there is one fork, and the child says by a pipe what failed.
//!
//! The pipe is closed by a successful exec. It is awaited, not read at once: an exec can hang on a file system that does
//! not answer, and PID 1 must not.
#![expect(unsafe_code, reason = "fork, and the signals around it, have no safe wrapper")]

pub(crate) mod beneath;
mod child;
pub(crate) mod env;
mod fault;
pub(crate) mod program;
pub(crate) mod stdio;

use std::ffi::{CStr, CString, c_char};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr;

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Resource, getrlimit};
use rustix::thread::{Gid, Uid};
use tokio::io::AsyncReadExt;
use tokio::net::unix::pipe;

use self::child::{Orders, SCRIPT, Said, Step, Then};
use self::program::Program;
use crate::filter::Filter;
use crate::machine::{Ids, NotStarted};
use crate::wire::Fault;

/// Descriptors that a child copies lie above those that it copies them to.
const ABOVE: i32 = 16;

/// A process that is to be.
#[derive(Debug)]
pub(crate) struct Launch<'a> {
    /// Its 0, 1 and 2.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Its output is a terminal, and becomes the session's.
    pub(crate) terminal: bool,
    /// The limit that it is told by.
    pub(crate) mark: Option<u64>,
    /// As whom; `None` leaves everything as it is.
    pub(crate) user: Option<&'a Ids>,
    /// What its directory is resolved beneath.
    pub(crate) root: BorrowedFd<'a>,
    /// Its directory.
    pub(crate) cwd: &'a CStr,
    /// What it may not do.
    pub(crate) filter: &'a Filter,
}

/// A child that was forked, and has not said yet whether it got further.
#[derive(Debug)]
pub(crate) struct Status(OwnedFd);

/// What a user may do in a directory, as a process of that user saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Launch<'_> {
    /// Forks a child that becomes the program.
    ///
    /// # Errors
    /// Those of the kernel; then there is no child.
    pub(crate) fn execute(&self, program: &Program) -> io::Result<(u32, Status)> {
        let candidates = pointers(&program.candidates);
        let words = ended(pointers(&program.words));
        let environment = ended(pointers(&program.environment));
        let shell = CString::from(c"/bin/sh");
        // For a file without a format: the shell, the file, and all words but the first.
        let rest = words.get(1..).unwrap_or(&[ptr::null()]);
        let mut by_shell = [&[shell.as_ptr(), ptr::null()], rest].concat();
        let script = program.script.as_ref().map(|it| fcntl_dupfd_cloexec(it, ABOVE)).transpose()?;
        self.fork(
            script.as_ref(),
            Then::Execute {
                candidates: &candidates,
                words: &words,
                by_shell: &mut by_shell,
                environment: &environment,
            },
        )
    }

    /// Forks a child that looks at its directory and is gone.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    pub(crate) fn look(&self) -> io::Result<(u32, Status)> {
        self.fork(None, Then::Look)
    }

    fn fork(&self, script: Option<&OwnedFd>, then: Then<'_>) -> io::Result<(u32, Status)> {
        let above = |it: BorrowedFd<'_>| fcntl_dupfd_cloexec(it, ABOVE);
        let [stdin, stdout, stderr] = self.stdio.map(above);
        let (stdin, stdout, stderr, root) = (stdin?, stdout?, stderr?, above(self.root)?);
        let (status, theirs) = pipe_with(PipeFlags::CLOEXEC)?;
        let theirs = above(theirs.as_fd())?;
        let groups: Vec<Gid> =
            self.user.map(|it| it.groups.iter().map(|it| Gid::from_raw(*it)).collect()).unwrap_or_default();
        let orders = Orders {
            stdio: [&stdin, &stdout, &stderr].map(AsRawFd::as_raw_fd),
            script: script.map(AsRawFd::as_raw_fd),
            status: theirs.as_raw_fd(),
            root: root.as_raw_fd(),
            terminal: self.terminal,
            mark: self.mark,
            open_files: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            user: self.user.map(|it| (Uid::from_raw(it.uid), Gid::from_raw(it.gid), &*groups)),
            cwd: self.cwd,
            filter: self.filter,
            then,
        };
        Ok((fork(orders)?, Status(status)))
    }
}

/// Forks with all signals blocked, so that none is handled in the child by what was installed for the parent.
fn fork(orders: Orders<'_>) -> io::Result<u32> {
    let (mut all, mut before) = (MaybeUninit::uninit(), MaybeUninit::uninit());
    // SAFETY: both sets are written before they are read, and the child does nothing but what its module promises.
    let (pid, error) = unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), before.as_mut_ptr());
        let pid = libc::fork();
        if pid == 0 {
            child::run(orders);
        }
        let error = io::Error::last_os_error();
        libc::pthread_sigmask(libc::SIG_SETMASK, before.as_ptr(), ptr::null_mut());
        (pid, error)
    };
    u32::try_from(pid).map_err(|_| error)
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|it| it.as_ptr()).collect()
}

fn ended(mut list: Vec<*const c_char>) -> Vec<*const c_char> {
    list.push(ptr::null());
    list
}

impl Status {
    /// Waits until the child is the program, or has said why not.
    ///
    /// # Errors
    /// Why not.
    pub(crate) async fn executed(self, program: &Program, cwd: &str) -> Result<(), NotStarted> {
        match self.read().await {
            Ok(Some([step, errno, ..])) => {
                let step = Step::ALL.into_iter().find(|it| *it as u32 == step).unwrap_or(Step::Session);
                Err(fault::explain(step, Errno::from_raw_os_error(errno.cast_signed()), program, cwd))
            }
            // Also when it was killed before it got there: then its end says so.
            Ok(None) => Ok(()),
            Err(error) => Err(NotStarted::Fault(not_forked(&error))),
        }
    }

    /// Waits for what the child saw.
    ///
    /// # Errors
    /// What failed before it could look.
    pub(crate) async fn seen(self) -> io::Result<Seen> {
        match self.read().await? {
            Some([child::SEEN, allowed, uid, gid]) => {
                let allows = |bits: i32| allowed.cast_signed() & bits == bits;
                Ok(Seen {
                    uid,
                    gid,
                    readable: allows(libc::R_OK | libc::X_OK),
                    writable: allows(libc::W_OK | libc::X_OK),
                })
            }
            Some([_, errno, ..]) => Err(io::Error::from_raw_os_error(errno.cast_signed())),
            None => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    async fn read(self) -> io::Result<Option<Said>> {
        let mut bytes = Vec::new();
        pipe::Receiver::from_owned_fd(self.0)?.read_to_end(&mut bytes).await?;
        let mut words = bytes.chunks_exact(4).map(|it| u32::from_ne_bytes(it.try_into().expect("four bytes")));
        let mut next = || words.next();
        Ok((|| Some([next()?, next()?, next()?, next()?]))())
    }
}

/// The fault of a process that there is none of.
pub(crate) fn not_forked(error: &io::Error) -> Fault {
    fault::no_child(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}
