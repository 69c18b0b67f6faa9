//! Finds the processes of a command even if they hide, and ends them.
//!
//! Each command starts with a limit of real-time scheduling that no other command has ([`Marks`]). Every process inherits
//! it, whatever happens to its group, session, parent and environment. The kernel prevents raising it again, the seccomp
//! filter prevents lowering it, every process may read it, and it has no effect without real-time priority.

use std::collections::BTreeSet;
use std::fs;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::process::{Pid, Resource, Signal, getrlimit, kill_process, kill_process_group};
use tokio::time::{Instant, sleep};

use crate::os::machine::TreeId;
use crate::os::reap::{ChildId, Children};

/// How long to wait for killed processes; the kernel may delay one that waits for a device.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The first polls are close together, since most commands end quickly.
const FIRST_POLLS: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(5), Duration::from_millis(10)];
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// How often to search for new processes while others are being stopped, before all are killed.
const MAX_STOP_ROUNDS: usize = 8;

/// The highest limit used as a tag: far from "unlimited", and still centuries of real time.
const HIGHEST: u64 = 1 << 60;

/// Allocates the `RLIMIT_RTTIME` value that tags every process of one command. Guests in the same process table use
/// different ranges.
#[derive(Debug)]
pub(crate) struct Marks {
    below: u64,
}

impl Marks {
    pub(crate) fn new() -> Self {
        static INSTANCES: AtomicU64 = AtomicU64::new(0);
        let instance = INSTANCES.fetch_add(1, Ordering::Relaxed) % (1 << 12);
        let own = getrlimit(Resource::Rttime).maximum.unwrap_or(u64::MAX);
        let taken = (u64::from(std::process::id()) << 36) + (instance << 24);
        Self { below: own.min(HIGHEST).saturating_sub(taken) }
    }

    /// The limit of a command; `None` if the guest's own limit is too low.
    pub(crate) fn limit(&self, mark: TreeId) -> Option<u64> {
        self.below.checked_sub(mark.0).filter(|it| *it > 0)
    }
}

/// A command and all its descendants.
#[derive(Debug)]
pub(crate) struct ProcessTree<'a> {
    /// The limit that tags its processes.
    pub(crate) limit: u64,
    /// The first process, whose id is that of the command's process group.
    pub(crate) leader: Option<ChildId>,
    /// Used to check whether the leader still runs.
    pub(crate) children: &'a Children,
    /// The list of this process's children, if orphans are reparented to it.
    pub(crate) child_list: Option<&'a fs::File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct LiveProcess {
    pid: u32,
    group: u32,
}

impl ProcessTree<'_> {
    /// Sends TERM, then KILL: see [`ProcessBackend::end`](crate::os::machine::ProcessBackend::end).
    pub(crate) async fn end(&self, grace: Duration) -> bool {
        self.terminate();
        self.is_gone_within(grace).await || self.kill().await
    }

    /// Number of live processes.
    pub(crate) fn count(&self) -> u32 {
        if self.is_gone() { 0 } else { u32::try_from(self.members().len()).unwrap_or(u32::MAX) }
    }

    /// A stopped process handles TERM only after CONT.
    fn terminate(&self) {
        let Some(child) = self.leader else { return };
        let leader = child.pid;
        let signal_leader = || {
            for signal in [Signal::TERM, Signal::CONT] {
                if !signal_group(leader, signal) {
                    // The leader was forked but has not created its session yet.
                    signal_process(leader, signal);
                }
            }
        };
        let leader_runs = self.children.with(child, signal_leader).is_some();
        // Without its leader a group may have ended, and its id may belong to another group.
        if !leader_runs && scan(self.limit).any(|it| it.group == leader) {
            signal_group(leader, Signal::TERM);
            signal_group(leader, Signal::CONT);
        }
        // Otherwise processes that left the group would run until KILL, and the caller would wait for them.
        for live_process_with_limit in scan(self.limit).filter(|it| it.group != leader) {
            signal_process(live_process_with_limit.pid, Signal::TERM);
            signal_process(live_process_with_limit.pid, Signal::CONT);
        }
    }

    async fn is_gone_within(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        let mut pauses = FIRST_POLLS.into_iter();
        loop {
            if self.is_gone() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            sleep(pauses.next().unwrap_or(POLL_INTERVAL).min(left)).await;
        }
    }

    async fn kill(&self) -> bool {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        loop {
            let stopped = self.stop();
            if stopped.is_empty() {
                return true;
            }
            stopped.into_iter().for_each(|it| signal_process(it, Signal::KILL));
            if Instant::now() >= deadline {
                return false;
            }
            sleep(FIRST_POLLS[0]).await;
        }
    }

    /// Stops all processes, so that none starts another while they are killed one by one.
    fn stop(&self) -> BTreeSet<u32> {
        let mut stopped = BTreeSet::new();
        for _ in 0..MAX_STOP_ROUNDS {
            let found: Vec<u32> = self.members().into_iter().filter(|it| stopped.insert(*it)).collect();
            if found.is_empty() {
                break;
            }
            found.into_iter().for_each(|it| signal_process(it, Signal::STOP));
        }
        stopped
    }

    fn members(&self) -> BTreeSet<u32> {
        // Between fork and the setting of its limits, a leader does not have the limit yet.
        let leader = self.leader.filter(|it| self.children.has(*it));
        scan(self.limit).map(|it| it.pid).chain(leader.map(|it| it.pid)).collect()
    }

    fn is_gone(&self) -> bool {
        if self.leader.is_some_and(|it| self.children.has(it)) {
            return false;
        }
        // After the leader was reaped, all its remaining descendants are orphans, or descend from one.
        let orphans =
            self.child_list.and_then(|list| self.children.orphans(self.limit, || read_child_list(list), limit_of));
        match orphans {
            Some(orphans) => !orphans.into_iter().any(|pid| live_process_with_limit(pid, self.limit).is_some()),
            None => scan(self.limit).next().is_none(),
        }
    }
}

