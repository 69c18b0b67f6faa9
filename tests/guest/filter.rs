//! System calls that are refused to commands, even if the engine allows them.

use coracle_types::{Exec, Exit, Ids};

use super::{AGENT, argv, perl, sh, total, with_perl};
use crate::engines::{with_a_real_guest, with_real_engines};

#[cfg(target_arch = "x86_64")]
mod call {
    pub(super) const SOCKET: u32 = 41;
    pub(super) const PTRACE: u32 = 101;
    pub(super) const ADD_KEY: u32 = 248;
    pub(super) const KEYCTL: u32 = 250;
    pub(super) const PROCESS_VM_READV: u32 = 310;
    pub(super) const BPF: u32 = 321;
}
#[cfg(target_arch = "aarch64")]
mod call {
    pub(super) const PTRACE: u32 = 117;
    pub(super) const SOCKET: u32 = 198;
    pub(super) const ADD_KEY: u32 = 217;
    pub(super) const KEYCTL: u32 = 219;
    pub(super) const PROCESS_VM_READV: u32 = 270;
    pub(super) const BPF: u32 = 280;
}
const IO_URING_SETUP: u32 = 425;
const PIDFD_OPEN: u32 = 434;

const EPERM: i32 = 1;
const ENOSYS: i32 = 38;

#[tokio::test]
async fn no_command_gains_privileges_and_an_agent_has_none() {
    with_a_real_guest(async |running| {
        for user in [Ids::ROOT, AGENT] {
            let status = running.printed(Exec { user, ..argv(&["cat", "/proc/self/status"]) }).await;
            let field = |name: &str| status.lines().find_map(|it| it.strip_prefix(name)).unwrap().trim().to_owned();
            assert_eq!((field("NoNewPrivs:"), field("Seccomp:")), ("1".into(), "2".into()), "{status}");
            if user == AGENT {
                for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
                    assert_eq!(field(set), "0".repeat(16), "{set}");
                }
            }
        }
    })
    .await;
}

#[tokio::test]
async fn no_command_makes_a_namespace_a_mount_or_a_device() {
    with_a_real_guest(async |running| {
        for user in [Ids::ROOT, AGENT] {
            for words in [
                &["unshare", "-U", "true"][..],
                &["unshare", "-m", "true"],
                &["mount", "-t", "tmpfs", "none", "/tmp"],
                &["mknod", "/tmp/disk", "b", "8", "0"],
            ] {
                let it = running.ran(Exec { user, ..argv(&[&["busybox"], words].concat()) }).await;
                let (stderr, refused) = (it.stderr.text(), ["not permitted", "denied", "must be superuser"]);
                assert!(it.exit != Exit::Code(0) && refused.iter().any(|it| stderr.contains(it)), "{words:?}: {it:?}");
            }
        }
    })
    .await;
}

/// The result of a system call: its errno, or 0.
fn errno(call: u32, arguments: &str) -> Exec {
    perl(&format!("print syscall({call}, {arguments}) < 0 ? $! + 0 : 0"))
}

#[tokio::test]
async fn calls_that_expose_the_kernel_are_refused() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        for user in [Ids::ROOT, AGENT] {
            for (call, arguments, expected) in [
                (call::KEYCTL, "0, -3, 0, 0, 0", EPERM),
                (call::ADD_KEY, "0, 0, 0, 0, -3", EPERM),
                (call::BPF, "0, 0, 0", EPERM),
                (IO_URING_SETUP, "1, 0", ENOSYS),
                (call::SOCKET, "2, 3, 1", EPERM),  // raw, of the internet
                (call::SOCKET, "17, 3, 0", EPERM), // packets
                (call::SOCKET, "38, 5, 0", EPERM), // the kernel's ciphers
                (call::SOCKET, "40, 1, 0", EPERM), // the machine around this one
                (call::SOCKET, "2, 1, 0", 0),
                (PIDFD_OPEN, "-5, 0", 22), // one that is let through, so that the others mean something
            ] {
                let printed = running.printed(Exec { user, ..errno(call, arguments) }).await;
                assert_eq!(printed, expected.to_string(), "{user}: {call}");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn no_process_inside_reads_pid_1() {
    with_real_engines(async |case| {
        let running = with_perl(case).await;
        let (attach, seize) = ("16, PID, 0, 0", "0x4206, PID, 0, 0");
        for user in [Ids::ROOT, AGENT] {
            for file in ["environ", "mem", "maps", "auxv", "stack"] {
                let it = running.ran(Exec { user, ..argv(&["cat", &format!("/proc/1/{file}")]) }).await;
                assert!(it.exit == Exit::Code(1) && it.stdout.total_bytes() == 0, "{user}: {file}: {it:?}");
            }
            for dir in ["root/", "cwd/"] {
                let it = running.ran(Exec { user, ..argv(&["ls", &format!("/proc/1/{dir}")]) }).await;
                assert!(it.exit == Exit::Code(1) && it.stdout.total_bytes() == 0, "{user}: {dir}: {it:?}");
            }
            // Root may see which descriptors exist, but not what they refer to.
            let open = "for n in /proc/1/fd/* /proc/1/fd/5; do readlink $n; (echo x > $n && echo opened) 2>&-; cat $n; done";
            let it = running.ran(Exec { user, limits: total(5000), ..sh(open) }).await;
            assert!(it.exit == Exit::Code(1) && it.stdout.total_bytes() == 0, "{user}: {it:?}");
            for arguments in [attach, seize] {
                let traced = running.printed(Exec { user, ..errno(call::PTRACE, &arguments.replace("PID", "1")) }).await;
                assert_eq!(traced, EPERM.to_string(), "{user}: {arguments}");
            }
            let read = "my ($b, $v) = (\"x\" x 8); $v = pack(\"PQ\", $b, 8); print syscall(CALL, 1, $v, 1, $v, 1, 0) < 0 \
                        ? $! + 0 : 0";
            let read = perl(&read.replace("CALL", &call::PROCESS_VM_READV.to_string()));
            assert_eq!(running.printed(Exec { user, ..read }).await, EPERM.to_string(), "{user}");
        }
        let signals = sh("kill -9 1; kill -STOP 1; sleep 0.1; echo on");
        assert_eq!(running.ran(signals).await.stdout.text(), "on\n");
        // A process may trace its own user's processes, so the test checks PID 1.
        let own = format!(
            "if (!($p = fork)) {{ sleep 9 }} print syscall({}, {}) < 0 ? $! + 0 : 0; kill 9, $p; waitpid $p, 0",
            call::PTRACE,
            attach.replace("PID", "$p"),
        );
        assert_eq!(running.printed(perl(&own)).await, "0");
        assert!(running.printed(sh("cat /proc/self/environ")).await.contains("PATH="));
    })
    .await;
}
