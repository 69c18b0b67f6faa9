//! The kernel's notifications of suspended calls, and the replies.
#![expect(unsafe_code, reason = "seccomp's notifications have no safe wrapper")]

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;

use libc::{
    SECCOMP_FILTER_FLAG_NEW_LISTENER, SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV, c_ulong, seccomp_data, seccomp_notif,
    seccomp_notif_addfd, seccomp_notif_resp, seccomp_notif_sizes,
};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, Result};
use rustix::ioctl::{Opcode, Setter, Updater, ioctl};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::os::raw_syscall;

const RECEIVE: Opcode = libc::SECCOMP_IOCTL_NOTIF_RECV as Opcode;
const SEND: Opcode = libc::SECCOMP_IOCTL_NOTIF_SEND as Opcode;
const ADD_FD: Opcode = libc::SECCOMP_IOCTL_NOTIF_ADDFD as Opcode;
const IS_VALID: Opcode = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as Opcode;

/// A suspended call that waits for its reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PendingCall {
    /// Id of the notification.
    pub(super) id: u64,
    /// The thread that created it, by its id in this namespace; 0 if it is in another one.
    pub(super) thread: u32,
    pub(super) number: i32,
    pub(super) arguments: [u64; 6],
}

/// An event of the listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListenerEvent {
    Call,
    Nothing,
    /// No process has the filter any more.
    Over,
}

/// Returns the flags for a listener that this kernel supports. With the flag, only a deadly signal interrupts a call that
/// was received; without it the call is repeated after the signal's handler, which does no harm.
///
/// # Errors
/// Fails if the kernel has no listeners, or if its messages have another size.
pub(super) fn flags() -> Result<c_ulong> {
    let mut sizes = seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    seccomp(libc::SECCOMP_GET_NOTIF_SIZES, 0, (&raw mut sizes) as usize)?;
    let sizes = [sizes.seccomp_notif, sizes.seccomp_notif_resp, sizes.seccomp_data].map(usize::from);
    if sizes != [size_of::<seccomp_notif>(), size_of::<seccomp_notif_resp>(), size_of::<seccomp_data>()] {
        return Err(Errno::NOSYS);
    }
    let killable_only = SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // The kernel checks the flags before the program, which is null here.
    let known = seccomp(libc::SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | killable_only, 0);
    Ok(if known == Err(Errno::FAULT) { killable_only } else { 0 })
}

fn seccomp(operation: u32, flags: c_ulong, argument: usize) -> Result<()> {
    // SAFETY: the kernel writes three numbers to the pointer if one is given, and reads no memory through null.
    unsafe { raw_syscall::call(libc::SYS_seccomp, [operation as usize, flags as usize, argument, 0, 0]) }.map(drop)
}

/// Registers the listener for wake-ups.
///
/// # Errors
/// Fails if the descriptor cannot be registered.
pub(super) fn watch(listener: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: the value shares ownership of the descriptor, which stays open until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }?)
}

/// Polls the listener without waiting.
pub(super) fn pending(listener: impl AsFd) -> ListenerEvent {
    let mut fds = [PollFd::new(&listener, PollFlags::IN)];
    let no_wait = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&no_wait)) {
        Err(Errno::INTR) => ListenerEvent::Nothing,
        Ok(1) if fds[0].revents().contains(PollFlags::IN) => ListenerEvent::Call,
        Ok(0) => ListenerEvent::Nothing,
        Ok(_) | Err(_) => ListenerEvent::Over,
    }
}

/// Receives a call that is [pending](ListenerEvent::Call).
///
/// # Errors
/// Fails if its caller was killed.
pub(super) fn receive(listener: &OwnedFd) -> Result<PendingCall> {
    let data = seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
    let mut notification = seccomp_notif { id: 0, pid: 0, flags: 0, data };
    // SAFETY: the type is that of the ioctl, with the size that the kernel reported.
    unsafe { ioctl(listener, Updater::<RECEIVE, seccomp_notif>::new(&mut notification)) }?;
    Ok(PendingCall {
        id: notification.id,
        thread: notification.pid,
        number: notification.data.nr,
        arguments: notification.data.args,
    })
}

/// Checks that the thread of a call still waits for its reply, so that its id was not reused until now.
///
/// # Errors
/// Fails if it does not wait any more.
pub(super) fn is_valid(listener: &OwnedFd, id: u64) -> Result<()> {
    // SAFETY: as above.
    unsafe { ioctl(listener, Setter::<IS_VALID, u64>::new(id)) }
}

/// Replies to the call. The kernel itself never makes it.
///
/// # Errors
/// Fails if the caller no longer waits.
pub(super) fn reply(listener: &OwnedFd, id: u64, errno: Option<Errno>) -> Result<()> {
    let error = errno.map_or(0, |it| -it.raw_os_error());
    let mut response = seccomp_notif_resp { id, val: 0, error, flags: 0 };
    // SAFETY: as above.
    unsafe { ioctl(listener, Updater::<SEND, seccomp_notif_resp>::new(&mut response)) }
}

/// Passes a file to the caller as the result of the call.
///
/// # Errors
/// Fails if the caller no longer waits, or has no free descriptor.
pub(super) fn add_descriptor(listener: &OwnedFd, id: u64, file: &OwnedFd, cloexec: bool) -> Result<()> {
    let newfd_flags = if cloexec { libc::O_CLOEXEC.cast_unsigned() } else { 0 };
    let (flags, srcfd) = (libc::SECCOMP_ADDFD_FLAG_SEND as u32, file.as_raw_fd().cast_unsigned());
    let request = seccomp_notif_addfd { id, flags, srcfd, newfd: 0, newfd_flags };
    // SAFETY: as above.
    unsafe { ioctl(listener, Setter::<ADD_FD, seccomp_notif_addfd>::new(request)) }
}
