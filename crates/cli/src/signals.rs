//! The signals that end a call.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// A second signal within this time is the same one: `timeout` and shells signal a process and then its group.
const SAME: Duration = Duration::from_secs(1);

/// 128 plus the number of the first signal that ended this call; 0 before one arrives.
static ENDED_BY: AtomicU8 = AtomicU8::new(0);

/// The exit code of a cancelled call: 143 after TERM, 129 after HUP, else that of Ctrl-C.
pub(crate) fn interrupted_code() -> u8 {
    match ENDED_BY.load(Ordering::Relaxed) {
        0 => 130,
        code => code,
    }
}

/// Cancels on INT, TERM and HUP, unless the caller ignores them, as `nohup` and `&` in a script do. A second, later
/// signal ends the process, because clean-up hangs.
pub(crate) fn cancel_on_signals(cancel: CancellationToken) -> std::io::Result<()> {
    let (sender, mut codes) = mpsc::unbounded_channel();
    let signals = [(SignalKind::interrupt(), 130_u8), (SignalKind::terminate(), 143), (SignalKind::hangup(), 129)];
    let ignored = std::fs::read_to_string("/proc/self/status").map_or(0, |status| ignored_signals(&status));
    for (kind, code) in signals.into_iter().filter(|(kind, _)| ignored & bit(*kind) == 0) {
        let (mut signal, sender) = (signal(kind)?, sender.clone());
        tokio::spawn(async move { while signal.recv().await.is_some() && sender.send(code).is_ok() {} });
    }
    tokio::spawn(async move {
        let mut first = None;
        while let Some(code) = codes.recv().await {
            if first.get_or_insert_with(Instant::now).elapsed() > SAME {
                std::process::exit(i32::from(code));
            }
            let _ = ENDED_BY.compare_exchange(0, code, Ordering::Relaxed, Ordering::Relaxed);
            cancel.cancel();
        }
    });
    Ok(())
}

/// The signals that a process ignores, from its `/proc/PID/status`: bit 0 is the first. 0 without such a file.
fn ignored_signals(status: &str) -> u64 {
    let digits = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    digits.and_then(|it| u64::from_str_radix(it.trim(), 16).ok()).unwrap_or(0)
}

fn bit(kind: SignalKind) -> u64 {
    1 << (kind.as_raw_value() - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignored_signals_are_read_from_the_status_of_a_process() {
        let status = "SigBlk:\t0000000000000000\nSigIgn:\t0000000000001001\nSigCgt:\tffffffffffffffff\n";
        assert_ne!(ignored_signals(status) & bit(SignalKind::hangup()), 0);
        assert_eq!(ignored_signals(status) & bit(SignalKind::interrupt()), 0);
        assert_eq!(ignored_signals(""), 0);
    }
}
