//! Memory of a process of this host.

/// Memory of a process, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    pub(crate) now: u64,
    /// The most that it ever had.
    pub(crate) most: u64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let value = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
            value.trim().trim_end_matches(" kB").parse().unwrap()
        };
        Self { now: field("VmRSS:"), most: field("VmHWM:") }
    }
}
