//! Starts processes: everything is prepared first, then a child is created, which reports failures through a socket.
//!
//! A successful exec closes the socket. The guest waits for that asynchronously: an exec can hang on a file system that
//! does not respond, which must not block PID 1.
#![expect(unsafe_code, reason = "a child that shares memory, and the system calls that it makes, have no safe wrapper")]

mod child;
pub(crate) mod env;
mod error;
pub(crate) mod program;
mod spawn;
mod status_channel;
pub(crate) mod stdio;

use std::ffi::{CStr, CString, c_char};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::{Arc, OnceLock};
use std::{io, ptr};

use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{DumpableBehavior, Resource, dumpable_behavior, getrlimit};
use rustix::thread::{Gid, Uid, set_no_new_privs};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use self::child::{ChildAction, ChildArgs, Execution, FIRST_FREE, SCRIPT, SpawnStage};
use self::program::Program;
use self::spawn::ChildMemory;
pub(crate) use self::spawn::may_share;
use self::status_channel::{ChildStatus, StatusMessage};
use crate::os::machine::{Ids, SpawnError};
use crate::os::seccomp::Filter;
use crate::protocol::RpcError;

/// The parameters of a process to start.
#[derive(Debug)]
pub(crate) struct Spawn<'a> {
    /// Its descriptors 0, 1 and 2.
    pub(crate) stdio: [BorrowedFd<'a>; 3],
    /// Whether its output is a terminal, which becomes the controlling terminal.
    pub(crate) terminal: bool,
    /// The limit that tags the process.
    pub(crate) mark: Option<u64>,
    /// The user to switch to; `None` leaves it unchanged.
    pub(crate) user: Option<&'a Ids>,
    /// The root directory for `cwd`.
    pub(crate) root: BorrowedFd<'a>,
    /// The working directory.
    pub(crate) cwd: &'a CStr,
    pub(crate) filter: &'a Arc<Filter>,
}

/// A child that was created and has not yet reported whether it became the program.
#[derive(Debug)]
pub(crate) struct StatusChannel {
    socket: OwnedFd,
    memory: ChildMemory,
}

/// A user's access to a directory, as a process of that user saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirectoryAccess {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) readable: bool,
    pub(crate) writable: bool,
}

impl Spawn<'_> {
    /// Creates a child that executes the program.
    ///
    /// # Errors
    /// Fails if the kernel creates no child.
    pub(crate) fn execute(&self, program: Program) -> io::Result<(u32, StatusChannel)> {
        self.start(ChildAction::Execute(Execution::new(program)))
    }

    /// Creates a child that checks its directory and exits.
    ///
    /// # Errors
    /// As for [`execute`](Self::execute).
    pub(crate) fn check_access(&self) -> io::Result<(u32, StatusChannel)> {
        self.start(ChildAction::CheckAccess)
    }

    fn start(&self, then: ChildAction) -> io::Result<(u32, StatusChannel)> {
        let [stdin, stdout, stderr] = self.stdio.map(|it| above(it.as_fd()));
        let (stdin, stdout, stderr, root) = (stdin?, stdout?, stderr?, above(self.root)?);
        let script = then.script().map(|it| above(it.as_fd())).transpose()?;
        let (socket, theirs) = status_channel::pair()?;
        let status = above(theirs.as_fd())?;
        let groups = |ids: &Ids| ids.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
        let args = ChildArgs {
            stdio: [stdin.0, stdout.0, stderr.0],
            script: script.as_ref().map(|it| it.0),
            status: status.0,
            root: root.0,
            terminal: self.terminal,
            mark: self.mark,
            open_files: getrlimit(Resource::Nofile).maximum.unwrap_or(u64::MAX),
            user: self.user.map(|it| (Uid::from_raw(it.uid), Gid::from_raw(it.gid), groups(it))),
            dumpable: is_dumpable(),
            cwd: self.cwd.to_owned(),
            filter: Arc::clone(self.filter),
            then,
        };
        let (pid, memory) = spawn::spawn(args)?;
        Ok((pid, StatusChannel { socket, memory }))
    }
}

/// Executes the program in this process, with default signals and the filter. For a process that another program started.
pub(crate) fn replace(program: Program, filter: &Filter) -> io::Error {
    child::plain_actions();
    if let Err(errno) = set_no_new_privs(true).and_then(|()| filter.install()) {
        return errno.into();
    }
    child::execute(&mut Execution::new(program)).1.into()
}

