//! Resets in the child what Coracle inherited from its caller and containers must not inherit.
//!
//! Errors are ignored: a user without root cannot raise a limit or a priority that the caller lowered.
#![expect(unsafe_code, reason = "a system call without a safe wrapper that resets all signals")]

use rustix::fs::{Mode, OFlags, open};
use rustix::io::write;
use rustix::process::{Rlimit, setpriority_process, setrlimit, umask};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::plan::Step;

/// The highest number of a signal.
const LAST_SIGNAL: libc::c_int = 64;

/// Bytes of the kernel's set of signals.
const SIGNAL_SET: usize = 8;

/// The kernel's `struct sigaction`, which differs from that of the C library.
#[repr(C)]
#[derive(Default)]
struct SignalAction {
    handler: usize,
    flags: libc::c_ulong,
    restorer: usize,
    mask: u64,
}

/// Resets everything, in a child that has its own table of signals. Allocates nothing and takes no lock.
pub(super) fn leave_caller(steps: &[Step]) {
    umask(Mode::from_raw_mode(0o022));
    reset_signals();
    for step in steps {
        if let Step::Limit { resource, soft, hard } = step {
            // Raised here, since the kernel refuses that later, in the user namespace of the container.
            let _ = setrlimit(*resource, Rlimit { current: Some(*soft), maximum: Some(*hard) });
        }
    }
    let _ = setpriority_process(None, 0);
    let mut processors = CpuSet::new();
    (0..CpuSet::MAX_CPU).for_each(|number| processors.set(number));
    let _ = sched_setaffinity(None, &processors);
    if let Ok(file) = open(c"/proc/self/oom_score_adj", OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty()) {
        let _ = write(&file, b"0");
    }
}

/// Resets ignored signals, which stay ignored across `execve`, unlike handlers. `nohup` and shells ignore signals.
fn reset_signals() {
    let default = SignalAction::default();
    for signal in 1..=LAST_SIGNAL {
        // SAFETY: the kernel reads the action and writes none; for KILL and STOP it refuses.
        unsafe {
            let before = std::ptr::null_mut::<SignalAction>();
            libc::syscall(libc::SYS_rt_sigaction, signal, &raw const default, before, SIGNAL_SET);
        }
    }
}
