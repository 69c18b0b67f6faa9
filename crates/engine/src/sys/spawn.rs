//! Starts the first process of a container.
//!
//! Two children, one after the other, share the memory of the caller, whose thread is suspended until the second executes
//! its program. So no page table is copied, and a child reports a failure in a variable. The first child enters the control
//! groups and the user namespace. It creates the second one as a child of the caller, so that its namespaces belong to that
//! user namespace.
#![expect(unsafe_code, reason = "clone, and what its children share with their parent")]

use std::ffi::CStr;
use std::os::fd::{AsFd, FromRawFd, OwnedFd};

use rustix::fs::{Access, AtFlags, CWD, FileType, accessat, statat};
use rustix::io::{Errno, write};
use rustix::process::{Pid, WaitId, WaitIdOptions, waitid};

use super::caller::leave_caller;
use super::child::{TRAMPOLINE_DESCRIPTOR, run_step};
use super::dumpable::NotDumpable;
use super::enter::{enter, last_error};
use super::kernel::{BlockedSignals, execute_file, execve, exit, unblock_signals};
use super::plan::{ChildPlan, Namespaces, Step};
use super::spawn_watch::SpawnedPidfd;

/// Bytes of the stack of each child.
const STACK: usize = 256 << 10;

/// The process that became PID 1.
#[derive(Debug)]
pub(crate) struct FirstProcess {
    pub(crate) pid: Pid,
    pub(crate) pidfd: OwnedFd,
}

/// The step at which a child failed.
#[derive(Debug, thiserror::Error)]
#[error("cannot {what}: {errno}")]
pub(crate) struct SpawnError {
    pub(crate) at: FailedAt,
    pub(crate) what: String,
    pub(crate) errno: Errno,
}

/// Where a child failed, as far as callers need to distinguish it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FailedAt {
    WorkingDirectory,
    Program,
    Elsewhere,
}

/// The place of a failure.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Groups,
    UserNamespace,
    Namespaces,
    Clone,
    Step(usize),
    Execute,
}

/// The memory that the children read, and in which they report results.
struct ChildMemory<'a> {
    plan: &'a ChildPlan,
    argv: Vec<*const libc::c_char>,
    /// For the trampoline: an empty argument, the path of the program, and its arguments.
    trampoline_argv: Vec<*const libc::c_char>,
    env: Vec<*const libc::c_char>,
    second_stack: ChildStack,
    pid: libc::pid_t,
    pidfd: &'a SpawnedPidfd,
    failure: Option<(Stage, Errno)>,
}

/// Runs a plan until its program is executed. Blocks for the few milliseconds that it takes.
///
/// # Errors
/// The step that failed. No process is left then.
pub(crate) fn spawn(plan: &ChildPlan) -> Result<FirstProcess, SpawnError> {
    spawn_watched(plan, &SpawnedPidfd::new())
}

/// The same for a process that another thread may kill until its program is executed. It then counts as started and killed.
///
/// # Errors
/// Those of [`spawn`].
pub(crate) fn spawn_watched(plan: &ChildPlan, watched: &SpawnedPidfd) -> Result<FirstProcess, SpawnError> {
    let pointers =
        |words: &[std::ffi::CString]| words.iter().map(|it| it.as_ptr()).chain([std::ptr::null()]).collect::<Vec<_>>();
    let argv = pointers(&plan.program.argv);
    let mut shared = ChildMemory {
        plan,
        trampoline_argv: [c"".as_ptr(), std::ptr::null()].into_iter().chain(argv.iter().copied()).collect(),
        argv,
        env: pointers(&plan.program.env),
        second_stack: ChildStack::new(),
        pid: 0,
        pidfd: watched,
        failure: None,
    };
    let mut stack = ChildStack::new();
    // If the child enters a running container, its processes must not read the memory that the child shares with its parent.
    let not_dumpable = NotDumpable::new();
    let signals = BlockedSignals::new();
    let flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_FILES | libc::SIGCHLD;
    // SAFETY: the child runs `first` on a stack of its own, and this thread waits until it has exited (`CLONE_VFORK`), so
    // `shared` outlives it and is used by one process at a time.
    let first = unsafe { libc::clone(first, stack.top(), flags, (&raw mut shared).cast()) };
    let failed_clone = (first < 0).then(last_error);
    drop(signals);
    drop(not_dumpable);
    if let Some(pid) = Pid::from_raw(first.max(0)) {
        reap(WaitId::Pid(pid));
    }
    if let Some(errno) = failed_clone {
        return Err(failure_at(plan, Stage::Clone, errno));
    }
    // SAFETY: the kernel opened it for this process, which owns it alone.
    let pidfd = watched.take().map(|it| unsafe { OwnedFd::from_raw_fd(it) });
    match (shared.failure, pidfd, Pid::from_raw(shared.pid)) {
        (None, Some(pidfd), Some(pid)) => Ok(FirstProcess { pid, pidfd }),
        (failure, pidfd, _) => {
            if let Some(pidfd) = pidfd {
                reap(WaitId::PidFd(pidfd.as_fd()));
            }
            let (stage, errno) = failure.unwrap_or((Stage::Clone, Errno::SRCH));
            Err(failure_at(plan, stage, errno))
        }
    }
}

fn reap(process: WaitId<'_>) {
    let _ = waitid(process, WaitIdOptions::EXITED);
}