/// Whether other processes may read this process's memory, as it was before the first child could change that.
fn is_dumpable() -> bool {
    static BEFORE: OnceLock<bool> = OnceLock::new();
    *BEFORE.get_or_init(|| matches!(dumpable_behavior(), Ok(DumpableBehavior::Dumpable)))
}

/// Duplicates a descriptor to a number that a child does not overwrite, if necessary; the copy must stay open that long.
fn above(it: BorrowedFd<'_>) -> io::Result<(RawFd, Option<OwnedFd>)> {
    if it.as_raw_fd() >= FIRST_FREE {
        return Ok((it.as_raw_fd(), None));
    }
    let copy = fcntl_dupfd_cloexec(it, FIRST_FREE)?;
    Ok((copy.as_raw_fd(), Some(copy)))
}

impl Execution {
    fn new(program: Program) -> Self {
        let candidates = pointers(&program.candidates);
        let argv = ended(pointers(&program.argv));
        let environment = ended(pointers(&program.environment));
        // For a file without a known format: the shell, the file, and all arguments but the first.
        let rest = argv.get(1..).unwrap_or(&[ptr::null()]);
        let by_shell = [&[c"/bin/sh".as_ptr(), ptr::null()], rest].concat();
        Self { program, candidates, argv, by_shell, environment }
    }
}

fn pointers(strings: &[CString]) -> Vec<*const c_char> {
    strings.iter().map(|it| it.as_ptr()).collect()
}

fn ended(mut list: Vec<*const c_char>) -> Vec<*const c_char> {
    list.push(ptr::null());
    list
}

impl StatusChannel {
    /// Waits until the child executes the program or reports a failure. Returns the listener of a filter with notifications.
    ///
    /// # Errors
    /// Returns the child's failure.
    pub(crate) async fn wait_executed(self, cwd: String) -> Result<Option<OwnedFd>, SpawnError> {
        match self.read().await {
            Ok((ChildReport { last: Some([step, errno, ..]), .. }, ChildAction::Execute(execution))) => {
                let step =
                    SpawnStage::ALL.into_iter().find(|stage| *stage as u32 == step).unwrap_or(SpawnStage::Session);
                Err(error::explain(step, Errno::from_raw_os_error(errno.cast_signed()), &execution.program, &cwd))
            }
            // The child may also have been killed before exec; then its exit status reports that.
            Ok((report, _)) => Ok(report.listener),
            Err(error) => Err(SpawnError::Fault(not_forked(&error))),
        }
    }

    /// Waits for the child's report of the user's access.
    ///
    /// # Errors
    /// Returns the child's failure before the check.
    pub(crate) async fn directory_access(self) -> io::Result<DirectoryAccess> {
        match self.read().await?.0.last {
            Some([child::ACCESS_CHECKED, allowed, uid, gid]) => {
                let allows = |bits: i32| allowed.cast_signed() & bits == bits;
                Ok(DirectoryAccess {
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

    /// Receives the complete report of the child, and returns it with the child's action.
    async fn read(self) -> io::Result<(ChildReport, ChildAction)> {
        // SAFETY: `AsyncFd` owns the descriptor until it is dropped.
        let socket = unsafe { AsyncFd::register_with_interest(self.socket, Interest::READABLE) }?;
        let mut report = ChildReport::default();
        loop {
            match socket.async_io(Interest::READABLE, |it| status_channel::receive(it.as_fd())).await? {
                Some(StatusMessage::Listener(listener)) => report.listener = listener,
                Some(StatusMessage::Status(status)) => report.last = Some(status),
                None => break,
            }
        }
        // SAFETY: only the child had the other end. It stops using the memory before its descriptors are closed, at an exec
        // as well as at its exit.
        let args = unsafe { self.memory.take_back() };
        Ok((report, args.then))
    }
}

/// The report of a child.
#[derive(Debug, Default)]
struct ChildReport {
    listener: Option<OwnedFd>,
    last: Option<ChildStatus>,
}

/// The error for a process that could not be created.
pub(crate) fn not_forked(error: &io::Error) -> RpcError {
    error::no_child(Errno::from_raw_os_error(error.raw_os_error().unwrap_or(libc::EIO)))
}
