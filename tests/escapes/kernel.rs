//! System calls and files that reach the host's kernel.

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener};

use coracle_types::{EngineKind, Exec, Exit, Ids, random_hex};

use super::{argv, output_of, sh};
use crate::engines::{Case, Running, Way, with_real_engines};
use crate::guest::{add_perl, perl};

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;
const EAFNOSUPPORT: i32 = 97;

#[cfg(target_arch = "x86_64")]
mod call {
    pub(super) const SOCKET: u32 = 41;
    pub(super) const CLONE: u32 = 56;
    pub(super) const KEYCTL: u32 = 250;
    pub(super) const ADD_KEY: u32 = 248;
    pub(super) const REQUEST_KEY: u32 = 249;
    pub(super) const UNSHARE: u32 = 272;
    pub(super) const PERF_EVENT_OPEN: u32 = 298;
    pub(super) const OPEN_BY_HANDLE_AT: u32 = 304;
    pub(super) const SETNS: u32 = 308;
    pub(super) const BPF: u32 = 321;
    pub(super) const USERFAULTFD: u32 = 323;
    pub(super) const INIT_MODULE: u32 = 175;
    pub(super) const KEXEC_LOAD: u32 = 246;
}
#[cfg(target_arch = "aarch64")]
mod call {
    pub(super) const SOCKET: u32 = 198;
    pub(super) const CLONE: u32 = 220;
    pub(super) const KEYCTL: u32 = 219;
    pub(super) const ADD_KEY: u32 = 217;
    pub(super) const REQUEST_KEY: u32 = 218;
    pub(super) const UNSHARE: u32 = 97;
    pub(super) const PERF_EVENT_OPEN: u32 = 241;
    pub(super) const OPEN_BY_HANDLE_AT: u32 = 265;
    pub(super) const SETNS: u32 = 268;
    pub(super) const BPF: u32 = 280;
    pub(super) const USERFAULTFD: u32 = 282;
    pub(super) const INIT_MODULE: u32 = 105;
    pub(super) const KEXEC_LOAD: u32 = 104;
}

const FSOPEN: u32 = 430;
const OPEN_TREE: u32 = 428;

/// Without a guest; but Podman's own profile allows namespaces and keyrings, and what closes them is the guest's filter.
async fn with_perl(case: &Case) -> Running<'_> {
    let way = if case.engine() == EngineKind::Podman { Way::Socket } else { Way::Plain };
    let running = case.runs(way).await;
    add_perl(&running).await;
    running
}

/// The error of a system call, or 0.
async fn errno(running: &Running<'_>, call: u32, arguments: &str) -> i32 {
    // Copies, since a text is passed by its address.
    let program = format!("my @all = ({arguments}); print syscall({call}, @all) < 0 ? $! + 0 : 0");
    running.printed(perl(&program)).await.parse().unwrap()
}

async fn refused(running: &Running<'_>, call: u32, arguments: &str) {
    let errno = errno(running, call, arguments).await;
    let (engine, refusals) = (running.case.engine(), [EPERM, ENOSYS, EAFNOSUPPORT]);
    assert!(refusals.contains(&errno), "on {engine}: call {call} with {arguments}: error {errno}");
}

/// CVE-2022-0492: a release agent of version 1's control groups runs a program of the host's root.
#[tokio::test]
async fn no_release_agent_can_be_set() {
    with_real_engines(async |case| {
        let running = case.runs(Way::Plain).await;
        let script = "mkdir -p /tmp/c
            for options in rdma memory pids devices; do busybox mount -t cgroup -o $options none /tmp/c && echo mounted; done
            busybox mount -t cgroup2 none /tmp/c && echo mounted
            busybox unshare -UrC busybox mount -t cgroup -o memory none /tmp/c && echo mounted
            for at in $(busybox find /sys/fs/cgroup -name release_agent -o -name notify_on_release 2>/dev/null); do
            (: >> $at) && echo opened $at; done; true";
        assert_eq!(running.ran(sh(script)).await.stdout.text(), "");
    })
    .await;
}

/// CVE-2020-15257: a daemon of the host listens on a socket without a file, which belongs to its network namespace.
#[tokio::test]
async fn sockets_of_the_host_without_a_path_are_out_of_reach() {
    with_real_engines(async |case| {
        let name = format!("coracle-canary-{}", random_hex::<8>());
        let _listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
        let running = with_perl(case).await;
        let listed = running.printed(sh("cat /proc/net/unix")).await;
        assert!(!listed.contains(&name) && !listed.contains("containerd"), "{listed}");
        let program =
            format!("socket(my $s, 1, 1, 0) or die; print connect($s, pack('S', 1) . qq(\\0{name})) ? 'in' : $! + 0");
        assert_ne!(running.printed(perl(&program)).await, "in");
    })
    .await;
}

/// CVE-2020-14386, CVE-2021-22555 and others: bugs of rare sockets and of the network's filters, which root of a new user
/// namespace reaches.
#[tokio::test]
async fn neither_packet_sockets_nor_raw_ones_nor_the_hosts_ciphers_are_there() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        for arguments in ["17, 3, 768", "17, 2, 0", "2, 3, 1", "2, 3, 255"] {
            refused(&running, call::SOCKET, arguments).await;
        }
        // The machine around this one, the kernel's ciphers, and families whose modules are loaded on use.
        // Docker refuses the first two in later releases.
        if case.engine() == EngineKind::Embedded {
            for family in [40, 38, 29, 30, 21, 31, 33, 42, 44] {
                refused(&running, call::SOCKET, &format!("{family}, 5, 0")).await;
            }
        }
        assert_eq!(errno(&running, call::SOCKET, "2, 1, 0").await, 0);
    })
    .await;
}

