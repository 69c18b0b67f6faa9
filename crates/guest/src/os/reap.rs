//! Reaps exited processes and reports their status.

use std::collections::HashMap;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::process::{Pid, WaitOptions, WaitStatus, wait, waitpid};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

use crate::os::machine::Exit;

/// Children that were started and not yet reaped.
#[derive(Debug, Default)]
pub(crate) struct Children(Mutex<ChildTable>);

#[derive(Debug, Default)]
struct ChildTable {
    started: HashMap<u32, StartedChild>,
    /// How many children were ever started.
    count: u64,
    /// Limits of orphans by pid; a limit does not change.
    orphans: HashMap<u32, u64>,
}

#[derive(Debug)]
struct StartedChild {
    number: u64,
    exit: oneshot::Sender<Exit>,
}

/// A child that was started. Its pid may be reused after it was reaped, its number is not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChildId {
    pub(crate) pid: u32,
    number: u64,
}

impl ChildTable {
    fn has(&self, child: ChildId) -> bool {
        self.started.get(&child.pid).is_some_and(|it| it.number == child.number)
    }
}

impl Children {
    /// Starts a process with `start`, which returns its pid, and records the child before it can be reaped.
    ///
    /// # Errors
    /// Returns the errors of `start`.
    pub(crate) fn start<T>(
        &self,
        start: impl FnOnce() -> io::Result<(u32, T)>,
    ) -> io::Result<(ChildId, T, oneshot::Receiver<Exit>)> {
        let mut table = self.lock();
        let (pid, rest) = start()?;
        let (sender, exit) = oneshot::channel();
        table.count += 1;
        let number = table.count;
        table.started.insert(pid, StartedChild { number, exit: sender });
        Ok((ChildId { pid, number }, rest, exit))
    }

    /// Whether the child has not been reaped, so that its pid means no other process.
    pub(crate) fn has(&self, child: ChildId) -> bool {
        self.lock().has(child)
    }

    /// Runs a closure while the child's pid cannot be reused. Returns `None` if the child was reaped.
    pub(crate) fn with<T>(&self, child: ChildId, act: impl FnOnce() -> T) -> Option<T> {
        let table = self.lock();
        table.has(child).then(act)
    }

    /// Returns the pids in `listed` that were not started here and have the limit. `read_limit` reads the limit of a new pid.
    /// No child is reaped during the scan, so no pid can be reused.
    pub(crate) fn orphans(
        &self,
        limit: u64,
        listed: impl FnOnce() -> Option<Vec<u32>>,
        read_limit: impl Fn(u32) -> Option<u64>,
    ) -> Option<Vec<u32>> {
        let mut table = self.lock();
        let mut listed = listed()?;
        listed.retain(|pid| !table.started.contains_key(pid));
        listed.retain(|pid| {
            let known = table.orphans.get(pid).copied().or_else(|| read_limit(*pid));
            known.inspect(|known| _ = table.orphans.insert(*pid, *known)) == Some(limit)
        });
        Some(listed)
    }

    fn lock(&self) -> MutexGuard<'_, ChildTable> {
        self.0.lock().expect("no code panics while holding the lock")
    }

    fn reap_all(&self) {
        let mut table = self.lock();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            table.orphans.remove(&pid);
            if let Some(child) = table.started.remove(&pid) {
                report_exit(child.exit, status);
            }
        }
    }

    fn reap_own(&self) {
        let mut table = self.lock();
        let ids: Vec<u32> = table.started.keys().copied().collect();
        for id in ids {
            let result = waitpid(Pid::from_raw(id.cast_signed()), WaitOptions::NOHANG);
            // On an error another part of this process reaped the child; the dropped sender reports that the status is unknown.
            if !matches!(result, Ok(None))
                && let Some(child) = table.started.remove(&id)
                && let Ok(Some((_, status))) = result
            {
                report_exit(child.exit, status);
            }
        }
    }
}

/// If the receiver was dropped, no caller waits for the status.
fn report_exit(sender: oneshot::Sender<Exit>, status: WaitStatus) {
    let code = status.exit_status().map(|it| Exit::Code(u8::try_from(it).unwrap_or(u8::MAX)));
    if let Some(exit) = code.or(status.terminating_signal().map(Exit::Signal)) {
        let _ = sender.send(exit);
    }
}

/// Reaps children as they exit.
#[derive(Debug)]
pub struct Reaper {
    children: Arc<Children>,
    child_signal: Signal,
    all: bool,
}

impl Reaper {
    /// With `all` it reaps orphans too, as PID 1 must; otherwise only children that were started here, so that it can run in
    /// a process with other children.
    ///
    /// # Errors
    /// Fails if there is no async runtime with signals.
    pub(crate) fn new(children: Arc<Children>, all: bool) -> io::Result<Self> {
        Ok(Self { children, child_signal: signal(SignalKind::child())?, all })
    }

    /// Reaps children for ever.
    pub async fn run(mut self) {
        loop {
            // One SIGCHLD may report several exits, and exits before the first call send none.
            if self.all {
                self.children.reap_all();
            } else {
                self.children.reap_own();
            }
            self.child_signal.recv().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a test needs a child in its own process group, like a command")]
    async fn pid_1_reaps_children_in_other_process_groups() {
        use std::os::unix::process::CommandExt;

        let children = Arc::<Children>::default();
        let spawn = || Ok((std::process::Command::new("true").process_group(0).spawn()?.id(), ()));
        let (child, (), exit) = children.start(spawn).unwrap();
        tokio::spawn(Reaper::new(Arc::clone(&children), true).unwrap().run());
        let exit = tokio::time::timeout(std::time::Duration::from_secs(10), exit).await;
        assert_eq!(exit.unwrap().unwrap(), Exit::Code(0));
        assert!(!children.has(child));
    }

    #[test]
    fn children_with_the_same_pid_are_distinguished() {
        let children = Children::default();
        let start = || children.start(|| Ok((7, ()))).unwrap().0;
        let (old, new) = (start(), start());
        assert!(!children.has(old) && children.has(new));
        assert_eq!((children.with(old, || ()), children.with(new, || ())), (None, Some(())));
    }

    #[test]
    fn the_limit_of_an_orphan_is_read_once() {
        let (children, reads) = (Children::default(), std::cell::Cell::new(0));
        let read_limit = |pid: u32| {
            reads.set(reads.get() + 1);
            (pid != 9).then_some(u64::from(pid) * 10)
        };
        let (child, (), _exit) = children.start(|| Ok((7, ()))).unwrap();
        let with = |limit| children.orphans(limit, || Some(vec![child.pid, 8, 9, 10]), read_limit);
        assert_eq!(with(70), Some(vec![]), "it was started here");
        assert_eq!((with(80), with(100), reads.get()), (Some(vec![8]), Some(vec![10]), 5));
        assert_eq!(children.orphans(80, || None, read_limit), None);
    }
}
