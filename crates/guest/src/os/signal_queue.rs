//! Signals read from a descriptor, for a process with one thread.
#![expect(unsafe_code, reason = "signal masks and signalfd have no safe wrapper")]

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd};

/// Signals that the kernel sends for a fault of the process itself, which cannot be deferred.
const FAULTS: [i32; 7] =
    [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGFPE, libc::SIGTRAP, libc::SIGABRT, libc::SIGSYS];

/// A signalfd for all signals that can be deferred, which are blocked.
#[derive(Debug)]
pub(crate) struct SignalQueue(OwnedFd);

impl SignalQueue {
    /// Blocks the signals. Programs that are started later must [unblock](unblock_all) them.
    ///
    /// # Errors
    /// Fails if the kernel refuses a call.
    pub(crate) fn new() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: the first call initializes the set, the others take an initialized one.
        let fd = unsafe {
            libc::sigfillset(set.as_mut_ptr());
            let mut set = set.assume_init();
            FAULTS.into_iter().for_each(|it| _ = libc::sigdelset(&raw mut set, it));
            if libc::sigprocmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut()) == -1 {
                return Err(io::Error::last_os_error());
            }
            libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if fd == -1 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has just opened it.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    /// The next signal; `None` if none is queued.
    ///
    /// # Errors
    /// Fails if the descriptor cannot be read.
    pub(crate) fn next(&self) -> io::Result<Option<i32>> {
        let mut info = [0; size_of::<libc::signalfd_siginfo>()];
        match rustix::io::read(&self.0, &mut info) {
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => Ok(None),
            Err(errno) => Err(errno.into()),
            // The signal number is the first field.
            Ok(_) => Ok(Some(i32::from_ne_bytes([info[0], info[1], info[2], info[3]]))),
        }
    }
}

impl AsFd for SignalQueue {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Unblocks all signals, in a child that is about to execute a program.
///
/// # Errors
/// Fails if the kernel refuses the call.
pub(crate) fn unblock_all() -> io::Result<()> {
    let mut set = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: the first call initializes the set, the second takes an initialized one.
    let done = unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigprocmask(libc::SIG_SETMASK, set.as_ptr(), std::ptr::null_mut())
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sends a signal by number, also one that rustix has no name for. Errors are ignored: the process may have ended.
pub(crate) fn send(pid: i32, signal: i32) {
    // SAFETY: the arguments are numbers.
    let _ = unsafe { libc::kill(pid, signal) };
}
