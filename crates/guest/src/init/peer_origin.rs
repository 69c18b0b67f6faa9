//! Distinguishes signals and processes from outside the container from those inside, for a PID 1 without privileges:
//! all of them have its own user.
#![expect(unsafe_code, reason = "only a signal handler receives the sender of a signal")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Records from now on whether TERM or INT came from outside. Must be called before other handlers are installed:
/// handlers run in the order in which they were registered.
///
/// # Errors
/// Fails if the kernel refuses the handler.
pub(crate) fn watch() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let record = |info: &libc::siginfo_t| {
            // SAFETY: for signals sent by `kill`, which is checked first, the field contains the sender.
            if info.si_code == libc::SI_USER && unsafe { info.si_pid() } == 0 {
                SIGNALLED.store(true, Ordering::SeqCst);
            }
        };
        // SAFETY: the handler only reads the structure of the kernel and stores one flag.
        unsafe { signal_hook_registry::register_sigaction(signal, record) }?;
    }
    Ok(())
}

/// Whether TERM or INT came from outside. The kernel reports pid 0 for a sender outside of the container; a process
/// inside cannot forge that with `kill`.
pub(crate) fn is_signalled() -> bool {
    SIGNALLED.load(Ordering::SeqCst)
}

/// Whether the engine started that process. A process that was started inside has a parent inside, in the end PID 1; and
/// every process of a command has the filter of commands, also in a terminal that the engine opened.
pub(crate) fn is_started_by_engine(pid: i32) -> bool {
    let status = |of: &str| std::fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    pid > 1 && has_engine_status(&status(&pid.to_string()), &status("self"))
}

/// Names cannot forge a field: the kernel escapes the ends of lines in them.
fn has_engine_status(status: &str, own: &str) -> bool {
    let field = |text: &str, name| text.lines().find_map(|it| it.strip_prefix(name)?.trim().parse::<u32>().ok());
    let filters = |text| field(text, "Seccomp_filters:");
    field(status, "PPid:") == Some(0) && filters(status) <= filters(own)
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal, getpid, kill_process};
    use tokio::signal::unix::{SignalKind, signal};

    use super::*;

    #[tokio::test]
    async fn a_signal_from_inside_is_not_recorded() {
        watch().unwrap();
        for (kind, sent) in [(SignalKind::terminate(), Signal::TERM), (SignalKind::interrupt(), Signal::INT)] {
            let mut received = signal(kind).unwrap();
            kill_process(getpid(), sent).unwrap();
            received.recv().await.unwrap();
            assert!(!is_signalled());
        }
        // A signal with a forged sender.
        let mut received = signal(SignalKind::terminate()).unwrap();
        // SAFETY: all-zero bytes are valid for this plain structure, and the kernel copies it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            info.si_code = libc::SI_QUEUE;
            let sent = libc::syscall(libc::SYS_rt_sigqueueinfo, libc::getpid(), libc::SIGTERM, &raw const info);
            assert_eq!(sent, 0);
        }
        received.recv().await.unwrap();
        assert!(!is_signalled());
    }

    #[test]
    fn only_processes_that_the_engine_started_count_as_the_host() {
        let own = "Name:\tguest\nPPid:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let peer = |name: &str, parent: u32, filters: u32| {
            format!("Name:\t{name}\nPid:\t9\nPPid:\t{parent}\nSeccomp:\t2\nSeccomp_filters:\t{filters}\n")
        };
        assert!(has_engine_status(&peer("guest", 0, 1), own));
        assert!(!has_engine_status(&peer("sh", 1, 1), own), "an orphan of a command");
        assert!(!has_engine_status(&peer("sh", 1, 2), own), "a command");
        assert!(!has_engine_status(&peer("sh", 0, 2), own), "a command in a terminal");
        assert!(!has_engine_status(&peer("x\\nPPid:\\t0", 7, 1), own));
        assert!(!has_engine_status("", own), "a process that has ended");
        assert!(!is_started_by_engine(getpid().as_raw_nonzero().get()));
        assert!(!is_started_by_engine(1) && !is_started_by_engine(0));
    }
}