/// CVE-2022-0185, CVE-2023-32233, CVE-2024-1086: root of a namespace of its own reaches bugs that ask for its capabilities.
#[tokio::test]
async fn no_process_makes_a_namespace_or_a_mount() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        for flag in ["0x10000000", "0x00020000", "0x40000000", "0x10020000", "0x20000000", "0x02000000"] {
            refused(&running, call::UNSHARE, flag).await;
            refused(&running, call::CLONE, &format!("{flag} | 17, 0, 0, 0, 0")).await;
        }
        for (number, arguments) in
            [(FSOPEN, "qq(tmpfs\\0), 0"), (OPEN_TREE, "-100, qq(/\\0), 1"), (call::SETNS, "0, 0")]
        {
            let errno = errno(&running, number, arguments).await;
            assert_ne!(errno, 0, "{number}");
        }
    })
    .await;
}

/// The kernel's own machines: CVE-2021-3490, CVE-2022-23222 (bpf), CVE-2023-2002 and exploits that stop the kernel with
/// `userfaultfd`; `perf_event_open` of CVE-2013-2094.
#[tokio::test]
async fn the_kernels_machines_are_out_of_reach() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        for (number, arguments) in [
            (call::BPF, "0, 0, 0"),
            (call::USERFAULTFD, "0"),
            (call::PERF_EVENT_OPEN, "0, 0, -1, -1, 0"),
            (call::INIT_MODULE, "0, 0, 0"),
            (call::KEXEC_LOAD, "0, 0, 0, 0"),
        ] {
            refused(&running, number, arguments).await;
        }
    })
    .await;
}

/// CVE-2014-3519, "Shocker": a file handle leads to any file of the file system that a bind comes from.
#[tokio::test]
async fn no_file_is_opened_by_its_handle() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        // Root of the file system: inode 2.
        refused(&running, call::OPEN_BY_HANDLE_AT, "0, pack('IiLL', 8, 1, 2, 0), 0").await;
    })
    .await;
}

/// CVE-2016-0728, and keys of other containers: keyrings belong to users, not to containers.
#[tokio::test]
async fn keyrings_are_out_of_reach() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        for (number, arguments) in [
            (call::KEYCTL, "0, -3, 0, 0, 0"),
            (call::ADD_KEY, "qq(user\\0), qq(k\\0), qq(v), 1, -4"),
            (call::REQUEST_KEY, "qq(user\\0), qq(k\\0), 0, -4"),
        ] {
            refused(&running, number, arguments).await;
        }
        assert_eq!(running.ran(sh("cat /proc/keys")).await.stdout.text(), "");
    })
    .await;
}

/// Programs that the kernel starts on the host: for cores, modules, devices and unknown formats.
#[tokio::test]
async fn programs_that_the_host_starts_cannot_be_named() {
    with_real_engines(async |case| {
        for way in [Way::Plain, Way::Socket] {
            let running = case.runs(way).await;
            let script = "for at in /proc/sys/kernel/core_pattern /proc/sys/kernel/modprobe /proc/sys/kernel/hotplug \
                /proc/sys/kernel/poweroff_cmd /sys/kernel/uevent_helper /proc/sys/fs/binfmt_misc/register \
                /proc/sysrq-trigger /proc/sys/kernel/usermodehelper/bset /sys/kernel/mm/ksm/run; do \
                [ -e $at ] && (: >> $at) 2>/dev/null && echo opened $at; done; true";
            assert_eq!(running.ran(sh(script)).await.stdout.text(), "", "{way}");
        }
    })
    .await;
}

/// A node of the host's disk, read as `debugfs` does.
#[tokio::test]
async fn no_device_node_can_be_created() {
    with_real_engines(async |case| {
        let running = case.runs(Way::Plain).await;
        for user in [Ids::ROOT, Ids { uid: 1000, gid: 1000 }] {
            for words in [["b", "8", "0"], ["b", "254", "0"], ["c", "1", "1"], ["c", "5", "1"], ["c", "10", "229"]] {
                let words = [&["busybox", "mknod", "/tmp/node"][..], &words].concat();
                let it = running.ran(Exec { user, ..argv(&words) }).await;
                assert!(it.exit != Exit::Code(0), "{words:?}: {}", output_of(&it));
            }
        }
        let it = running.ran(sh("for at in $(busybox find /dev -type b); do echo $at; done")).await;
        assert_eq!(it.stdout.text(), "");
    })
    .await;
}

/// Processes of the host with the same PIDs cannot be seen, signalled or traced.
#[tokio::test]
async fn processes_of_the_host_are_invisible() {
    with_real_engines(async |case| {
        let running = case.runs(Way::Plain).await;
        let own = std::process::id();
        let it = running
            .ran(sh(&format!("kill -0 {own} && echo there; ls -d /proc/{own} 2>/dev/null; ls -d /proc/[0-9]* | wc -l")))
            .await;
        let shown = it.stdout.text();
        assert!(shown.trim().parse::<u32>().is_ok_and(|it| it < 10), "{shown}");
    })
    .await;
}
