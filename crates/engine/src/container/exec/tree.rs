//! Ends a command with everything that it started.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use coracle_runtime::Result;
use coracle_runtime::host::process_marker::MARK;
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};

use super::super::containers::StoredContainer;
use super::super::host_error;
use crate::engine::Engine;
use crate::sys::{ChildPlace, Step, run_in_child};

const POLL: Duration = Duration::from_millis(10);

/// A command's processes: the first one, its descendants, those of its session, and those that carry its mark.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    pub(super) first: Pid,
    pub(super) mark: String,
    /// Between TERM and KILL.
    pub(super) grace: Duration,
    pub(super) patience: Duration,
}

/// A process in `/proc`.
#[derive(Clone, Copy, Debug)]
struct TreeProcess {
    parent: i32,
    session: i32,
}

impl Tree {
    /// Whether nothing of it is left. Blocks.
    pub(super) fn end(&self, engine: &Engine, container: &StoredContainer) -> Result<bool> {
        let failed = || host_error("cannot end the command's processes");
        if engine.privileges.is_root() {
            return Ok(self.end_here());
        }
        // Its processes are subordinate users', whom only root of their namespace may signal.
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
        let mut known = BTreeSet::from([self.first.as_raw_nonzero().get()]);
        let begun = Instant::now();
        self.signal(&mut known, Signal::TERM);
        while begun.elapsed() < self.grace {
            if self.members(&mut known).is_empty() {
                return true;
            }
            std::thread::sleep(POLL);
        }
        while begun.elapsed() < self.grace + self.patience {
            // What was started while one looked is not seen, so it is looked for until nothing is left.
            if self.signal(&mut known, Signal::KILL) == 0 {
                return true;
            }
            std::thread::sleep(POLL);
        }
        false
    }

    fn signal(&self, known: &mut BTreeSet<i32>, signal: Signal) -> usize {
        let members = self.members(known);
        for pid in members.iter().filter_map(|it| Pid::from_raw(*it)) {
            let _ = kill_process(pid, signal);
        }
        members.len()
    }

    /// Live members. A process that was seen once is not lost when its parent ends first.
    fn members(&self, known: &mut BTreeSet<i32>) -> BTreeSet<i32> {
        let all = processes();
        known.retain(|it| all.contains_key(it));
        known.extend(all.keys().filter(|it| carries(**it, &self.mark)));
        let first = self.first.as_raw_nonzero().get();
        loop {
            let belongs = |it: &TreeProcess| known.contains(&it.parent) || it.session == first;
            let more: Vec<_> =
                all.iter().filter(|(pid, it)| !known.contains(pid) && belongs(it)).map(|it| *it.0).collect();
            if more.is_empty() {
                return known.clone();
            }
            known.extend(more);
        }
    }
}

fn carries(pid: i32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|it| *it == 0).any(|it| it == wanted.as_bytes())
}

/// All processes but those that have ended.
fn processes() -> BTreeMap<i32, TreeProcess> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, process(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?))).collect()
}

/// The parent of a process that has not ended.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    process(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?.parent.try_into().ok()
}

fn process(stat: &str) -> Option<TreeProcess> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    Some(TreeProcess { parent, session: fields.nth(1)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_names_parent_and_session() {
        let it = process("7 (a) b) S 3 4 5 6 -1 0").unwrap();
        assert_eq!((it.parent, it.session), (3, 5));
        assert!(process("7 (x) Z 3 4 5 6").is_none());
    }
}
