//! System calls without a safe wrapper elsewhere.
#![expect(unsafe_code, reason = "system calls without a safe wrapper")]

use std::ffi::CStr;
use std::os::fd::{AsFd, AsRawFd};

use rustix::io::{Errno, Result};

/// `struct mount_attr` of `mount_setattr(2)`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct MountAttributes {
    pub(super) set: u64,
    pub(super) clear: u64,
    pub(super) propagation: u64,
    pub(super) user_namespace: u64,
}

pub(super) const ATTR_IDMAP: u64 = 0x0010_0000;

/// Changes the attributes of the mount behind a descriptor, and of those below it.
pub(super) fn mount_setattr(mount: impl AsFd, recursive: bool, attributes: &MountAttributes) -> Result<()> {
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    let size = size_of::<MountAttributes>();
    // SAFETY: the descriptor is open, the path is an empty C string, and the struct has the size that is given.
    result(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            mount.as_fd().as_raw_fd(),
            c"".as_ptr(),
            flags,
            std::ptr::from_ref(attributes),
            size,
        )
    })
}

/// Closes all descriptors from `first` on. Only for a child with descriptors of its own.
pub(super) fn close_from(first: u32) -> Result<()> {
    // SAFETY: takes numbers only, and nothing of this child uses a descriptor afterwards.
    result(unsafe { libc::syscall(libc::SYS_close_range, first, u32::MAX, 0) })
}

/// Installs a filter of system calls.
pub(crate) fn install_filter(program: &[libc::sock_filter]) -> Result<()> {
    let length = u16::try_from(program.len()).map_err(|_| Errno::INVAL)?;
    let filter = libc::sock_fprog { len: length, filter: program.as_ptr().cast_mut() };
    // SAFETY: the kernel reads `len` instructions, which lie in `program`.
    result(unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const filter) })
}

/// Brings the loopback device of this network namespace up.
pub(super) fn loopback_up() -> Result<()> {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};
    let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    // SAFETY: all-zero bytes are a valid `ifreq`.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = from.cast_signed();
    }
    request.ifr_ifru.ifru_flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    // SAFETY: the request is an initialised `ifreq`, which the kernel only reads.
    result(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS as libc::Ioctl, &raw const request) }.into())
}

/// Replaces the program of this process. Returns only if that fails.
pub(super) fn execve(path: &CStr, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> Errno {
    debug_assert!(argv.last().is_some_and(|it| it.is_null()) && env.last().is_some_and(|it| it.is_null()));
    // SAFETY: both lists end with a null pointer, and their strings outlive the call.
    match result(unsafe { libc::syscall(libc::SYS_execve, path.as_ptr(), argv.as_ptr(), env.as_ptr()) }) {
        Ok(()) => Errno::INVAL,
        Err(errno) => errno,
    }
}

/// The same for the file of a descriptor.
pub(super) fn execute_file(number: i32, argv: &[*const libc::c_char], env: &[*const libc::c_char]) -> Errno {
    debug_assert!(argv.last().is_some_and(|it| it.is_null()) && env.last().is_some_and(|it| it.is_null()));
    let (path, flags) = (c"".as_ptr(), libc::AT_EMPTY_PATH);
    // SAFETY: as for `execve`; the path is an empty C string.
    match result(unsafe { libc::syscall(libc::SYS_execveat, number, path, argv.as_ptr(), env.as_ptr(), flags) }) {
        Ok(()) => Errno::INVAL,
        Err(errno) => errno,
    }
}

/// Ends this process without running anything else.
pub(super) fn exit(code: i32) -> ! {
    // SAFETY: ends the process.
    unsafe { libc::_exit(code) }
}

/// Makes the kernel kill this process when its parent, with the pid `parent`, dies. A later change of privileges cancels
/// that.
pub(super) fn die_with_parent(parent: usize) {
    // SAFETY: takes and gives numbers only, and does not fail: so it sets no `errno`, which a child may share.
    let present = unsafe {
        libc::syscall(libc::SYS_prctl, libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0);
        libc::syscall(libc::SYS_getppid)
    };
    // The parent may have died before the call.
    if usize::try_from(present) != Ok(parent) {
        exit(1);
    }
}

/// Unblocks all signals of this thread.
pub(super) fn unblock_signals() {
    // SAFETY: an all-zero set is valid, and only read.
    unsafe {
        let empty: libc::sigset_t = std::mem::zeroed();
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const empty,
            std::ptr::null_mut::<libc::c_void>(),
            8usize,
        );
    }
}

/// Blocks all signals of this thread until it is dropped.
#[derive(Debug)]
pub(super) struct BlockedSignals(libc::sigset_t);

impl BlockedSignals {
    pub(super) fn new() -> Self {
        // SAFETY: both sets are owned and initialised by the calls.
        unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = (std::mem::zeroed(), std::mem::zeroed());
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            Self(before)
        }
    }
}

impl Drop for BlockedSignals {
    fn drop(&mut self) {
        // SAFETY: the set is one that the kernel gave.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

fn result(returned: libc::c_long) -> Result<()> {
    if returned >= 0 {
        return Ok(());
    }
    Err(Errno::from_raw_os_error(std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO)))
}
