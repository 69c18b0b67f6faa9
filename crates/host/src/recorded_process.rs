//! Ends a process of this user that another process started and recorded.

use std::time::Duration;

use coracle_types::ProcessId;
use rustix::process::{Pid, Signal, kill_process};
use tokio::time::{Instant, sleep};

const POLL: Duration = Duration::from_millis(5);

/// Sends TERM, and KILL if it still runs after `grace`. Returns whether it has ended.
pub async fn end(process: &ProcessId, grace: Duration) -> bool {
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    for signal in [Signal::TERM, Signal::KILL] {
        // Its number may belong to another process as soon as it has ended.
        if let Some(pid) = pid.filter(|_| process.alive()) {
            // It may have ended on its own.
            let _ = kill_process(pid, signal);
        }
        let give_up = Instant::now() + grace;
        while process.alive() && Instant::now() < give_up {
            sleep(POLL).await;
        }
    }
    !process.alive()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process::{Invocation, spawn_daemon};

    #[tokio::test]
    async fn a_process_that_ignores_term_is_killed_and_another_one_with_its_number_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let ready = dir.path().join("ready");
        let script = format!("trap '' TERM; : > {}; while :; do sleep 1; done", ready.display());
        let pid = spawn_daemon(&Invocation::new("/bin/sh", ["-c", &script])).unwrap();
        let process = ProcessId::from_pid(pid).unwrap();
        while !ready.exists() {
            sleep(POLL).await;
        }
        let other = ProcessId { start: process.start + 1, ..process.clone() };
        assert!(end(&other, Duration::from_millis(50)).await && process.alive());
        assert!(end(&process, Duration::from_millis(50)).await || end(&process, Duration::from_secs(10)).await);
    }
}
