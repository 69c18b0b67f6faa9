//! Marks processes of this host, and everything that they start, with a variable in their environment.
//!
//! The mark identifies a program's whole process tree in `/proc`, even if a process has changed its group or session. A
//! process that clears its environment is not found: this is for cleanup, not for isolation.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// The variable with the mark.
pub const MARK: &str = "CORACLE_MARK";

/// How long killed processes may take to exit.
const KILL_TIMEOUT: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(10);

/// How long a process may take to execute another program; after that it counts as unmarked.
const EXEC_TIMEOUT: Duration = Duration::from_secs(1);

const SHORTLY: Duration = Duration::from_millis(1);

/// `PF_EXITING` and `PF_KTHREAD` of Linux: such a process has no memory, and so no environment.
const EXITING: u32 = 0x4;
const KERNEL_THREAD: u32 = 0x0020_0000;

/// Sends TERM, and KILL to the processes that remain after `grace`. Returns whether none is left.
pub async fn end_marked(mark: &str, grace: Duration) -> bool {
    signal(&marked_at_rest(mark).await, Signal::TERM);
    if none_left(mark, grace, || {}).await {
        return true;
    }
    none_left(mark, KILL_TIMEOUT, || signal(&marked(mark), Signal::KILL)).await
}

async fn none_left(mark: &str, patience: Duration, act: impl Fn()) -> bool {
    let (begun, mut before) = (Instant::now(), false);
    loop {
        act();
        // A scan misses processes that are started meanwhile, so one is not enough.
        let none = marked_at_rest(mark).await.is_empty();
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

/// Finds processes whose mark has this prefix, including those that are executing another program.
pub async fn marked_at_rest(mark: &str) -> Vec<Pid> {
    let begun = Instant::now();
    loop {
        let found = scan(mark);
        if !found.unclear || begun.elapsed() >= EXEC_TIMEOUT {
            return found.carrying;
        }
        sleep(SHORTLY).await;
    }
}

/// Sends a signal to each of them.
pub fn signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        // It may have exited on its own.
        let _ = kill_process(*pid, signal);
    }
}

/// Finds processes whose mark has this prefix, in a single scan.
pub fn marked(mark: &str) -> Vec<Pid> {
    scan(mark).carrying
}

/// The result of one scan of all processes.
struct MarkScan {
    carrying: Vec<Pid>,
    /// Whether a process could not be read because it was executing another program.
    unclear: bool,
}

fn scan(mark: &str) -> MarkScan {
    let variable = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    let mut found = MarkScan { carrying: Vec::new(), unclear: false };
    for pid in pids {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environ) if environ.is_empty() => found.unclear |= is_becoming_another(pid),
            Ok(environ) if environ.split(|it| *it == 0).any(|it| it.starts_with(variable.as_bytes())) => {
                found.carrying.push(pid);
            }
            // A process that exited, or of another user.
            Ok(_) | Err(_) => {}
        }
    }
    found
}

/// Whether a process without an environment was executing another program: the kernel has not written the new
/// environment yet, or has done so since.
fn is_becoming_another(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit_once(") ").map(|it| it.1.split_whitespace().collect()).unwrap_or_default();
    // Counted from the state, which is the third field: flags are the ninth, the environment is from the 50th to the
    // 51st.
    let (Some(state), Some(flags), Some([begin, end])) = (fields.first(), fields.get(6), fields.get(47..49)) else {
        return false;
    };
    let gone_or_kernels = flags.parse::<u32>().is_ok_and(|it| it & (EXITING | KERNEL_THREAD) != 0);
    let has_none = begin == end && *end != "0";
    !gone_or_kernels && !has_none && !matches!(*state, "Z" | "X")
}
