//! The child's code between its start and the execution of the command.
//!
//! The child shares the memory of its parent and runs concurrently, on its own stack but with the thread pointer of the
//! thread that created it. So this code must not allocate, lock, panic or touch `errno`, as functions of the C library do:
//! everything is prepared before, and all calls are raw system calls (those of rustix are).
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
use rustix::thread::{Gid, Uid, set_no_new_privs, set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::program::Program;
use super::status_channel::{ChildStatus, send_listener, send_status};
use crate::os::seccomp::Filter;
use crate::os::{openat2, raw_syscall};

/// Numbers of the descriptors that the child needs, besides 0, 1 and 2. The script stays open in the command.
pub(super) const SCRIPT: RawFd = 3;
pub(super) const STATUS: RawFd = 4;
pub(super) const ROOT: RawFd = 5;
pub(super) const FIRST_FREE: RawFd = 6;

/// Most open files of a command.
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
    /// The file exists, but its interpreter or loader is missing.
    Interpreter,
    /// The file has no known format, and there is no shell to run it.
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

/// Sent instead of a stage: there was no failure, and the value is the user's access.
pub(super) const ACCESS_CHECKED: u32 = u32::MAX;

/// The arguments of a child. The child borrows them and drops none.
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
    /// Whether other processes could read the memory before.
    pub(super) dumpable: bool,
    pub(super) cwd: CString,
    pub(super) filter: Arc<Filter>,
    pub(super) then: ChildAction,
}

/// What the child does after its preparation.
#[derive(Debug)]
pub(super) enum ChildAction {
    /// Execute a program.
    Execute(Execution),
    /// Report the user's access to the directory.
    CheckAccess,
}

/// A program, and pointers to its strings. The lists end with a null; `by_shell` begins with two arguments for the shell
/// instead of the first argument.
#[derive(Debug)]
pub(super) struct Execution {
    pub(super) program: Program,
    pub(super) candidates: Vec<*const c_char>,
    pub(super) argv: Vec<*const c_char>,
    pub(super) by_shell: Vec<*const c_char>,
    pub(super) environment: Vec<*const c_char>,
}

impl ChildAction {
    /// The file to open as [`SCRIPT`].
    pub(super) fn script(&self) -> Option<&OwnedFd> {
        match self {
            Self::Execute(execution) => execution.program.script.as_ref(),
            Self::CheckAccess => None,
        }
    }
}

// SAFETY: the pointers refer to strings that `program` owns.
unsafe impl Send for Execution {}

type SpawnFailure = (SpawnStage, Errno);

/// Never returns: the child executes the command, or reports the failure and exits.
pub(super) fn run(args: &mut ChildArgs) -> ! {
    let (what, number) = match prepare(args) {
        Err((step, errno)) => (step as u32, errno.raw_os_error()),
        Ok(allowed) => match &mut args.then {
            ChildAction::CheckAccess => (ACCESS_CHECKED, allowed),
            ChildAction::Execute(execution) => {
                let (step, errno) = execute(execution);
                (step as u32, errno.raw_os_error())
            }
        },
    };
    let status: ChildStatus = [what, number.cast_unsigned(), getuid().as_raw(), getgid().as_raw()];
    send_status(STATUS, status);
    loop {
        // SAFETY: it ends only this process.
        let _ = unsafe { raw_syscall::call(libc::SYS_exit_group, [127, 0, 0, 0, 0]) };
    }
}

/// Performs everything except the last step. With [`ChildAction::CheckAccess`] it returns the user's access to the directory, as
/// bits of `access`.
fn prepare(args: &ChildArgs) -> Result<i32, SpawnFailure> {
    place(args).map_err(|errno| (SpawnStage::Descriptors, errno))?;
    raw_syscall::setsid().map_err(|errno| (SpawnStage::Session, errno))?;
    if args.terminal {
        // SAFETY: `place` has duplicated the terminal to this number.
        ioctl_tiocsctty(unsafe { BorrowedFd::borrow_raw(1) }).map_err(|errno| (SpawnStage::Terminal, errno))?;
    }
    plain_actions();
    limits(args).map_err(|errno| (SpawnStage::Limits, errno))?;
    become_user(args).map_err(|errno| (SpawnStage::User, errno))?;
    umask(Mode::from_raw_mode(0o022));
    let is_check = matches!(args.then, ChildAction::CheckAccess);
    match enter(&args.cwd) {
        Err(_) if is_check => return Ok(0),
        Err(errno) => return Err((SpawnStage::Directory, errno)),
        Ok(()) => {}
    }
    if is_check {
        return Ok(allowed_access());
    }
    let installed = args.filter.install().and_then(|listener| match listener {
        Some(listener) => send_listener(STATUS, listener),
        None => Ok(()),
    });
    installed.map_err(|errno| (SpawnStage::Filter, errno))?;
    Ok(0)
}

