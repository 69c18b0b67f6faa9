//! What a forked child does until it is the command.
//!
//! The process that was forked may have had other threads, which may have held any lock. So nothing here allocates,
//! locks or panics: everything was prepared before.
#![expect(unsafe_code, reason = "between fork and exec there are only bare system calls")]

use std::ffi::{CStr, c_char, c_int};
use std::os::fd::{BorrowedFd, RawFd};
use std::ptr;

use rustix::fs::{Access, Mode, OFlags, access};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, fchdir, ioctl_tiocsctty, setrlimit, setsid, umask};
use rustix::thread::{Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::beneath;
use crate::filter::Filter;

/// Where the child finds what it needs, beside its own 0, 1 and 2. The script stays open in the command.
pub(super) const SCRIPT: RawFd = 3;
pub(super) const STATUS: RawFd = 4;
pub(super) const ROOT: RawFd = 5;
const FIRST_FREE: RawFd = 6;

/// Descriptors of a command, at most.
const OPEN_FILES: u64 = 16_384;

/// Where a child was when something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum Step {
    Session,
    Descriptors,
    Terminal,
    Limits,
    User,
    Directory,
    Filter,
    /// No candidate could be executed; the errno is the one that says most.
    Program,
    /// There is a file, and what it needs to run is missing.
    Interpreter,
    /// A file without a format, and no shell to read it.
    Format,
}

impl Step {
    pub(super) const ALL: [Self; 10] = [
        Self::Session,
        Self::Descriptors,
        Self::Terminal,
        Self::Limits,
        Self::User,
        Self::Directory,
        Self::Filter,
        Self::Program,
        Self::Interpreter,
        Self::Format,
    ];
}

/// The last word of a child: a step and its errno, or [`SEEN`] and bits of `access`; then its uid and gid.
pub(super) type Said = [u32; 4];

/// In place of a step: nothing failed, and this is what the user may do.
pub(super) const SEEN: u32 = u32::MAX;

/// All that a child needs, as pointers and numbers. What they point to outlives the fork.
pub(super) struct Orders<'a> {
    pub(super) stdio: [RawFd; 3],
    pub(super) script: Option<RawFd>,
    pub(super) status: RawFd,
    pub(super) root: RawFd,
    pub(super) terminal: bool,
    pub(super) mark: Option<u64>,
    pub(super) open_files: u64,
    pub(super) user: Option<(Uid, Gid, &'a [Gid])>,
    pub(super) cwd: &'a CStr,
    pub(super) filter: &'a Filter,
    pub(super) then: Then<'a>,
}

/// The last step.
pub(super) enum Then<'a> {
    /// Become a program. Both lists of words end with a null; the second has two words for the shell in place of the
    /// first.
    Execute {
        candidates: &'a [*const c_char],
        words: &'a [*const c_char],
        by_shell: &'a mut [*const c_char],
        environment: &'a [*const c_char],
    },
    /// Say what the user may do in the directory.
    Look,
}

type Failed = (Step, Errno);

/// Never returns: the child becomes the command, or says what failed and is gone.
pub(super) fn run(mut orders: Orders<'_>) -> ! {
    let (what, number) = match prepare(&orders) {
        Err((step, errno)) => (step as u32, errno.raw_os_error()),
        Ok(allowed) => match &mut orders.then {
            Then::Look => (SEEN, allowed),
            Then::Execute { candidates, words, by_shell, environment } => {
                let (step, errno) = execute(candidates, words, by_shell, environment);
                (step as u32, errno.raw_os_error())
            }
        },
    };
    // SAFETY: these calls take numbers and a live array, and `_exit` runs nothing of the forked process.
    unsafe {
        let said: Said = [what, number.cast_unsigned(), libc::getuid(), libc::getgid()];
        libc::write(STATUS, said.as_ptr().cast(), size_of_val(&said));
        libc::_exit(127)
    }
}

/// Everything but the last step. With [`Then::Look`] what the user may do in the directory, as bits of `access`.
fn prepare(orders: &Orders<'_>) -> Result<i32, Failed> {
    place(orders).map_err(|errno| (Step::Descriptors, errno))?;
    setsid().map_err(|errno| (Step::Session, errno))?;
    if orders.terminal {
        // SAFETY: `place` has put the terminal there.
        ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(1) }).map_err(|errno| (Step::Terminal, errno))?;
    }
    plain_signals();
    limits(orders).map_err(|errno| (Step::Limits, errno))?;
    become_user(orders).map_err(|errno| (Step::User, errno))?;
    umask(Mode::from_raw_mode(0o022));
    let looking = matches!(orders.then, Then::Look);
    match enter(orders.cwd) {
        Err(_) if looking => return Ok(0),
        Err(errno) => return Err((Step::Directory, errno)),
        Ok(()) => {}
    }
    if looking {
        return Ok(allowed());
    }
    orders.filter.install().map_err(|error| (Step::Filter, errno_of(error.raw_os_error())))?;
    Ok(0)
}

