//! The messages of a child before it executes the program.
//!
//! By a socket, since a listener of the filter's can only be given away by the child, in whose table it is made.
#![expect(unsafe_code, reason = "a child sends by a bare system call")]

use std::io::{self, IoSliceMut};
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use libc::{SCM_RIGHTS, SOL_SOCKET, c_int, cmsghdr, iovec, msghdr};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use rustix::net::{recvmsg, socketpair};

use crate::os::raw_syscall;

/// The last word of a child: a step and its errno, or [`SEEN`](super::child::SEEN) and bits of `access`; then its uid and
/// gid.
pub(super) type ChildStatus = [u32; 4];

/// A received message.
#[derive(Debug)]
pub(super) enum StatusMessage {
    /// None when there was no room for it. What it would be asked fails then.
    Disconnect(Option<OwnedFd>),
    Last(ChildStatus),
}

/// An end for us and one for a child. Words keep apart.
///
/// # Errors
/// No descriptors are left.
pub(super) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

/// A message with one descriptor.
#[repr(C)]
struct Rights {
    head: cmsghdr,
    descriptor: c_int,
}

/// Sends a listener. For a child: allocates nothing and leaves `errno` alone.
pub(super) fn say_listener(to: RawFd, listener: RawFd) -> Result<(), Errno> {
    let mut byte = 0u8;
    let mut bytes = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: both are numbers and pointers, for which zeros are values.
    let (mut rights, mut message) = unsafe { (zeroed::<Rights>(), zeroed::<msghdr>()) };
    rights.head.cmsg_len = (size_of::<cmsghdr>() + size_of::<c_int>()) as _;
    (rights.head.cmsg_level, rights.head.cmsg_type, rights.descriptor) = (SOL_SOCKET, SCM_RIGHTS, listener);
    (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut rights).cast(), size_of::<Rights>() as _);
    let arguments = [to as usize, (&raw const message) as usize, 0, 0, 0];
    // SAFETY: the kernel reads a message, whose parts are all alive.
    unsafe { raw_syscall::call(libc::SYS_sendmsg, arguments) }.map(drop)
}

/// Sends the last word. For a child, too.
pub(super) fn say_last(to: RawFd, said: ChildStatus) {
    let arguments = [to as usize, said.as_ptr() as usize, size_of_val(&said), 0, 0];
    // SAFETY: an array that is alive. A failed write makes no difference to a child that exits now.
    let _ = unsafe { raw_syscall::call(libc::SYS_write, arguments) };
}

/// Receives a message; `None` at the end.
///
/// # Errors
/// [`WouldBlock`](io::ErrorKind::WouldBlock): no message has arrived yet.
pub(super) fn receive(from: BorrowedFd<'_>) -> io::Result<Option<StatusMessage>> {
    let mut bytes = [0; size_of::<ChildStatus>()];
    let mut space = [MaybeUninit::uninit(); cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut space);
    let flags = RecvFlags::CMSG_CLOEXEC | RecvFlags::DONTWAIT;
    let count = recvmsg(from, &mut [IoSliceMut::new(&mut bytes)], &mut rights, flags)?.bytes;
    let mut descriptors = rights.drain().filter_map(|it| match it {
        RecvAncillaryMessage::ScmRights(them) => Some(them),
        _ => None,
    });
    let listener = descriptors.by_ref().flatten().next();
    let word = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match count {
        0 => Ok(None),
        1 => Ok(Some(StatusMessage::Disconnect(listener))),
        16 => Ok(Some(StatusMessage::Last([word(0), word(4), word(8), word(12)]))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn words_come_one_by_one_and_then_an_end() {
        let (ours, theirs) = pair().unwrap();
        let nothing = receive(ours.as_fd()).unwrap_err();
        assert_eq!(nothing.kind(), io::ErrorKind::WouldBlock);
        let file = tempfile::tempfile().unwrap();
        say_listener(theirs.as_raw_fd(), file.as_raw_fd()).unwrap();
        say_last(theirs.as_raw_fd(), [1, 2, 3, u32::MAX]);
        drop(theirs);
        let Some(StatusMessage::Disconnect(Some(got))) = receive(ours.as_fd()).unwrap() else { panic!("a descriptor") };
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(got.as_fd()), inode(file.as_fd()));
        assert!(rustix::io::fcntl_getfd(&got).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        let Some(StatusMessage::Last(said)) = receive(ours.as_fd()).unwrap() else { panic!("a word") };
        assert_eq!(said, [1, 2, 3, u32::MAX]);
        assert!(receive(ours.as_fd()).unwrap().is_none());
    }
}