/// Moves every descriptor to its number and closes all others, so that a child which hangs holds no pipe of another
/// command open. All sources are at least [`FIRST_FREE`], so none is overwritten before it is copied.
fn place(args: &ChildArgs) -> Result<(), Errno> {
    let [stdin, stdout, stderr] = args.stdio;
    for (from, to) in [(stdin, 0), (stdout, 1), (stderr, 2)] {
        copy(from, to, 0)?;
    }
    copy(args.status, STATUS, libc::O_CLOEXEC)?;
    copy(args.root, ROOT, libc::O_CLOEXEC)?;
    match args.script {
        Some(script) => copy(script, SCRIPT, 0)?,
        None => close(SCRIPT),
    }
    // SAFETY: numbers only, and the descriptors are this process's own.
    if unsafe { raw_syscall::call(libc::SYS_close_range, [FIRST_FREE as usize, u32::MAX as usize, 0, 0, 0]) }.is_err() {
        // A kernel before 5.9. The guest's own descriptors are closed on exec; this closes inherited ones.
        (FIRST_FREE..1024).for_each(close);
    }
    Ok(())
}

/// Errors are ignored: the descriptor may not be open.
fn close(fd: RawFd) {
    // SAFETY: no code in this process uses the number any more; the table of descriptors is not shared.
    let _ = unsafe { raw_syscall::call(libc::SYS_close, [fd as usize, 0, 0, 0, 0]) };
}

fn copy(from: RawFd, to: RawFd, flags: c_int) -> Result<(), Errno> {
    // SAFETY: as above.
    unsafe { raw_syscall::call(libc::SYS_dup3, [from as usize, to as usize, flags as usize, 0, 0]) }.map(drop)
}

/// Exec retains ignored signals, and the engine may start PID 1 with any. Must be called before signals are unblocked: the
/// handlers are those of the process whose memory this is.
pub(super) fn plain_actions() {
    let default = [0u64; 8];
    let zeros = default.as_ptr() as usize;
    for signal in 1..=64 {
        // SAFETY: an action of zeros, longer than the kernel's, is the default action. Actions are not shared.
        let _ = unsafe { raw_syscall::call(libc::SYS_rt_sigaction, [signal, zeros, 0, 8, 0]) };
    }
}

/// Must be the last call before exec: a signal that dumps core must not arrive while the kernel considers the memory the
/// user's.
fn unblock_signals() {
    let none = 0u64;
    let set = (&raw const none) as usize;
    // SAFETY: the set has eight bytes, like the kernel's.
    let _ = unsafe { raw_syscall::call(libc::SYS_rt_sigprocmask, [libc::SIG_SETMASK as usize, set, 0, 8, 0]) };
}

fn limits(args: &ChildArgs) -> Result<(), Errno> {
    let both = |value| Rlimit { current: Some(value), maximum: Some(value) };
    setrlimit(Resource::Nofile, both(args.open_files.min(OPEN_FILES)))?;
    setrlimit(Resource::Core, both(0))?;
    match args.mark {
        Some(mark) => setrlimit(Resource::Rttime, both(mark)),
        None => Ok(()),
    }
}

fn become_user(args: &ChildArgs) -> Result<(), Errno> {
    if let Some((uid, gid, groups)) = &args.user {
        match set_thread_groups(groups) {
            // A user namespace with one id forbids it: root retains its current groups.
            Err(Errno::PERM) if uid.is_root() => {}
            done => done?,
        }
        set_thread_res_gid(*gid, *gid, *gid)?;
        set_thread_res_uid(*uid, *uid, *uid)?;
        // The kernel has just reset who may read the memory, which is shared with the parent.
        let behavior = if args.dumpable { DumpableBehavior::Dumpable } else { DumpableBehavior::NotDumpable };
        set_dumpable_behavior(behavior)?;
    }
    set_no_new_privs(true)
}

fn enter(cwd: &CStr) -> Result<(), Errno> {
    // SAFETY: `place` has duplicated the root directory to this number.
    let root = unsafe { BorrowedFd::borrow_raw(ROOT) };
    let opened = openat2::open(root, cwd, OFlags::PATH | OFlags::DIRECTORY, Mode::empty())?.into_raw_fd();
    // SAFETY: it was just opened. Exec closes it; dropping it would call a function of the C library.
    fchdir(unsafe { BorrowedFd::borrow_raw(opened) })
}

fn allowed_access() -> i32 {
    let can = |mode: Access| if access(c".", mode).is_ok() { mode.bits().cast_signed() } else { 0 };
    can(Access::READ_OK | Access::EXEC_OK) | can(Access::WRITE_OK | Access::EXEC_OK)
}

/// Tries the candidates like `execvp`, and returns the most specific failure.
pub(super) fn execute(execution: &mut Execution) -> SpawnFailure {
    let Execution { candidates, argv, by_shell, environment, .. } = execution;
    let mut why = (SpawnStage::Program, Errno::NOENT);
    unblock_signals();
    for candidate in &*candidates {
        let errno = exec(*candidate, argv, environment);
        match errno {
            Errno::NOENT | Errno::NOTDIR if why.1 == Errno::NOENT && exists(*candidate) => {
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

fn exec(file: *const c_char, argv: &[*const c_char], environment: &[*const c_char]) -> Errno {
    let arguments = [file as usize, argv.as_ptr() as usize, environment.as_ptr() as usize, 0, 0];
    // SAFETY: a string that ends with a NUL, and two lists of such strings that end with a null; all of them are alive.
    unsafe { raw_syscall::call(libc::SYS_execve, arguments) }.err().unwrap_or(Errno::IO)
}

fn exists(file: *const c_char) -> bool {
    let cwd = libc::AT_FDCWD as usize;
    // SAFETY: a string that ends with a NUL.
    unsafe { raw_syscall::call(libc::SYS_faccessat, [cwd, file as usize, libc::F_OK as usize, 0, 0]) }.is_ok()
}
