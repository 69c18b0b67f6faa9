//! The processes of the machine, as `/proc` lists them.

use std::collections::BTreeMap;

use coracle_host::process_marker::MARK;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

/// A process in `/proc`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ProcessEntry {
    pub(crate) parent: i32,
    pub(crate) session: i32,
    /// Start time in ticks since the boot. Together with the number it identifies a process, since numbers are reused.
    pub(crate) start: u64,
}

/// All processes but those that have ended.
pub(crate) fn processes() -> BTreeMap<i32, ProcessEntry> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter_map(|pid| Some((pid, process_of(pid)?))).collect()
}

/// The parent of a process that has not ended.
pub(crate) fn parent_of(pid: u32) -> Option<u32> {
    process_of(pid.try_into().ok()?)?.parent.try_into().ok()
}

pub(crate) fn process_of(pid: i32) -> Option<ProcessEntry> {
    parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// Parses fields 4, 6 and 22 of `/proc/PID/stat`. `None` for a process that has ended.
fn parse(stat: &str) -> Option<ProcessEntry> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    let parent = fields.next()?.parse().ok()?;
    let session = fields.nth(1)?.parse().ok()?;
    Some(ProcessEntry { parent, session, start: fields.nth(15)?.parse().ok()? })
}

/// Sends a signal to exactly this process: its start time is checked again after it was opened.
pub(crate) fn send_signal(pid: i32, start: u64, signal: Signal) {
    let held = Pid::from_raw(pid).and_then(|it| pidfd_open(it, PidfdFlags::empty()).ok());
    if let Some(held) = held.filter(|_| process_of(pid).is_some_and(|it| it.start == start)) {
        let _ = pidfd_send_signal(held, signal);
    }
}

/// Whether a process was started with this mark in its environment, or inherited it.
pub(crate) fn carries_mark(pid: i32, mark: &str) -> bool {
    let wanted = format!("{MARK}={mark}");
    let environment = std::fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|it| *it == 0).any(|it| it == wanted.as_bytes())
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
        send_signal(pid, start - 1, Signal::KILL);
        assert!(other.try_wait().unwrap().is_none() && process_of(pid).is_some());
        send_signal(pid, start, Signal::KILL);
        assert!(!other.wait().unwrap().success());
    }
}