fn failure_at(plan: &ChildPlan, stage: Stage, errno: Errno) -> SpawnError {
    let step = |index| plan.steps.get(index);
    let at = match stage {
        Stage::Step(index) if matches!(step(index), Some(Step::WorkingDirectory(_))) => FailedAt::WorkingDirectory,
        Stage::Execute => FailedAt::Program,
        _ => FailedAt::Elsewhere,
    };
    let what = match stage {
        Stage::Groups => "enter the control groups".to_owned(),
        Stage::UserNamespace => "enter the user namespace".to_owned(),
        Stage::Namespaces => "enter the namespaces of the container".to_owned(),
        Stage::Clone => "create the process with its namespaces".to_owned(),
        Stage::Step(index) => step(index).map_or_else(String::new, Step::to_string),
        Stage::Execute => {
            let program = plan.program.argv.first().map_or_else(String::new, |it| it.to_string_lossy().into_owned());
            format!("execute `{program}`")
        }
    };
    SpawnError { at, what, errno }
}

extern "C" fn first(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: `spawn` gave a pointer to its `Shared`, and waits.
    let shared = unsafe { &mut *shared.cast::<ChildMemory<'_>>() };
    leave_caller(&shared.plan.steps);
    if let Err(failure) = enter_places(shared.plan) {
        shared.failure = Some(failure);
        exit(1);
    }
    let mut flags = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PARENT | libc::CLONE_PIDFD | libc::SIGCHLD;
    flags |= match shared.plan.namespaces {
        Namespaces::New { network } => NEW_NAMESPACES | if network { libc::CLONE_NEWNET } else { 0 },
        Namespaces::Of { .. } => 0,
    };
    let (stack, pidfd) = (shared.second_stack.top(), shared.pidfd.as_ptr());
    // SAFETY: as in `spawn`: the second child has a stack of its own, and this process waits for its `execve` or exit.
    let pid = unsafe { libc::clone(second, stack, flags, std::ptr::from_mut(shared).cast(), pidfd) };
    if pid < 0 {
        shared.failure = Some((Stage::Clone, last_error()));
        // At a limit of processes the kernel has written the number of a descriptor by then, and closed that.
        shared.pidfd.forget();
    } else {
        shared.pid = pid;
    }
    exit(0)
}

/// The namespaces that every container has of its own. That of control groups is created last, once it is in its group.
const NEW_NAMESPACES: libc::c_int = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;

fn enter_places(plan: &ChildPlan) -> Result<(), (Stage, Errno)> {
    for group in &plan.groups {
        write(group, b"0").map_err(|errno| (Stage::Groups, errno))?;
    }
    if let Some(namespace) = &plan.user_namespace {
        enter(namespace.as_fd(), libc::CLONE_NEWUSER).map_err(|errno| (Stage::UserNamespace, errno))?;
    }
    match &plan.namespaces {
        Namespaces::Of { process, kinds } => enter(process.as_fd(), *kinds).map_err(|errno| (Stage::Namespaces, errno)),
        Namespaces::New { .. } => Ok(()),
    }
}

extern "C" fn second(shared: *mut libc::c_void) -> libc::c_int {
    // SAFETY: the first child gave the pointer that it got, and waits.
    let shared = unsafe { &mut *shared.cast::<ChildMemory<'_>>() };
    let failure = become_program(shared);
    shared.failure = Some(failure);
    exit(127)
}

/// Executes the remaining steps and the program. Returns only if that failed.
fn become_program(shared: &mut ChildMemory<'_>) -> (Stage, Errno) {
    let plan = shared.plan;
    for (index, step) in plan.steps.iter().enumerate() {
        if let Err(errno) = run_step(step) {
            return (Stage::Step(index), errno);
        }
    }
    unblock_signals();
    let has_trampoline = plan.steps.iter().any(|it| matches!(it, Step::Trampoline(_)));
    let mut failure = Errno::NOENT;
    for path in &plan.program.paths {
        let failed =
            if has_trampoline { execute_by_trampoline(shared, path) } else { execve(path, &shared.argv, &shared.env) };
        match failed {
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => failure = Errno::ACCESS,
            other => return (Stage::Execute, other),
        }
    }
    (Stage::Execute, failure)
}

/// Executes the program by the trampoline. The trampoline cannot report a failure to the parent, so the program is checked
/// first.
fn execute_by_trampoline(shared: &mut ChildMemory<'_>, path: &CStr) -> Errno {
    if let Err(errno) = accessat(CWD, path, Access::EXEC_OK, AtFlags::empty()) {
        return errno;
    }
    match statat(CWD, path, AtFlags::empty()) {
        Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile => {}
        Ok(_) => return Errno::ACCESS,
        Err(errno) => return errno,
    }
    if let Some(slot) = shared.trampoline_argv.get_mut(1) {
        *slot = path.as_ptr();
    }
    execute_file(TRAMPOLINE_DESCRIPTOR, &shared.trampoline_argv, &shared.env)
}

/// Memory for the stack of a child, with a guard page below it.
#[derive(Debug)]
pub(super) struct ChildStack {
    start: *mut libc::c_void,
}

const GUARD: usize = 4096;

impl ChildStack {
    pub(super) fn new() -> Self {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_STACK;
        // SAFETY: a new mapping, of which the first page is made inaccessible.
        let start = unsafe {
            let start = libc::mmap(std::ptr::null_mut(), STACK, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0);
            assert!(start != libc::MAP_FAILED, "no memory for a stack");
            libc::mprotect(start, GUARD, libc::PROT_NONE);
            start
        };
        Self { start }
    }

    /// Stacks grow down from here.
    pub(super) fn top(&mut self) -> *mut libc::c_void {
        // SAFETY: one past the end of the mapping.
        unsafe { self.start.byte_add(STACK) }
    }
}

impl Drop for ChildStack {
    fn drop(&mut self) {
        // SAFETY: the mapping is this value's own, and no child runs on it any more.
        unsafe { libc::munmap(self.start, STACK) };
    }
}
