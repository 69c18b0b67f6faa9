//! The messages that a child sends before it executes the program.
//!
//! They need a socket: only the child can pass on the filter's listener, which is created in its descriptor table.
#![expect(unsafe_code, reason = "a child sends by a bare system call")]

use std::io::{self, IoSliceMut};
use std::mem::{MaybeUninit, zeroed};
use std::os::fd::{BorrowedFd, OwnedFd, RawFd};

use libc::{SCM_RIGHTS, SOL_SOCKET, c_int, cmsghdr, iovec, msghdr};
use rustix::cmsg_space;
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType, recvmsg, socketpair,
};

use crate::os::raw_syscall;

/// The last message of a child: a stage and its errno, or [`ACCESS_CHECKED`](super::child::ACCESS_CHECKED) and bits of `access`; then its uid
/// and gid.
pub(super) type ChildStatus = [u32; 4];

/// A received message.
#[derive(Debug)]
pub(super) enum StatusMessage {
    /// The listener; `None` if there was no free descriptor for it. Suspended calls then fail.
    Listener(Option<OwnedFd>),
    Status(ChildStatus),
}

/// Creates a socket pair for the guest and a child. Messages retain their boundaries.
///
/// # Errors
/// Fails if there is no free descriptor.
pub(super) fn pair() -> rustix::io::Result<(OwnedFd, OwnedFd)> {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
}

#[repr(C)]
struct Rights {
    head: cmsghdr,
    descriptor: c_int,
}

/// Sends a listener. Called in a child: allocates nothing and does not change `errno`.
pub(super) fn send_listener(to: RawFd, listener: RawFd) -> Result<(), Errno> {
    let mut byte = 0u8;
    let mut bytes = iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // SAFETY: both consist of numbers and pointers, for which zeros are valid.
    let (mut rights, mut message) = unsafe { (zeroed::<Rights>(), zeroed::<msghdr>()) };
    rights.head.cmsg_len = (size_of::<cmsghdr>() + size_of::<c_int>()) as _;
    (rights.head.cmsg_level, rights.head.cmsg_type, rights.descriptor) = (SOL_SOCKET, SCM_RIGHTS, listener);
    (message.msg_iov, message.msg_iovlen) = (&raw mut bytes, 1);
    (message.msg_control, message.msg_controllen) = ((&raw mut rights).cast(), size_of::<Rights>() as _);
    let arguments = [to as usize, (&raw const message) as usize, 0, 0, 0];
    // SAFETY: the kernel reads a message whose parts are all alive.
    unsafe { raw_syscall::call(libc::SYS_sendmsg, arguments) }.map(drop)
}

/// Sends the last message of a child.
pub(super) fn send_status(to: RawFd, status: ChildStatus) {
    let arguments = [to as usize, status.as_ptr() as usize, size_of_val(&status), 0, 0];
    // SAFETY: the array is alive. A failed write does not matter to a child that exits now.
    let _ = unsafe { raw_syscall::call(libc::SYS_write, arguments) };
}

/// Receives a message; `None` at the end of the stream.
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
    let field = |at: usize| u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
    match count {
        0 => Ok(None),
        1 => Ok(Some(StatusMessage::Listener(listener))),
        16 => Ok(Some(StatusMessage::Status([field(0), field(4), field(8), field(12)]))),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsFd, AsRawFd};

    use super::*;

    #[test]
    fn messages_arrive_one_by_one_until_the_socket_closes() {
        let (ours, theirs) = pair().unwrap();
        let empty = receive(ours.as_fd()).unwrap_err();
        assert_eq!(empty.kind(), io::ErrorKind::WouldBlock);
        let file = tempfile::tempfile().unwrap();
        send_listener(theirs.as_raw_fd(), file.as_raw_fd()).unwrap();
        send_status(theirs.as_raw_fd(), [1, 2, 3, u32::MAX]);
        drop(theirs);
        let Some(StatusMessage::Listener(Some(got))) = receive(ours.as_fd()).unwrap() else { panic!("a descriptor") };
        let inode = |fd: BorrowedFd<'_>| rustix::fs::fstat(fd).unwrap().st_ino;
        assert_eq!(inode(got.as_fd()), inode(file.as_fd()));
        assert!(rustix::io::fcntl_getfd(&got).unwrap().contains(rustix::io::FdFlags::CLOEXEC));
        let Some(StatusMessage::Status(status)) = receive(ours.as_fd()).unwrap() else { panic!("a status") };
        assert_eq!(status, [1, 2, 3, u32::MAX]);
        assert!(receive(ours.as_fd()).unwrap().is_none());
    }
}
