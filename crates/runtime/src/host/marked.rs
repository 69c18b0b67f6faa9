//! Processes of this host that carry a mark in their environment, and so does what they start.
//!
//! By the mark a program's whole tree is found in `/proc` and ended, whatever group or session a part of it has moved to.
//! What wipes its environment gets away: this finds what was left behind, and holds nobody who wants to leave.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// The variable that holds the mark.
pub(crate) const MARK: &str = "CORACLE_MARK";

/// How long processes that got KILL may take to go.
const PATIENCE: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(10);

/// TERM, and KILL for what is there after `grace`. Whether nothing is left.
pub(crate) async fn end_marked(mark: &str, grace: Duration) -> bool {
    signal(&marked(mark), Signal::TERM);
    if none_left(mark, grace, || {}).await {
        return true;
    }
    none_left(mark, PATIENCE, || signal(&marked(mark), Signal::KILL)).await
}

async fn none_left(mark: &str, patience: Duration, act: impl Fn()) -> bool {
    let (begun, mut before) = (Instant::now(), false);
    loop {
        act();
        // One that is just becoming another program has no environment for a moment, so one look is not enough.
        let none = marked(mark).is_empty();
        if none && std::mem::replace(&mut before, none) {
            return true;
        }
        before = none;
        if begun.elapsed() >= patience {
            return false;
        }
        sleep(POLL).await;
    }
}

pub(crate) fn signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        // It may have gone by itself meanwhile.
        let _ = kill_process(*pid, signal);
    }
}

/// Processes whose mark begins so. One that ended and was not yet waited for has no environment.
pub(crate) fn marked(mark: &str) -> Vec<Pid> {
    let variable = format!("{MARK}={mark}");
    let carries = |pid: &i32| {
        let environ = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
        environ.split(|it| *it == 0).any(|it| it.starts_with(variable.as_bytes()))
    };
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok());
    pids.filter(carries).filter_map(Pid::from_raw).collect()
}
