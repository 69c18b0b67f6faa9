//! Tells signals and processes from outside the container from those inside, for a PID 1 without privileges: all are
//! its own user.
#![expect(unsafe_code, reason = "who sent a signal is told to its handler alone")]

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};

static SIGNALLED: AtomicBool = AtomicBool::new(false);

/// Records from now on whether TERM and INT came from outside. Must be called before other handlers are installed:
/// handlers run in the order in which they were registered.
///
/// # Errors
/// The kernel's.
pub(crate) fn watch() -> io::Result<()> {
    for signal in [libc::SIGTERM, libc::SIGINT] {
        let note = |info: &libc::siginfo_t| {
            // SAFETY: for signals sent by `kill`, which is checked first, the field has the sender.
            if info.si_code == libc::SI_USER && unsafe { info.si_pid() } == 0 {
                SIGNALLED.store(true, Ordering::SeqCst);
            }
        };
        // SAFETY: the handler reads what the kernel gave it, and stores one flag.
        unsafe { signal_hook_registry::register_sigaction(signal, note) }?;
    }
    Ok(())
}

/// Whether one did. The kernel reports pid 0 for a sender outside of the container, and processes inside cannot forge
/// it with a signal of `kill`'s kind.
pub(crate) fn is_signalled() -> bool {
    SIGNALLED.load(Ordering::SeqCst)
}

/// Whether the engine started that process. What begins inside has a parent inside, which in the end is PID 1; and what a
/// command turned into has the filter of commands, in a terminal that the engine opened, too.
pub(crate) fn is_the_engines(pid: i32) -> bool {
    let status = |of: &str| std::fs::read_to_string(format!("/proc/{of}/status")).unwrap_or_default();
    pid > 1 && of_engine(&status(&pid.to_string()), &status("self"))
}

/// The kernel escapes the ends of lines in names.
fn of_engine(status: &str, own: &str) -> bool {
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
    async fn a_signal_of_somebody_inside_is_heard_and_not_heeded() {
        watch().unwrap();
        for (kind, sent) in [(SignalKind::terminate(), Signal::TERM), (SignalKind::interrupt(), Signal::INT)] {
            let mut heard = signal(kind).unwrap();
            kill_process(getpid(), sent).unwrap();
            heard.recv().await.unwrap();
            assert!(!is_signalled());
        }
        // A signal with a forged sender.
        let mut heard = signal(SignalKind::terminate()).unwrap();
        // SAFETY: zeros are a value of this plain structure, and the kernel copies it.
        unsafe {
            let mut info: libc::siginfo_t = std::mem::zeroed();
            info.si_code = libc::SI_QUEUE;
            let sent = libc::syscall(libc::SYS_rt_sigqueueinfo, libc::getpid(), libc::SIGTERM, &raw const info);
            assert_eq!(sent, 0);
        }
        heard.recv().await.unwrap();
        assert!(!is_signalled());
    }

    #[test]
    fn only_what_the_engine_started_is_taken_for_the_host() {
        let own = "Name:\tguest\nPPid:\t0\nSeccomp:\t2\nSeccomp_filters:\t1\n";
        let peer = |name: &str, parent: u32, filters: u32| {
            format!("Name:\t{name}\nPid:\t9\nPPid:\t{parent}\nSeccomp:\t2\nSeccomp_filters:\t{filters}\n")
        };
        assert!(of_engine(&peer("guest", 0, 1), own));
        assert!(!of_engine(&peer("sh", 1, 1), own), "an orphan of a command");
        assert!(!of_engine(&peer("sh", 1, 2), own), "a command");
        assert!(!of_engine(&peer("sh", 0, 2), own), "a terminal");
        assert!(!of_engine(&peer("x\\nPPid:\\t0", 7, 1), own));
        assert!(!of_engine("", own), "one that is gone");
        assert!(!is_the_engines(getpid().as_raw_nonzero().get()));
        assert!(!is_the_engines(1) && !is_the_engines(0));
    }
}
