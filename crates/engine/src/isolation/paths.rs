//! Masked and read-only paths, and the content of `/dev`. Paths that the kernel does not have are skipped.

/// Paths in `/proc` and `/sys` that show or change the host. Each is covered by an empty, read-only directory or by
/// `/dev/null`.
pub(crate) const MASKED: &[&str] = &[
    // Docker's.
    "/proc/acpi",
    "/proc/asound",
    // Times of key strokes on the host (GHSA-6fw5-f8r9-fgfm).
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    // Energy of the processor, a side channel (GHSA-jq35-85cj-fj4p).
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];

/// Paths that only the host's root may read, masked if root inside is root outside. Each mask adds 25 µs to a start.
pub(crate) const MASKED_FROM_ROOT: &[&str] = &[
    "/proc/key-users",
    "/proc/kmsg",
    "/proc/kpagecgroup",
    "/proc/kpagecount",
    "/proc/kpageflags",
    "/proc/slabinfo",
    "/proc/vmallocinfo",
];

/// Mounts below the host's own `/sys`; a new instance of sysfs has none of them.
pub(crate) const MASKED_IN_HOST_SYS: &[&str] = &[
    "/sys/fs/bpf",
    "/sys/fs/cgroup",
    "/sys/fs/selinux",
    "/sys/kernel/debug",
    "/sys/kernel/security",
    "/sys/kernel/tracing",
];

/// The directories of processors below this have counters of thermal throttling, a timing side channel
/// (GHSA-6fw5-f8r9-fgfm).
pub(crate) const PROCESSORS: &str = "/sys/devices/system/cpu";

/// The masked part of a processor's directory.
pub(crate) const MASKED_OF_PROCESSOR: &str = "thermal_throttle";

/// Docker's read-only paths.
pub(crate) const READ_ONLY: &[&str] = &["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

/// A device node of `/dev`: mode 0666, owned by root.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DeviceNode {
    pub(crate) name: &'static str,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

/// The default devices of the OCI runtime specification, except the console: no container starts with a terminal. In a
/// user namespace nodes cannot be created, so the host's are bound.
pub(crate) const DEVICES: &[DeviceNode] = &[
    DeviceNode { name: "null", major: 1, minor: 3 },
    DeviceNode { name: "zero", major: 1, minor: 5 },
    DeviceNode { name: "full", major: 1, minor: 7 },
    DeviceNode { name: "random", major: 1, minor: 8 },
    DeviceNode { name: "urandom", major: 1, minor: 9 },
    DeviceNode { name: "tty", major: 5, minor: 0 },
];

/// A symbolic link of `/dev`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) name: &'static str,
    pub(crate) target: &'static str,
}

/// The default links of the OCI runtime specification. Docker's `core` is omitted: it leads to the masked
/// `/proc/kcore`.
pub(crate) const LINKS: &[Link] = &[
    Link { name: "fd", target: "/proc/self/fd" },
    Link { name: "stdin", target: "/proc/self/fd/0" },
    Link { name: "stdout", target: "/proc/self/fd/1" },
    Link { name: "stderr", target: "/proc/self/fd/2" },
    Link { name: "ptmx", target: "pts/ptmx" },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_paths_that_docker_masks_are_masked() {
        // `docker inspect --format '{{.HostConfig.MaskedPaths}}'` of release 20.10, which the tests also run on.
        let docker = [
            "/proc/asound",
            "/proc/acpi",
            "/proc/kcore",
            "/proc/keys",
            "/proc/latency_stats",
            "/proc/timer_list",
            "/proc/timer_stats",
            "/proc/sched_debug",
            "/proc/scsi",
            "/sys/firmware",
        ];
        assert!(docker.iter().all(|it| MASKED.contains(it)));
        let mut all = [MASKED, MASKED_FROM_ROOT, MASKED_IN_HOST_SYS, READ_ONLY].concat();
        all.sort_unstable();
        assert!(all.windows(2).all(|it| it[0] != it[1]));
    }
}
