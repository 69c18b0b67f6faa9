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
    /// Children that were ever started.
    count: u64,
    /// Limits of orphans, which do not change.
    orphans: HashMap<u32, u64>,
}

#[derive(Debug)]
struct StartedChild {
    number: u64,
    exit: oneshot::Sender<Exit>,
}

/// A child that was started. Its pid may be that of another child after it was reaped; its number is not.
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
    /// Starts a process by `start`, which returns its pid, and records the child before it can be reaped.
    ///
    /// # Errors
    /// Those of `start`.
    pub(crate) fn start<T>(
        &self,
        start: impl FnOnce() -> io::Result<(u32, T)>,
    ) -> io::Result<(ChildId, T, oneshot::Receiver<Exit>)> {
        let mut family = self.lock();
        let (pid, rest) = start()?;
        let (sender, exit) = oneshot::channel();
        family.count += 1;
        let number = family.count;
        family.started.insert(pid, StartedChild { number, exit: sender });
        Ok((ChildId { pid, number }, rest, exit))
    }

    /// The child is there, so that its pid means no other process.
    pub(crate) fn has(&self, child: ChildId) -> bool {
        self.lock().has(child)
    }

    /// Does something to a child while its pid cannot come to mean another process. `None` when it is gone.
    pub(crate) fn with<T>(&self, child: ChildId, act: impl FnOnce() -> T) -> Option<T> {
        let family = self.lock();
        family.has(child).then(act)
    }

    /// Children among those `listed` that were not started here and have the limit. `look` reads the limit of a child
    /// that was not seen before. Nothing is reaped during the scan, so a pid keeps its meaning.
    pub(crate) fn orphans(
        &self,
        limit: u64,
        listed: impl FnOnce() -> Option<Vec<u32>>,
        look: impl Fn(u32) -> Option<u64>,
    ) -> Option<Vec<u32>> {
        let mut family = self.lock();
        let mut listed = listed()?;
        listed.retain(|it| !family.started.contains_key(it));
        listed.retain(|it| {
            let known = family.orphans.get(it).copied().or_else(|| look(*it));
            known.inspect(|known| _ = family.orphans.insert(*it, *known)) == Some(limit)
        });
        Some(listed)
    }

    fn lock(&self) -> MutexGuard<'_, ChildTable> {
        self.0.lock().expect("nothing panics while it is held")
    }

    fn reap_all(&self) {
        let mut family = self.lock();
        while let Ok(Some((pid, status))) = wait(WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get().unsigned_abs();
            family.orphans.remove(&pid);
            if let Some(child) = family.started.remove(&pid) {
                report_exit(child.exit, status);
            }
        }
    }

    fn reap_own(&self) {
        let mut family = self.lock();
        let ids: Vec<u32> = family.started.keys().copied().collect();
        for id in ids {
            let answer = waitpid(Pid::from_raw(id.cast_signed()), WaitOptions::NOHANG);
            // On an error another part of this process reaped the child; the dropped sender reports an unknown status.
            if !matches!(answer, Ok(None))
                && let Some(child) = family.started.remove(&id)
                && let Ok(Some((_, status))) = answer
            {
                report_exit(child.exit, status);
            }
        }
    }
}

/// A receiver that is gone does not want to know.
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
    ended: Signal,
    all: bool,
}

impl Reaper {
    /// With `all` it reaps orphans too, as PID 1 must; otherwise only children that were started here, so that it can
    /// run in a process with other children.
    ///
    /// # Errors
    /// When there is no runtime with signals.
    pub(crate) fn new(children: Arc<Children>, all: bool) -> io::Result<Self> {
        Ok(Self { children, ended: signal(SignalKind::child())?, all })
    }

    /// Never returns.
    pub async fn run(mut self) {
        loop {
            // One signal may stand for many exits, and exits before the first call send none.
            if self.all {
                self.children.reap_all();
            } else {
                self.children.reap_own();
            }
            self.ended.recv().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[expect(clippy::disallowed_methods, reason = "a child that is in a group of its own, as every command is")]
    async fn pid_1_takes_leave_of_children_in_groups_of_their_own() {
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
    fn another_child_with_the_same_pid_is_told_apart() {
        let children = Children::default();
        let start = || children.start(|| Ok((7, ()))).unwrap().0;
        let (old, new) = (start(), start());
        assert!(!children.has(old) && children.has(new));
        assert_eq!((children.with(old, || ()), children.with(new, || ())), (None, Some(())));
    }

    #[test]
    fn an_orphan_is_looked_at_once() {
        let (children, looks) = (Children::default(), std::cell::Cell::new(0));
        let look = |pid: u32| {
            looks.set(looks.get() + 1);
            (pid != 9).then_some(u64::from(pid) * 10)
        };
        let (child, (), _exit) = children.start(|| Ok((7, ()))).unwrap();
        let with = |limit| children.orphans(limit, || Some(vec![child.pid, 8, 9, 10]), look);
        assert_eq!(with(70), Some(vec![]), "it was started here");
        assert_eq!((with(80), with(100), looks.get()), (Some(vec![8]), Some(vec![10]), 5));
        assert_eq!(children.orphans(80, || None, look), None);
    }
}
