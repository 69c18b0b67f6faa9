//! The child's code between its start and the execution of the command.
//!
//! It shares the memory of its parent and runs beside it, on a stack of its own but with the thread pointer of the
//! thread that created it. So nothing here allocates, locks, panics or touches `errno`, as functions of the C library
//! do: everything was prepared before, and all calls are bare ones (those of rustix are).
#![expect(unsafe_code, reason = "between its start and exec there are only bare system calls")]

use std::ffi::{CStr, CString, c_char, c_int};
use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use rustix::fs::{Access, Mode, OFlags, access};
use rustix::io::Errno;
use rustix::process::{
    DumpableBehavior, Resource, Rlimit, fchdir, getgid, getuid, ioctl_tiocsctty, set_dumpable_behavior, setrlimit,
    umask,
};
use rustix::thread::{Gid, Uid};
use rustix::thread::{set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::program::Program;
use super::status_channel::{ChildStatus, say_last, say_listener};
use crate::os::seccomp::Filter;
use crate::os::{openat2, raw_syscall};

/// The number of a descriptor that the child needs, beside its own 0, 1 and 2. The script stays open in the command.
pub(super) const SCRIPT: RawFd = 3;
pub(super) const STATUS: RawFd = 4;
pub(super) const ROOT: RawFd = 5;
pub(super) const FIRST_FREE: RawFd = 6;

/// Descriptors of a command, at most.
const OPEN_FILES: u64 = 16_384;

/// The stage at which a child failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum SpawnStage {
    Session,
    Descriptors,
    Terminal,
    Limits,
    User,
    Directory,
    Filter,
    /// No candidate could be executed; the errno is the most specific one.
    Program,
    /// There is a file, and what it needs to run is missing.
    Interpreter,
    /// A file without a format, and no shell to read it.
    Format,
}

impl SpawnStage {
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

/// In place of a stage: no failure, and the value has the user's access.
pub(super) const SEEN: u32 = u32::MAX;

/// The arguments of a child. They are lent to the child, which drops nothing of them.
#[derive(Debug)]
pub(super) struct ChildArgs {
    pub(super) stdio: [RawFd; 3],
    pub(super) script: Option<RawFd>,
    pub(super) status: RawFd,
    pub(super) root: RawFd,
    pub(super) terminal: bool,
    pub(super) mark: Option<u64>,
    pub(super) open_files: u64,
    pub(super) user: Option<(Uid, Gid, Vec<Gid>)>,
    /// Whether the memory could be read by others before.
    pub(super) dumpable: bool,
    pub(super) cwd: CString,
    pub(super) filter: Arc<Filter>,
    pub(super) then: ChildAction,
}

/// The last step.
#[derive(Debug)]
pub(super) enum ChildAction {
    /// Become a program.
    Execute(Execution),
    /// Say what the user may do in the directory.
    Look,
}

/// A program, and pointers to its strings. Lists of words end with a null; `by_shell` has two words for the shell in
/// place of the first.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) program: Program,
    pub(super) candidates: Vec<*const c_char>,
    pub(super) words: Vec<*const c_char>,
    pub(super) by_shell: Vec<*const c_char>,
    pub(super) environment: Vec<*const c_char>,
}

impl ChildAction {
    /// The file to open as [`SCRIPT`].
    pub(super) fn script(&self) -> Option<&OwnedFd> {
        match self {
            Self::Execute(it) => it.program.script.as_ref(),
            Self::Look => None,
        }
    }
}

// SAFETY: the pointers are to strings that the program beside them owns.
unsafe impl Send for Execution {}

type SpawnFailure = (SpawnStage, Errno);

/// Never returns: the child becomes the command, or reports the failure and exits.
pub(super) fn run(orders: &mut ChildArgs) -> ! {
    let (what, number) = match prepare(orders) {
        Err((step, errno)) => (step as u32, errno.raw_os_error()),
        Ok(allowed) => match &mut orders.then {
            ChildAction::Look => (SEEN, allowed),
            ChildAction::Execute(it) => {
                let (step, errno) = execute(it);
                (step as u32, errno.raw_os_error())
            }
        },
    };
    let said: ChildStatus = [what, number.cast_unsigned(), getuid().as_raw(), getgid().as_raw()];
    say_last(STATUS, said);
    loop {
        // SAFETY: the end of this process alone.
        let _ = unsafe { raw_syscall::call(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// Everything but the last step. With [`ChildAction::Look`] what the user may do in the directory, as bits of `access`.
fn prepare(orders: &ChildArgs) -> Result<i32, SpawnFailure> {
    place(orders).map_err(|errno| (SpawnStage::Descriptors, errno))?;
    raw_syscall::setsid().map_err(|errno| (SpawnStage::Session, errno))?;
    if orders.terminal {
        // SAFETY: `place` has put the terminal there.
        ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(1) }).map_err(|errno| (SpawnStage::Terminal, errno))?;
    }
    plain_actions();
    limits(orders).map_err(|errno| (SpawnStage::Limits, errno))?;
    become_user(orders).map_err(|errno| (SpawnStage::User, errno))?;
    umask(Mode::from_raw_mode(0o022));
    let looking = matches!(orders.then, ChildAction::Look);
    match enter(&orders.cwd) {
        Err(_) if looking => return Ok(0),
        Err(errno) => return Err((SpawnStage::Directory, errno)),
        Ok(()) => {}
    }
    if looking {
        return Ok(allowed());
    }
    let installed = orders.filter.install().and_then(|listener| match listener {
        Some(listener) => say_listener(STATUS, listener),
        None => Ok(()),
    });
    installed.map_err(|errno| (SpawnStage::Filter, errno))?;
    Ok(0)
}

/// Puts every descriptor where it belongs and closes all others, so that a child which hangs holds no pipe open that is
/// another command's. All of them were above [`FIRST_FREE`], so none is overwritten before it was copied.
fn place(orders: &ChildArgs) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = orders.stdio;
    for (from, to) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
        copy(from, to, 0)?;
    }
    copy(orders.status, STATUS, libc::O_CLOEXEC)?;
    copy(orders.root, ROOT, libc::O_CLOEXEC)?;
    match orders.script {
        Some(script) => copy(script, SCRIPT, 0)?,
        None => close(SCRIPT),
    }
    // SAFETY: numbers only, and the descriptors are this process's own.
    if unsafe { raw_syscall::call(libc::SYS_close_range, [FIRST_FREE as usize, u32::MAX as usize, 0, 0, 0]) }.is_err() {
        // A kernel before 5.9. What this process opened closes itself on exec; this is for what it was given.
        (FIRST_FREE..1024).for_each(close);
    }
    Ok(())
}