/// Puts every descriptor where it belongs and closes all others, so that a child which hangs holds no pipe open that is
/// another command's. All of them were above [`FIRST_FREE`], so none is overwritten before it was copied.
fn place(orders: &Orders<'_>) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = orders.stdio;
    for (from, to) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
        copy(from, to, 0)?;
    }
    copy(orders.status, STATUS, libc::O_CLOEXEC)?;
    copy(orders.root, ROOT, libc::O_CLOEXEC)?;
    match orders.script {
        Some(script) => copy(script, SCRIPT, 0)?,
        // SAFETY: closes a number that nothing here owns.
        None => unsafe { _ = libc::close(SCRIPT) },
    }
    // SAFETY: as above, for all that follow.
    if unsafe { libc::syscall(libc::SYS_close_range, FIRST_FREE, u32::MAX, 0) } != 0 {
        // A kernel before 5.9. What this process opened closes itself on exec; this is for what it was given.
        for it in FIRST_FREE..1024 {
            // SAFETY: as above.
            unsafe { libc::close(it) };
        }
    }
    Ok(())
}

fn copy(from: RawFd, to: RawFd, flags: c_int) -> Result<(), Errno> {
    // SAFETY: takes numbers only; what was open as `to` belongs to nothing in this process any more.
    if unsafe { libc::dup3(from, to, flags) } < 0 { Err(last_errno()) } else { Ok(()) }
}

/// A signal that is ignored stays so over exec, and PID 1 is started with whatever the engine likes. The C library has
/// two signals for itself and would pass over them.
fn plain_signals() {
    let default = [0u64; 8];
    for signal in 1..=64 {
        // SAFETY: an action of zeros, longer than the kernel's: the default one.
        unsafe { libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<u64>(), 8) };
    }
    // SAFETY: a set of eight bytes, as long as the kernel's.
    unsafe { libc::syscall(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, default.as_ptr(), ptr::null_mut::<u64>(), 8) };
}

fn limits(orders: &Orders<'_>) -> Result<(), Errno> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::Nofile, both(orders.open_files.min(OPEN_FILES)))?;
    setrlimit(Resource::Core, both(0))?;
    match orders.mark {
        Some(mark) => setrlimit(Resource::Rttime, both(mark)),
        None => Ok(()),
    }
}

fn become_user(orders: &Orders<'_>) -> Result<(), Errno> {
    if let Some((uid, gid, groups)) = orders.user {
        set_thread_groups(groups)?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
    }
    set_no_new_privs(true)
}

fn enter(cwd: &CStr) -> Result<(), Errno> {
    // SAFETY: `place` has put the root there.
    let root = unsafe { BorrowedFd::borrow_raw(ROOT) };
    fchdir(beneath::open(root, cwd, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?)
}

fn allowed() -> i32 {
    let can = |mode: Access| if access(c".", mode).is_ok() { mode.bits().cast_signed() } else { 0 };
    can(Access::READ_OK | Access::EXEC_OK) | can(Access::WRITE_OK | Access::EXEC_OK)
}

/// Tries the candidates as `execvp` does, and says why none was it.
fn execute(
    candidates: &[*const c_char],
    words: &[*const c_char],
    by_shell: &mut [*const c_char],
    environment: &[*const c_char],
) -> Failed {
    let mut why = (Step::Program, Errno::NOENT);
    for candidate in candidates {
        let errno = exec(*candidate, words, environment);
        match errno {
            Errno::NOENT | Errno::NOTDIR if why.1 == Errno::NOENT && is_there(*candidate) => {
                why = (Step::Interpreter, Errno::NOENT);
            }
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::STALE | Errno::TIMEDOUT | Errno::NAMETOOLONG => {}
            Errno::ACCESS => why = (Step::Program, errno),
            Errno::NOEXEC => {
                by_shell[1] = *candidate;
                exec(by_shell[0], by_shell, environment);
                return (Step::Format, errno);
            }
            _ => return (Step::Program, errno),
        }
    }
    why
}

fn exec(file: *const c_char, words: &[*const c_char], environment: &[*const c_char]) -> Errno {
    // SAFETY: a string that ends with a NUL, and two lists of such strings that end with a null, all alive.
    unsafe { libc::execve(file, words.as_ptr(), environment.as_ptr()) };
    last_errno()
}

fn is_there(file: *const c_char) -> bool {
    // SAFETY: a string that ends with a NUL.
    unsafe { libc::access(file, libc::F_OK) == 0 }
}

fn last_errno() -> Errno {
    // SAFETY: the address is that of this thread's own errno.
    errno_of(Some(unsafe { *libc::__errno_location() }))
}

fn errno_of(raw: Option<i32>) -> Errno {
    Errno::from_raw_os_error(raw.unwrap_or(libc::EIO))
}
