//! Processes of this host that carry a mark in their environment, and so does what they start.
//!
//! By the mark a program's whole tree is found in `/proc` and ended, whatever group or session a part of it has moved to.
//! What wipes its environment gets away: this finds what was left behind, and holds nobody who wants to leave.

use std::fs;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

/// The variable that holds the mark.
pub const MARK: &str = "CORACLE_MARK";

/// How long processes that got KILL may take to go.
const PATIENCE: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(10);

/// How long a process may take to become another program before it is taken for one without a mark.
const UNCLEAR: Duration = Duration::from_secs(1);

const SHORTLY: Duration = Duration::from_millis(1);

/// `PF_EXITING` and `PF_KTHREAD` of Linux: such a process has no memory, and so no environment.
const EXITING: u32 = 0x4;
const KERNEL_THREAD: u32 = 0x0020_0000;

/// TERM, and KILL for what is there after `grace`. Whether nothing is left.
pub async fn end_marked(mark: &str, grace: Duration) -> bool {
    signal(&marked_at_rest(mark).await, Signal::TERM);
    if none_left(mark, grace, || {}).await {
        return true;
    }
    none_left(mark, PATIENCE, || signal(&marked(mark), Signal::KILL)).await
}

async fn none_left(mark: &str, patience: Duration, act: impl Fn()) -> bool {
    let (begun, mut before) = (Instant::now(), false);
    loop {
        act();
        // What was started while one looked is not seen, so one look is not enough.
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

/// Processes whose mark begins so, those included that are just becoming another program.
pub async fn marked_at_rest(mark: &str) -> Vec<Pid> {
    let begun = Instant::now();
    loop {
        let found = look(mark);
        if !found.unclear || begun.elapsed() >= UNCLEAR {
            return found.carrying;
        }
        sleep(SHORTLY).await;
    }
}

/// Sends a signal to each of them.
pub fn signal(processes: &[Pid], signal: Signal) {
    for pid in processes {
        // It may have gone by itself meanwhile.
        let _ = kill_process(*pid, signal);
    }
}

/// Processes whose mark begins so, as far as one look tells.
pub fn marked(mark: &str) -> Vec<Pid> {
    look(mark).carrying
}

/// What one look at all processes found.
struct Found {
    carrying: Vec<Pid>,
    /// Whether one was there that could not be told: it was just becoming another program.
    unclear: bool,
}

fn look(mark: &str) -> Found {
    let variable = format!("{MARK}={mark}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|it| it.file_name().to_str()?.parse().ok()).filter_map(Pid::from_raw);
    let mut found = Found { carrying: Vec::new(), unclear: false };
    for pid in pids {
        match fs::read(format!("/proc/{pid}/environ")) {
            Ok(environ) if environ.is_empty() => found.unclear |= is_becoming_another(pid),
            Ok(environ) if environ.split(|it| *it == 0).any(|it| it.starts_with(variable.as_bytes())) => {
                found.carrying.push(pid);
            }
            // One that is gone, or somebody else's.
            Ok(_) | Err(_) => {}
        }
    }
    found
}

/// Whether a process that had no environment was between two programs: the kernel had not laid out the new one's yet,
/// or has meanwhile.
fn is_becoming_another(pid: Pid) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let fields: Vec<_> = stat.rsplit_once(") ").map(|it| it.1.split_whitespace().collect()).unwrap_or_default();
    // Counted from the state, which is the third field: flags are the ninth, the environment is from the 50th to the 51st.
    let (Some(state), Some(flags), Some([begin, end])) = (fields.first(), fields.get(6), fields.get(47..49)) else {
        return false;
    };
    let gone_or_kernels = flags.parse::<u32>().is_ok_and(|it| it & (EXITING | KERNEL_THREAD) != 0);
    let has_none = begin == end && *end != "0";
    !gone_or_kernels && !has_none && !matches!(*state, "Z" | "X")
}