/// Whether it was open or not.
fn close(fd: RawFd) {
    // SAFETY: a number that nothing in this process owns any more; the table of descriptors is not shared.
    let _ = unsafe { raw_syscall::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0]) };
}

fn copy(from: RawFd, to: RawFd, flags: c_int) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe { raw_syscall::call(libc::SYS_dup3, [from as usize, to as usize, flags as usize, 0, 0]) }.map(drop)
}

/// A signal that is ignored stays so over exec, and PID 1 is started with whatever the engine likes. Handlers must go
/// before anything is unblocked: they are those of the process whose memory this is.
pub(super) fn plain_actions() {
    let default = [0u64; 8];
    let zeros = default.as_ptr() as usize;
    for signal in 1..=64 {
        // SAFETY: an action of zeros, longer than the kernel's: the default one. Actions are not shared.
        let _ = unsafe { raw_syscall::call(libc::SYS_rt_sigaction, [signal, zeros, 0, 8, 0]) };
    }
}

/// The last thing before exec: one that dumps core must not come while the kernel takes the memory for the user's.
fn unblock_signals() {
    let none = 0u64;
    let set = (&raw const none) as usize;
    // SAFETY: a set of eight bytes, as long as the kernel's.
    let _ = unsafe { raw_syscall::call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, set, 0, 8, 0]) };
}

fn limits(orders: &ChildArgs) -> Result<(), Errno> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::Nofile, both(orders.open_files.min(OPEN_FILES)))?;
    setrlimit(Resource::Core, both(0))?;
    match orders.mark {
        Some(mark) => setrlimit(Resource::Rttime, both(mark)),
        None => Ok(()),
    }
}

fn become_user(orders: &ChildArgs) -> Result<(), Errno> {
    if let Some((uid, gid, groups)) = &orders.user {
        match set_thread_groups(groups) {
            // A user namespace with one id forbids it: root keeps the groups that it has here.
            Err(Errno::PERM) if uid.is_root() => {}
            done => done?,
        }
        set_thread_res_gid(*gid, *gid, *gid)?;
        set_thread_res_uid(*uid, *uid, *uid)?;
        // The kernel has just decided anew who may read the memory, which is shared with the parent.
        let whose = if orders.dumpable { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
        set_dumpable_behavior(whose)?;
    }
    set_no_new_privs(true)
}

fn enter(cwd: &CStr) -> Result<(), Errno> {
    // SAFETY: `place` has put the root there.
    let root = unsafe { BorrowedFd::borrow_raw(ROOT) };
    let opened = openat2::open(root, cwd, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?.into_raw_fd();
    // SAFETY: it was opened just now. Exec closes it; what closes it on a drop is a function of the C library.
    fchdir(unsafe { BorrowedFd::borrow_raw(opened) })
}

fn allowed() -> i32 {
    let can = |mode: Access| if access(c".", mode).is_ok() { mode.bits().cast_signed() } else { 0 };
    can(Access::READ_OK | Access::EXEC_OK) | can(Access::WRITE_OK | Access::EXEC_OK)
}

/// Tries the candidates as `execvp` does, and returns the most specific failure.
pub(super) fn execute(what: &mut Execution) -> SpawnFailure {
    let Execution { candidates, words, by_shell, environment, .. } = what;
    let mut why = (SpawnStage::Program, Errno::NOENT);
    unblock_signals();
    for candidate in &*candidates {
        let errno = exec(*candidate, words, environment);
        match errno {
            Errno::NOENT | Errno::NOTDIR if why.1 == Errno::NOENT && is_there(*candidate) => {
                why = (SpawnStage::Interpreter, Errno::NOENT);
            }
            Errno::NOENT | Errno::NOTDIR | Errno::NODEV | Errno::STALE | Errno::TIMEDOUT | Errno::NAMETOOLONG => {}
            Errno::ACCESS => why = (SpawnStage::Program, errno),
            Errno::NOEXEC => {
                by_shell[1] = *candidate;
                exec(by_shell[0], by_shell, environment);
                return (SpawnStage::Format, errno);
            }
            _ => return (SpawnStage::Program, errno),
        }
    }
    why
}

fn exec(file: *const c_char, words: &[*const c_char], environment: &[*const c_char]) -> Errno {
    let arguments = [file as usize, words.as_ptr() as usize, environment.as_ptr() as usize, 0, 0];
    // SAFETY: a string that ends with a NUL, and two lists of such strings that end with a null, all alive.
    unsafe { raw_syscall::call(libc::SYS_execve, arguments) }.err().unwrap_or(Errno::IO)
}

fn is_there(file: *const c_char) -> bool {
    let here = libc::AT_FDCWD as usize;
    // SAFETY: a string that ends with a NUL.
    unsafe { raw_syscall::call(libc::SYS_faccessat, [here, file as usize, libc::F_OK as usize, 0, 0]) }.is_ok()
}
