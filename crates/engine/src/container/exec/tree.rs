//! Ends a command with everything that it started.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::AsFd as _;
use std::time::{Duration, Instant};

use coracle_runtime::Result;
use coracle_runtime::host::process_marker::MARK;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

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
    /// In ticks since the boot: with its number it names one process, also when numbers are used again.
    start: u64,
}

/// Processes by number, with their start.
type Members = BTreeMap<i32, u64>;

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
            // What was started while one looked is not seen, so it is looked for until nothing is left.
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
            send(*pid, *start, signal);
        }
        members.len()
    }

    /// Live members. A process that was seen once is not lost when its parent ends first.
    fn members(&self, known: &mut Members) -> Members {
        let all = processes();
        known.retain(|pid, start| all.get(pid).is_some_and(|it| it.start == *start));
        let first = self.first.as_raw_nonzero().get();
        let is_own = |pid: i32, it: &TreeProcess| pid == first || it.session == first || carries(pid, &self.mark);
        known.extend(all.iter().filter(|(pid, it)| is_own(**pid, it)).map(|(pid, it)| (*pid, it.start)));
        loop {
            let belongs = |pid: &i32, it: &TreeProcess| !known.contains_key(pid) && known.contains_key(&it.parent);
            let more: Vec<_> =
                all.iter().filter(|(pid, it)| belongs(pid, it)).map(|(pid, it)| (*pid, it.start)).collect();
            if more.is_empty() {
                return known.clone();
            }
            known.extend(more);
        }
    }
}

/// To that process alone: it is looked at again once it is held.
fn send(pid: i32, start: u64, signal: Signal) {
    let held = Pid::from_raw(pid).and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok());
    if let Some(held) = held.filter(|_| process_of(pid).is_some_and(|it| it.start == start)) {
        let _ = pidfd_send_signal(held, signal);
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
    pids.filter_map(|pid| Some((pid, process_of(pid)?))).collect()
}

/// The parent of a process that has not ended.
pub(super) fn parent_of(pid: u32) -> Option<u32> {
    process_of(pid.try_into().ok()?)?.parent.try_into().ok()
}

fn process_of(pid: i32) -> Option<TreeProcess> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Fields 4, 6 and 22 of a line of `/proc`. `None` for a process that has ended.
fn parse(stat: &str) -> Option<TreeProcess> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(TreeProcess { parent, session, start: fields.nth(15)?.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_proc_names_parent_session_and_start() {
        let it = parse("7 (a) b) S 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22").unwrap();
        assert_eq!((it.parent, it.session, it.start), (3, 5, 21));
        assert!(parse("7 (x) Z 3 4 5 6").is_none());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "a test needs processes of its own")]
    fn only_the_process_that_was_seen_gets_a_signal() {
        let mut other = std::process::Command::new("sleep").arg("100").spawn().unwrap();
        let pid = other.id().cast_signed();
        let start = process_of(pid).unwrap().start;
        send(pid, start - 1, Signal::KILL);
        assert!(other.try_wait().unwrap().is_none() && process_of(pid).is_some());
        send(pid, start, Signal::KILL);
        assert!(!other.wait().unwrap().success());
    }
}
