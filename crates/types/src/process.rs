//! Identifies a process beyond the reuse of its pid.

use std::sync::OnceLock;

use serde::{Deserialize, Serialize};

/// A process: its number, when it started, and since which boot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessId {
    /// Process id.
    pub pid: u32,
    /// Start time in the kernel's ticks since boot; 0 if unknown.
    pub start: u64,
    /// Id of the boot; empty if unknown.
    pub boot: String,
}

impl ProcessId {
    /// The current process.
    #[must_use]
    pub fn current() -> Self {
        let pid = std::process::id();
        Self { pid, start: start_of(pid).unwrap_or(0), boot: boot_id().to_owned() }
    }

    /// The process with this pid, if there is one.
    #[must_use]
    pub fn from_pid(pid: u32) -> Option<Self> {
        Some(Self { pid, start: start_of(pid)?, boot: boot_id().to_owned() })
    }

    /// Whether it still runs.
    #[must_use]
    pub fn alive(&self) -> bool {
        if self.boot != boot_id() {
            return false;
        }
        match start_of(self.pid) {
            Some(start) => self.start == 0 || start == self.start,
            None => cfg!(not(target_os = "linux")) && signals(self.pid),
        }
    }
}

/// Reads field 22 of `/proc/PID/stat`. The second field, the name, may contain blanks and brackets, so counting begins
/// after the last bracket. A zombie counts as ended.
fn start_of(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    if fields.next()? == "Z" {
        return None;
    }
    fields.nth(18)?.parse().ok()
}

fn signals(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| rustix::process::test_kill_process(pid).is_ok())
}

/// The id of this boot; empty if unknown. Cached, because it is read often and never changes.
#[must_use]
pub fn boot_id() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::ProcessId;

    #[test]
    fn this_process_lives_and_others_with_its_number_do_not() {
        let me = ProcessId::current();
        assert!(me.alive());
        assert!(!ProcessId { start: me.start + 1, ..me.clone() }.alive());
        assert!(!ProcessId { boot: "another".into(), ..me.clone() }.alive());
        assert!(!ProcessId { pid: u32::MAX, ..me }.alive());
    }
}
