//! Finds the processes of a command however they hide, and ends them.
//!
//! A command is started with a limit of real-time scheduling that no other has ([`Marks`]). Every process inherits it,
//! whatever becomes of its group, session, parent and environment. The kernel prevents raising it again, the filter
//! prevents lowering it, every process may read it, and it has no effect without real-time priority.

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

/// Limit of the wait for killed processes; the kernel may hold one that waits for a device.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);

/// The first looks are close together, since most commands obey at once.
const FIRST_LOOKS: [Duration; 3] = [Duration::from_millis(2), Duration::from_millis(5), Duration::from_millis(10)];
const LATER_LOOKS: Duration = Duration::from_millis(20);

/// Looks for processes that were made while others were being stopped, before all are killed.
const SWEEPS: usize = 8;

/// The highest limit that marks begin below. Far from "unlimited", and centuries of real time.
const HIGHEST: u64 = 1 << 60;

/// Limits that marks become, none of which another guest in the same process table uses.
#[derive(Debug)]
pub(crate) struct Marks {
    below: u64,
}

impl Marks {
    pub(crate) fn new() -> Self {
        static MADE: AtomicU64 = AtomicU64::new(0);
        let made = MADE.fetch_add(1, Ordering::Relaxed) % (1 << 12);
        let own = getrlimit(Resource::Rttime).maximum.unwrap_or(u64::MAX);
        let taken = (u64::from(std::process::id()) << 36) + (made << 24);
        Self { below: own.min(HIGHEST).saturating_sub(taken) }
    }

    /// The limit of a command; `None` when the guest itself has one that leaves no room.
    pub(crate) fn limit(&self, mark: TreeId) -> Option<u64> {
        self.below.checked_sub(mark.0).filter(|it| *it > 0)
    }
}

/// A command and all that descends from it.
#[derive(Debug)]
pub(crate) struct ProcessTree<'a> {
    /// The limit that its processes have.
    pub(crate) limit: u64,
    /// The process that was started, and whose group the command is.
    pub(crate) leader: Option<ChildId>,
    /// Knows whether the leader still runs.
    pub(crate) children: &'a Children,
    /// The list of this process's children, if orphans become such.
    pub(crate) kin: Option<&'a fs::File>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Member {
    pid: u32,
    group: u32,
}

impl ProcessTree<'_> {
    /// TERM, then KILL: see [`ProcessBackend::end`](crate::os::machine::ProcessBackend::end).
    pub(crate) async fn end(&self, grace: Duration) -> bool {
        self.terminate();
        self.is_gone_within(grace).await || self.kill().await
    }

    /// Processes that are there now.
    pub(crate) fn count(&self) -> u32 {
        if self.is_gone() { 0 } else { u32::try_from(self.members().len()).unwrap_or(u32::MAX) }
    }

    /// A stopped process handles TERM only when it continues.
    fn terminate(&self) {
        let Some(child) = self.leader else { return };
        let leader = child.pid;
        let tell = || {
            for signal in [Signal::TERM, Signal::CONT] {
                if !to_group(leader, signal) {
                    // It has been forked and has no session yet.
                    to_process(leader, signal);
                }
            }
        };
        let told = self.children.with(child, tell).is_some();
        // Without its leader a group may be gone, and its number may have come to mean another one.
        if !told && scan(self.limit).any(|it| it.group == leader) {
            to_group(leader, Signal::TERM);
            to_group(leader, Signal::CONT);
        }
        // Processes that left the group would otherwise wait for KILL, and the caller with them.
        for member in scan(self.limit).filter(|it| it.group != leader) {
            to_process(member.pid, Signal::TERM);
            to_process(member.pid, Signal::CONT);
        }
    }

    async fn is_gone_within(&self, grace: Duration) -> bool {
        let deadline = Instant::now() + grace;
        let mut pauses = FIRST_LOOKS.into_iter();
        loop {
            if self.is_gone() {
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            sleep(pauses.next().unwrap_or(LATER_LOOKS).min(left)).await;
        }
    }

    async fn kill(&self) -> bool {
        let deadline = Instant::now() + EXIT_TIMEOUT;
        loop {
            let stopped = self.stop();
            if stopped.is_empty() {
                return true;
            }
            stopped.into_iter().for_each(|it| to_process(it, Signal::KILL));
            if Instant::now() >= deadline {
                return false;
            }
            sleep(FIRST_LOOKS[0]).await;
        }
    }

    /// Stops all that are there, so that nothing is made while they are killed one by one.
    fn stop(&self) -> BTreeSet<u32> {
        let mut stopped = BTreeSet::new();
        for _ in 0..SWEEPS {
            let found: Vec<u32> = self.members().into_iter().filter(|it| stopped.insert(*it)).collect();
            if found.is_empty() {
                break;
            }
            found.into_iter().for_each(|it| to_process(it, Signal::STOP));
        }
        stopped
    }

    fn members(&self) -> BTreeSet<u32> {
        // Between fork and its limits a leader does not have the limit yet.
        let leader = self.leader.filter(|it| self.children.has(*it));
        scan(self.limit).map(|it| it.pid).chain(leader.map(|it| it.pid)).collect()
    }

    fn is_gone(&self) -> bool {
        if self.leader.is_some_and(|it| self.children.has(it)) {
            return false;
        }
        // When a leader is gone, whatever it left descends from a child of this process that it did not start.
        let orphans = self.kin.and_then(|it| self.children.orphans(self.limit, || listed(it), limit_of));
        match orphans {
            Some(orphans) => !orphans.into_iter().any(|it| member(it, self.limit).is_some()),
            None => scan(self.limit).next().is_none(),
        }
    }
}