/// Lists the children of PID 1's first thread: orphans become its children, and no other thread of a guest starts
/// processes.
fn read_child_list(list: &fs::File) -> Option<Vec<u32>> {
    let mut text = vec![0; 512];
    let mut len = 0;
    loop {
        match list.read_at(&mut text[len..], len as u64).ok()? {
            0 => break,
            count => len += count,
        }
        if len == text.len() {
            text.resize(2 * len, 0);
        }
    }
    let ids = text[..len].split(u8::is_ascii_whitespace).filter_map(|pid| str::from_utf8(pid).ok()?.parse().ok());
    Some(ids.collect())
}

/// All live processes that have the limit.
fn scan(limit: u64) -> impl Iterator<Item = LiveProcess> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.filter(|it| *it != std::process::id()).filter_map(move |it| live_process_with_limit(it, limit))
}

fn live_process_with_limit(pid: u32, limit: u64) -> Option<LiveProcess> {
    (limit_of(pid)? == limit).then_some(())?;
    Some(LiveProcess { pid, group: group_of_living(&read(pid, "stat")?)? })
}

fn limit_of(pid: u32) -> Option<u64> {
    limit_in(&read(pid, "limits")?)
}

/// Reads a small file completely; `None` if the process has ended.
fn read(pid: u32, file: &str) -> Option<String> {
    let mut text = String::with_capacity(2048);
    fs::File::open(format!("/proc/{pid}/{file}")).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

fn limit_in(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|it| it.strip_prefix("Max realtime timeout"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Returns the process group from `/proc/PID/stat`; `None` for a zombie. A process whose first thread has ended looks the
/// same, except for the number of its threads.
fn group_of_living(stat: &str) -> Option<u32> {
    // The name before these fields is in parentheses and may contain any character.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let (state, group) = (fields.next()?, fields.nth(1)?.parse().ok()?);
    let threads: u32 = fields.nth(14)?.parse().ok()?;
    let dead = state == "X" || state == "Z" && threads <= 1;
    (!dead).then_some(group)
}

fn signal_group(group: u32, signal: Signal) -> bool {
    Pid::from_raw(group.cast_signed()).is_some_and(|it| kill_process_group(it, signal).is_ok())
}

/// The time between a scan and its signal is too short for a process id to be reused.
fn signal_process(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // The process may have ended.
        let _ = kill_process(pid, signal);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_read_from_its_line() {
        let limits = "Limit                     Soft Limit           Hard Limit           Units     \n\
            Max realtime priority     0                    7                    \n\
            Max realtime timeout      11                   1152921435887370239  us        \n";
        assert_eq!(limit_in(limits), Some(1_152_921_435_887_370_239));
        assert_eq!(limit_in("Max realtime timeout      unlimited  unlimited  us\n"), None);
        assert_eq!(limit_in(""), None);
    }

    #[test]
    fn a_zombie_has_no_group() {
        let stat = |state: &str, threads: u32| {
            format!("77 (a ) Z (b) {state} 1 42 9 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 {threads} 0 12345 1 1")
        };
        for (state, threads, expected) in
            [("S", 1, Some(42)), ("T", 3, Some(42)), ("Z", 1, None), ("Z", 2, Some(42)), ("X", 0, None)]
        {
            assert_eq!(group_of_living(&stat(state, threads)), expected, "{state} {threads}");
        }
        assert_eq!(group_of_living("77 (x"), None);
    }

    #[test]
    fn every_mark_has_a_distinct_limit() {
        let (one, other) = (Marks::new(), Marks::new());
        let limits: BTreeSet<_> = [(&one, 1), (&one, 2), (&other, 1), (&other, 2)]
            .map(|(it, mark)| it.limit(TreeId(mark)).unwrap())
            .into_iter()
            .collect();
        assert_eq!(limits.len(), 4);
        assert_eq!(Marks { below: 5 }.limit(TreeId(5)), None);
    }
}
