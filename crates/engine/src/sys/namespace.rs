//! Creates user namespaces.
#![expect(unsafe_code, reason = "clone")]

use std::io;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, pidfd_send_signal, waitid};

use super::enter::last_error;
use super::kernel::{BlockedSignals, die_with_parent};
use super::spawn::ChildStack;

/// Creates a user namespace. `write_maps` writes its id maps, given the pid of its only process. That process ends
/// afterwards, and the namespace lives as long as the returned file.
///
/// # Errors
/// If the kernel allows no user namespace, and those of `write_maps`.
pub(crate) fn create_user_namespace(write_maps: impl FnOnce(Pid) -> io::Result<()>) -> io::Result<OwnedFd> {
    let holder = Holder::start()?;
    write_maps(holder.pid)?;
    let path = format!("/proc/{}/ns/user", holder.pid.as_raw_nonzero());
    Ok(open(path.as_str(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
}

/// A process that only waits, and is killed when this is dropped.
struct Holder {
    pid: Pid,
    pidfd: OwnedFd,
    /// Its stack.
    _stack: ChildStack,
}

impl Holder {
    fn start() -> io::Result<Self> {
        let (mut stack, mut pidfd) = (ChildStack::new(), -1);
        // It shares the descriptors. With copies, it would hold locks that this process releases meanwhile, and copying many
        // descriptors takes long.
        let flags = libc::CLONE_VM | libc::CLONE_FILES | libc::CLONE_NEWUSER | libc::CLONE_PIDFD | libc::SIGCHLD;
        let signals = BlockedSignals::new();
        // SAFETY: the child uses nothing but its own stack, which lives until it is reaped.
        let pid = unsafe { libc::clone(wait_for_signal, stack.top(), flags, parent(), &raw mut pidfd) };
        let failure = (pid < 0).then(last_error);
        drop(signals);
        match (failure, Pid::from_raw(pid.max(0))) {
            // SAFETY: the kernel opened it for this process, which owns it alone.
            (None, Some(pid)) => Ok(Self { pid, pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) }, _stack: stack }),
            (failure, _) => Err(failure.unwrap_or(rustix::io::Errno::SRCH).into()),
        }
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        let _ = waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
    }
}

/// The pid of this process, as the argument of a child's function.
fn parent() -> *mut libc::c_void {
    std::ptr::without_provenance_mut(std::process::id() as usize)
}

/// Waits forever. All signals are blocked, so only `KILL` ends the process: sent by its parent, or by the kernel when its
/// parent dies.
extern "C" fn wait_for_signal(parent: *mut libc::c_void) -> libc::c_int {
    die_with_parent(parent.addr());
    loop {
        // SAFETY: waits without arguments. It sets no `errno`, which its parent's thread shares.
        unsafe { libc::syscall(libc::SYS_ppoll, std::ptr::null_mut::<libc::c_void>(), 0, 0, 0, 0) };
    }
}