/// The children of PID 1's first thread: orphans become its children, and no other thread of a guest starts anything.
fn listed(kin: &fs::File) -> Option<Vec<u32>> {
    let mut text = vec![0; 512];
    let mut len = 0;
    loop {
        match kin.read_at(&mut text[len..], len as u64).ok()? {
            0 => break,
            count => len += count,
        }
        if len == text.len() {
            text.resize(2 * len, 0);
        }
    }
    let ids = text[..len].split(u8::is_ascii_whitespace).filter_map(|it| str::from_utf8(it).ok()?.parse().ok());
    Some(ids.collect())
}

/// All processes that have the limit and are not dead.
fn scan(limit: u64) -> impl Iterator<Item = Member> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let ids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    ids.filter(|it| *it != std::process::id()).filter_map(move |it| member(it, limit))
}

fn member(pid: u32, limit: u64) -> Option<Member> {
    (limit_of(pid)? == limit).then_some(())?;
    Some(Member { pid, group: group_of_living(&read(pid, "stat")?)? })
}

fn limit_of(pid: u32) -> Option<u64> {
    limit_in(&read(pid, "limits")?)
}

/// The whole of a small file; `None` when the process is gone.
fn read(pid: u32, file: &str) -> Option<String> {
    let mut text = String::with_capacity(2048);
    fs::File::open(format!("/proc/{pid}/{file}")).ok()?.take(4096).read_to_string(&mut text).ok()?;
    Some(text)
}

fn limit_in(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|it| it.strip_prefix("Max realtime timeout"))?;
    line.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// The process group in `/proc/PID/stat`; `None` for a zombie. A process whose first thread has ended looks the same,
/// but for the number of its threads.
fn group_of_living(stat: &str) -> Option<u32> {
    // The name comes before, in parentheses, and may hold anything.
    let mut fields = stat.rsplit_once(')')?.1.split_ascii_whitespace();
    let (state, group) = (fields.next()?, fields.nth(1)?.parse().ok()?);
    let threads: u32 = fields.nth(14)?.parse().ok()?;
    let dead = state == "X" || state == "Z" && threads <= 1;
    (!dead).then_some(group)
}

fn to_group(group: u32, signal: Signal) -> bool {
    Pid::from_raw(group.cast_signed()).is_some_and(|it| kill_process_group(it, signal).is_ok())
}

/// Within the time between a look and a signal no process id comes round again.
fn to_process(pid: u32, signal: Signal) {
    if let Some(pid) = Pid::from_raw(pid.cast_signed()) {
        // One that is gone needs no signal.
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
    fn the_dead_have_no_group() {
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
    fn marks_become_limits_of_their_own() {
        let (one, other) = (Marks::new(), Marks::new());
        let limits: BTreeSet<_> = [(&one, 1), (&one, 2), (&other, 1), (&other, 2)]
            .map(|(it, mark)| it.limit(TreeId(mark)).unwrap())
            .into_iter()
            .collect();
        assert_eq!(limits.len(), 4);
        assert_eq!(Marks { below: 5 }.limit(TreeId(5)), None);
    }
}
