//! What the kernel says of calls that a filter stopped, and how it is answered.
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
const GIVE: Opcode = libc::SECCOMP_IOCTL_NOTIF_ADDFD as Opcode;
const IS_VALID: Opcode = libc::SECCOMP_IOCTL_NOTIF_ID_VALID as Opcode;

/// A call that waits for its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RawCall {
    /// Of the notification.
    pub(super) id: u64,
    /// The thread that made it, by its number here. 0: it is in another namespace.
    pub(super) thread: u32,
    pub(super) number: i32,
    pub(super) arguments: [u64; 6],
}

/// What there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pending {
    Call,
    Nothing,
    /// No process has the filter any more.
    Over,
}

/// Flags for a listener of this kernel's. With the one a call that was taken is disturbed by no signal but a deadly one;
/// without it is made again after the signal's handler, which does no harm.
///
/// # Errors
/// There are no listeners, or what they say is of another size.
pub(super) fn flags() -> Result<c_ulong> {
    let mut sizes = seccomp_notif_sizes { seccomp_notif: 0, seccomp_notif_resp: 0, seccomp_data: 0 };
    seccomp(libc::SECCOMP_GET_NOTIF_SIZES, 0, (&raw mut sizes) as usize)?;
    let said = [sizes.seccomp_notif, sizes.seccomp_notif_resp, sizes.seccomp_data].map(usize::from);
    if said != [size_of::<seccomp_notif>(), size_of::<seccomp_notif_resp>(), size_of::<seccomp_data>()] {
        return Err(Errno::NOSYS);
    }
    let undisturbed = SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV;
    // The flags are looked at before the program, which there is none of.
    let known = seccomp(libc::SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER | undisturbed, 0);
    Ok(if known == Err(Errno::FAULT) { undisturbed } else { 0 })
}

fn seccomp(operation: u32, flags: c_ulong, argument: usize) -> Result<()> {
    // SAFETY: the kernel writes three numbers to the one pointer that is given, and reads nothing from null.
    unsafe { raw_syscall::call(libc::SYS_seccomp, [operation as usize, flags as usize, argument, 0, 0]) }.map(drop)
}

/// One that wakes at calls.
///
/// # Errors
/// Nothing can be watched.
pub(super) fn watched(listener: Arc<OwnedFd>) -> io::Result<AsyncFd<Arc<OwnedFd>>> {
    // SAFETY: it shares the descriptor, which is the same until it is dropped.
    Ok(unsafe { AsyncFd::register_with_interest(listener, Interest::READABLE) }?)
}

/// Looks without waiting.
pub(super) fn pending(listener: impl AsFd) -> Pending {
    let mut fds = [PollFd::new(&listener, PollFlags::IN)];
    let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
    match poll(&mut fds, Some(&at_once)) {
        Err(Errno::INTR) => Pending::Nothing,
        Ok(1) if fds[0].revents().contains(PollFlags::IN) => Pending::Call,
        Ok(0) => Pending::Nothing,
        Ok(_) | Err(_) => Pending::Over,
    }
}

/// Takes a call that is [pending](Pending::Call).
///
/// # Errors
/// Its caller was killed meanwhile.
pub(super) fn receive(listener: &OwnedFd) -> Result<RawCall> {
    let data = seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
    let mut said = seccomp_notif { id: 0, pid: 0, flags: 0, data };
    // SAFETY: the type is that of the call, of the size that the kernel said.
    unsafe { ioctl(listener, Updater::<RECEIVE, seccomp_notif>::new(&mut said)) }?;
    Ok(RawCall { id: said.id, thread: said.pid, number: said.data.nr, arguments: said.data.args })
}

/// Whether the thread of a call still waits for its answer, so that its number meant no other one until now.
///
/// # Errors
/// It does not.
pub(super) fn is_valid(listener: &OwnedFd, id: u64) -> Result<()> {
    // SAFETY: as above.
    unsafe { ioctl(listener, Setter::<IS_VALID, u64>::new(id)) }
}

/// What the call comes to. It is never made by the kernel itself.
///
/// # Errors
/// Nobody waits for it.
pub(super) fn reply(listener: &OwnedFd, id: u64, errno: Option<Errno>) -> Result<()> {
    let error = errno.map_or(0, |it| -it.raw_os_error());
    let mut answer = seccomp_notif_resp { id, val: 0, error, flags: 0 };
    // SAFETY: as above.
    unsafe { ioctl(listener, Updater::<SEND, seccomp_notif_resp>::new(&mut answer)) }
}

/// Gives a caller a file, as what the call comes to.
///
/// # Errors
/// Nobody waits for it, or the caller has no room for one more.
pub(super) fn give(listener: &OwnedFd, id: u64, file: &OwnedFd, closes: bool) -> Result<()> {
    let newfd_flags = if closes { libc::O_CLOEXEC.cast_unsigned() } else { 0 };
    let (flags, srcfd) = (libc::SECCOMP_ADDFD_FLAG_SEND as u32, file.as_raw_fd().cast_unsigned());
    let given = seccomp_notif_addfd { id, flags, srcfd, newfd: 0, newfd_flags };
    // SAFETY: as above.
    unsafe { ioctl(listener, Setter::<GIVE, seccomp_notif_addfd>::new(given)) }
}
