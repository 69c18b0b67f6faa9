//! Ends a command and every process that it started.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use coracle_types::Result;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};

use super::super::containers::StoredContainer;
use super::super::host_error;
use crate::engine::Engine;
use crate::process_table::{ProcessEntry, carries_mark, processes, send_signal};
use crate::sys::{ChildPlace, Step, run_in_child};

const POLL: Duration = Duration::from_millis(10);

/// A command's processes: the first one, its descendants, those of its session, and those that carry its mark.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) first: Pid,
    pub(super) mark: String,
    /// The time between TERM and KILL.
    pub(super) grace: Duration,
    pub(super) patience: Duration,
}

/// Processes by number, with their start time.
type Members = BTreeMap<i32, u64>;

impl Tree {
    /// Ends all processes; returns whether none is left. Blocks.
    pub(super) fn end(&self, engine: &Engine, container: &StoredContainer) -> Result<bool> {
        let failed = || host_error("cannot end the command's processes");
        if engine.privileges.is_root() {
            return Ok(self.end_here());
        }
        // The processes run as subordinate users: only root of their namespace may signal them.
        let state = container.state()?;
        let Some(pid) = state.process().and_then(|it| Pid::from_raw(i32::try_from(it.pid).ok()?)) else {
            return Ok(true);
        };
        let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(io::Error::from).map_err(failed())?;
        let namespaces = vec![(pidfd.as_fd(), libc::CLONE_NEWUSER)];
        let place = ChildPlace { namespaces, new_mounts: false, steps: vec![Step::BecomeRoot] };
        run_in_child(&place, || Ok(self.end_here())).map_err(failed())
    }

    #[expect(clippy::disallowed_methods, reason = "a thread or a forked child that blocks, without a runtime")]
    fn end_here(&self) -> bool {
        let mut known = Members::new();
        let begun = Instant::now();
        self.signal(&mut known, Signal::TERM);
        while begun.elapsed() < self.grace {
            if self.members(&mut known).is_empty() {
                return true;
            }
            std::thread::sleep(POLL);
        }
        while begun.elapsed() < self.grace + self.patience {
            // A scan misses processes that start meanwhile, so it is repeated until none is left.
            if self.signal(&mut known, Signal::KILL) == 0 {
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    }

    fn signal(&self, known: &mut Members, signal: Signal) -> usize {
        let members = self.members(known);
        for (pid, start) in &members {
            send_signal(*pid, *start, signal);
        }
        members.len()
    }

    /// Returns the live processes. Those in `known` are found even if their parent has ended since.
    fn members(&self, known: &mut Members) -> Members {
        let all = processes();
        known.retain(|pid, start| all.get(pid).is_some_and(|it| it.start == *start));
        let first = self.first.as_raw_nonzero().get();
        let is_own = |pid: i32, it: &ProcessEntry| pid == first || it.session == first || carries_mark(pid, &self.mark);
        known.extend(all.iter().filter(|(pid, it)| is_own(**pid, it)).map(|(pid, it)| (*pid, it.start)));
        loop {
            let belongs = |pid: &i32, it: &ProcessEntry| !known.contains_key(pid) && known.contains_key(&it.parent);
            let more: Vec<_> =
                all.iter().filter(|(pid, it)| belongs(pid, it)).map(|(pid, it)| (*pid, it.start)).collect();
            if more.is_empty() {
                return known.clone();
            }
            known.extend(more);
        }
    }
}
