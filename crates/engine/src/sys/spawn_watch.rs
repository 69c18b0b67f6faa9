//! Kills a process that does not get as far as executing its program.

use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::process::{Signal, pidfd_send_signal};

/// No process yet.
const NONE: i32 = -1;

/// A process that another thread is starting. Before it executes its program, a process of the container that it enters can
/// stop it, and the thread would wait forever. Kills such a process when it is dropped.
#[derive(Debug)]
pub(crate) struct SpawnWatch(SpawnedPidfd);

/// The place where the kernel writes the descriptor of the process, and whether that thread has taken it.
#[derive(Clone, Debug)]
pub(crate) struct SpawnedPidfd(Arc<PidfdCell>);

#[derive(Debug)]
struct PidfdCell {
    pidfd: AtomicI32,
    is_taken: Mutex<bool>,
}

impl SpawnWatch {
    pub(crate) fn new() -> Self {
        Self(SpawnedPidfd::new())
    }

    /// For the thread that starts it.
    pub(crate) fn pidfd(&self) -> SpawnedPidfd {
        self.0.clone()
    }
}

impl Drop for SpawnWatch {
    fn drop(&mut self) {
        self.0.kill();
    }
}

impl SpawnedPidfd {
    pub(super) fn new() -> Self {
        Self(Arc::new(PidfdCell { pidfd: AtomicI32::new(NONE), is_taken: Mutex::new(false) }))
    }

    /// For `clone`.
    pub(super) fn as_ptr(&self) -> *mut libc::c_int {
        self.0.pidfd.as_ptr()
    }

    /// Forgets the number of a descriptor that the kernel has closed. Another one may have it by now.
    pub(super) fn forget(&self) {
        self.0.pidfd.store(NONE, Ordering::Release);
    }

    /// Takes the descriptor, if there is a process. The caller then owns it.
    pub(super) fn take(&self) -> Option<i32> {
        let mut is_taken = self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        *is_taken = true;
        Some(self.0.pidfd.load(Ordering::Acquire)).filter(|it| *it != NONE)
    }

    #[expect(unsafe_code, reason = "a descriptor of another thread")]
    fn kill(&self) {
        let is_taken = self.0.is_taken.lock().unwrap_or_else(PoisonError::into_inner);
        let pidfd = self.0.pidfd.load(Ordering::Acquire);
        if !*is_taken && pidfd != NONE {
            // SAFETY: it is open until the other thread takes it, which it does under the lock that is held.
            let pidfd = unsafe { BorrowedFd::borrow_raw(pidfd) };
            // Errors are ignored: the process may have ended.
            let _ = pidfd_send_signal(pidfd, Signal::KILL);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;
    use std::os::unix::ffi::OsStrExt as _;

    use coracle_skips::{NEEDS_ROOT, skip};
    use rustix::fs::{CWD, Mode, mkfifoat};
    use rustix::process::{WaitId, WaitIdOptions, waitid};

    use super::super::{ChildPlan, Namespaces, Program, Step, spawn_watched};
    use super::*;

    #[test]
    fn a_process_that_does_not_get_to_its_program_is_killed_and_its_starter_goes_on() {
        if !rustix::process::geteuid().is_root() {
            return skip(NEEDS_ROOT);
        }
        let dir = tempfile::tempdir().unwrap();
        mkfifoat(CWD, dir.path().join("pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        let text = |bytes: &[u8]| std::ffi::CString::new(bytes).unwrap();
        let plan = ChildPlan {
            groups: Vec::new(),
            user_namespace: None,
            namespaces: Namespaces::New { network: false },
            steps: vec![
                Step::WorkingDirectory(text(dir.path().as_os_str().as_bytes())),
                // It waits for a reader, as one that was stopped waits.
                Step::Setting { path: text(b"pipe"), value: text(b"1") },
            ],
            program: Program { paths: vec![text(b"/bin/true")], argv: vec![text(b"true")], env: Vec::new() },
        };
        let watch = SpawnWatch::new();
        let watched = watch.pidfd();
        std::thread::scope(|scope| {
            let starter = scope.spawn(|| spawn_watched(&plan, &watched).unwrap());
            while watched.0.pidfd.load(Ordering::Acquire) == NONE {
                std::thread::yield_now();
            }
            assert!(!starter.is_finished());
            drop(watch);
            let process = starter.join().unwrap();
            let status = waitid(WaitId::PidFd(process.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap();
            assert_eq!(status.terminating_signal(), Some(Signal::KILL.as_raw()));
        });
    }

    /// A control group with at most that many processes, for which the caller cleans up.
    fn group_of(processes: u32) -> Option<std::path::PathBuf> {
        let name = format!("coracle-spawn-test-{}", std::process::id());
        let made = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"].map(|mount| std::path::Path::new(mount).join(&name));
        let group = made.into_iter().find(|it| it.parent().is_some_and(|mount| mount.join("cgroup.procs").exists()))?;
        std::fs::create_dir(&group).ok()?;
        let limited = std::fs::write(group.join("pids.max"), processes.to_string());
        if limited.is_err() {
            std::fs::remove_dir(&group).unwrap();
        }
        limited.ok().map(|()| group)
    }

    #[test]
    fn at_a_limit_of_processes_no_descriptor_is_taken_that_the_kernel_closed() {
        let Some(group) = group_of(1) else {
            return skip("needs a control group that limits processes");
        };
        let procs = std::fs::File::options().write(true).open(group.join("cgroup.procs")).unwrap();
        let text = |word: &str| std::ffi::CString::new(word).unwrap();
        let plan = ChildPlan {
            groups: vec![procs.into()],
            user_namespace: None,
            namespaces: Namespaces::New { network: false },
            steps: Vec::new(),
            program: Program { paths: vec![text("/bin/true")], argv: vec![text("true")], env: Vec::new() },
        };
        let watch = SpawnWatch::new();
        // The process that is created first is the one that the group has room for.
        let failed = spawn_watched(&plan, &watch.pidfd()).map(|_| ()).unwrap_err();
        std::fs::remove_dir(group).unwrap();
        assert_eq!((failed.errno, watch.0.take()), (rustix::io::Errno::AGAIN, None));
    }
}
