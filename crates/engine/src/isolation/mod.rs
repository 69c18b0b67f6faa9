//! Interim tables.

use coracle_runtime::Capabilities;

pub(crate) const DEVICES: &[&str] = &["null", "zero", "full", "random", "urandom", "tty"];
pub(crate) const DEVICE_LINKS: &[(&str, &str)] = &[
    ("dev/fd", "/proc/self/fd"),
    ("dev/stdin", "/proc/self/fd/0"),
    ("dev/stdout", "/proc/self/fd/1"),
    ("dev/stderr", "/proc/self/fd/2"),
    ("dev/ptmx", "pts/ptmx"),
];
pub(crate) const MASKED_PATHS: &[&str] = &[
    "proc/acpi",
    "proc/asound",
    "proc/interrupts",
    "proc/kcore",
    "proc/keys",
    "proc/latency_stats",
    "proc/scsi",
    "proc/timer_list",
    "proc/timer_stats",
    "proc/sched_debug",
    "sys/firmware",
    "sys/devices/virtual/powercap",
];
pub(crate) const READ_ONLY_PATHS: &[&str] = &["proc/bus", "proc/fs", "proc/irq", "proc/sys", "proc/sysrq-trigger"];

pub(crate) fn capability_bits(capabilities: Capabilities) -> u64 {
    match capabilities {
        Capabilities::Packages | Capabilities::Guest => {
            [0, 1, 3, 4, 5, 6, 7, 8].iter().fold(0, |all, it| all | 1 << it)
        }
        Capabilities::None => 0,
    }
}

pub(crate) fn filter(_capabilities: u64) -> Vec<u8> {
    Vec::new()
}
