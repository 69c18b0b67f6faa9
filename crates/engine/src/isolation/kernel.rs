//! Mounts of kernel file systems, limits of processes and kernel settings of a container.

use rustix::mount::MountAttrFlags;
use rustix::process::Resource;

/// A mount of a kernel file system, made in this order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KernelMount {
    pub(crate) kind: &'static str,
    pub(crate) target: &'static str,
    /// Options of the file system, `key=value`.
    pub(crate) options: &'static [&'static str],
    pub(crate) attributes: MountAttrFlags,
    /// Skipped if the kernel does not have it, or refuses it in a user namespace.
    pub(crate) optional: bool,
}

const HARMLESS: MountAttrFlags =
    MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NODEV).union(MountAttrFlags::MOUNT_ATTR_NOEXEC);

/// Docker's mounts, but `/dev` is also `noexec`. `/sys` shows the network namespace of the process that mounts it, so
/// it is mounted only if the container has its own network namespace.
pub(crate) const MOUNTS: &[KernelMount] = &[
    KernelMount { kind: "proc", target: "/proc", options: &[], attributes: HARMLESS, optional: false },
    KernelMount {
        kind: "tmpfs",
        target: "/dev",
        options: &["mode=755", "size=65536k"],
        attributes: MountAttrFlags::MOUNT_ATTR_NOSUID
            .union(MountAttrFlags::MOUNT_ATTR_NOEXEC)
            .union(MountAttrFlags::MOUNT_ATTR_STRICTATIME),
        optional: false,
    },
    KernelMount {
        kind: "devpts",
        target: "/dev/pts",
        options: &["newinstance", "ptmxmode=0666", "mode=0620", "gid=5"],
        attributes: MountAttrFlags::MOUNT_ATTR_NOSUID.union(MountAttrFlags::MOUNT_ATTR_NOEXEC),
        optional: false,
    },
    KernelMount { kind: "mqueue", target: "/dev/mqueue", options: &[], attributes: HARMLESS, optional: true },
    KernelMount {
        kind: "tmpfs",
        target: "/dev/shm",
        options: &["mode=1777", "size=65536k"],
        attributes: HARMLESS,
        optional: false,
    },
    KernelMount {
        kind: "sysfs",
        target: "/sys",
        options: &[],
        attributes: HARMLESS.union(MountAttrFlags::MOUNT_ATTR_RDONLY),
        optional: false,
    },
];

/// A limit of each process, soft and hard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessLimit {
    pub(crate) resource: Resource,
    pub(crate) soft: u64,
    pub(crate) hard: u64,
}

/// Limits that the request does not set.
///
/// - Open files: Docker passes on its daemon's limit, which systemd's unit makes unlimited. Programs that close every
///   possible descriptor then take minutes.
/// - Processes: the control group limits them. `RLIMIT_NPROC` counts all processes of a user on the host.
/// - Core dumps: none, since the host's `core_pattern` may start a program of the host.
///
/// Unlimited resources are listed too, because the engine's own process may have a limit that containers would inherit.
pub(crate) const PROCESS_LIMITS: &[ProcessLimit] = &[
    ProcessLimit { resource: Resource::Nofile, soft: 1024, hard: 524_288 },
    ProcessLimit { resource: Resource::Core, soft: 0, hard: 0 },
    ProcessLimit { resource: Resource::Memlock, soft: 8 << 20, hard: 8 << 20 },
    ProcessLimit { resource: Resource::Stack, soft: 8 << 20, hard: NO_LIMIT },
    unlimited(Resource::As),
    unlimited(Resource::Cpu),
    unlimited(Resource::Data),
    unlimited(Resource::Fsize),
    unlimited(Resource::Nproc),
    unlimited(Resource::Rss),
];

/// `RLIM_INFINITY`.
const NO_LIMIT: u64 = u64::MAX;

const fn unlimited(resource: Resource) -> ProcessLimit {
    ProcessLimit { resource, soft: NO_LIMIT, hard: NO_LIMIT }
}

/// Docker's settings for a container's own network namespace since 20.10: ports below 1024 without a capability, and
/// `ping` without raw sockets. They are written before `/proc/sys` becomes read-only. The kernel refuses groups that
/// the user namespace does not map, so the range ends with the last mapped one.
pub(crate) fn network_settings(last_group: u32) -> [(&'static str, String); 2] {
    [("net/ipv4/ip_unprivileged_port_start", "0".to_owned()), ("net/ipv4/ping_group_range", format!("0 {last_group}"))]
}
