//! Cleans up after an interrupted measurement.
//!
//! Whatever a measurement makes goes with the value that stands for it, so an interruption has to become a panic in the
//! thread that measures. A signal ends the programs that it waits for, and [`go_on`] panics between two of them.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::{Pid, Signal, kill_process, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

static INTERRUPTED: AtomicBool = AtomicBool::new(false);

/// Heeds Ctrl-C, TERM and HUP from now on. The end of the process that started this one is a TERM, too.
pub(crate) fn heed() {
    // It fails if there is no such process group; then this process gets the signal itself.
    let _ = set_parent_process_death_signal(Some(Signal::TERM));
    std::thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let kinds = [SignalKind::interrupt(), SignalKind::terminate(), SignalKind::hangup()];
            let [mut interrupt, mut terminate, mut hangup] = kinds.map(|it| signal(it).unwrap());
            loop {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                    _ = hangup.recv() => {}
                }
                // The programs that clean up ignore a second interruption.
                if !INTERRUPTED.swap(true, Ordering::SeqCst) {
                    eprintln!("interrupted; removing what was made");
                    for child in children() {
                        let _ = kill_process(child, Signal::TERM); // it may have ended
                    }
                }
            }
        });
    });
}

/// Panics once there was a signal.
pub(crate) fn go_on() {
    assert!(!INTERRUPTED.load(Ordering::SeqCst), "interrupted");
}

/// The programs that this process waits for.
fn children() -> Vec<Pid> {
    let threads = std::fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let of_each = threads.map(|it| std::fs::read_to_string(it.path().join("children")).unwrap_or_default());
    let all: Vec<String> = of_each.collect();
    all.iter().flat_map(|it| it.split_whitespace()).filter_map(|it| Pid::from_raw(it.parse().ok()?)).collect()
}
