use super::compiler::{ALLOW, IF_ANY_BIT, IF_AT_LEAST, IF_EQUAL, JUMP, LOAD, REFUSE};
use super::*;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// What the kernel would answer: an error, or `None` for an allowed call.
pub(super) fn answer(program: &[sock_filter], architecture: u32, call: c_long, arguments: [u64; 6]) -> Option<i32> {
    let mut data = [(call as u32).to_le_bytes(), architecture.to_le_bytes()].concat();
    data.extend([0; 8]);
    data.extend(arguments.iter().flat_map(|it| it.to_le_bytes()));
    let (mut at, mut word) = (0, 0);
    loop {
        let sock_filter { code, jt, jf, k } = program[at];
        let jump = |holds: bool| usize::from(if holds { jt } else { jf });
        at += 1;
        match code {
            LOAD => word = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
            JUMP => at += k as usize,
            IF_EQUAL => at += jump(word == k),
            IF_AT_LEAST => at += jump(word >= k),
            IF_ANY_BIT => at += jump(word & k != 0),
            _ => return (k != ALLOW).then_some((k ^ REFUSE) as i32),
        }
    }
}

fn check(call: c_long, first: u64, expected: Option<i32>) {
    let arguments = [first, 0, 0, 0, 0, 0];
    assert_eq!(answer(program(), ARCHITECTURE, call, arguments), expected, "{call} {first:#x}");
}

#[test]
fn what_reaches_beyond_a_container_is_refused() {
    for call in [
        libc::SYS_mount,
        libc::SYS_umount2,
        libc::SYS_pivot_root,
        libc::SYS_chroot,
        libc::SYS_unshare,
        libc::SYS_setns,
        libc::SYS_open_tree,
        libc::SYS_move_mount,
        libc::SYS_fsopen,
        libc::SYS_fsmount,
        libc::SYS_mount_setattr,
        libc::SYS_bpf,
        libc::SYS_perf_event_open,
        libc::SYS_userfaultfd,
        libc::SYS_keyctl,
        libc::SYS_add_key,
        libc::SYS_request_key,
        libc::SYS_init_module,
        libc::SYS_finit_module,
        libc::SYS_delete_module,
        libc::SYS_kexec_load,
        libc::SYS_reboot,
        libc::SYS_swapon,
        libc::SYS_swapoff,
        libc::SYS_syslog,
        libc::SYS_acct,
        libc::SYS_open_by_handle_at,
        libc::SYS_clock_settime,
        libc::SYS_settimeofday,
        libc::SYS_sethostname,
        libc::SYS_quotactl,
        libc::SYS_kcmp,
        libc::SYS_pidfd_getfd,
        libc::SYS_process_madvise,
        libc::SYS_fanotify_init,
        libc::SYS_mbind,
        libc::SYS_move_pages,
        libc::SYS_migrate_pages,
        libc::SYS_vhangup,
    ] {
        check(call, 0, Some(EPERM));
    }
    for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_clone3, 470, 9999] {
        check(call, 0, Some(ENOSYS));
    }
}

#[test]
fn what_programs_and_the_guest_use_is_allowed() {
    for call in [
        libc::SYS_read,
        libc::SYS_execve,
        libc::SYS_exit_group,
        libc::SYS_seccomp,
        libc::SYS_prctl,
        libc::SYS_openat2,
        libc::SYS_close_range,
        libc::SYS_memfd_create,
        libc::SYS_pidfd_open,
        libc::SYS_pidfd_send_signal,
        libc::SYS_ptrace,
        libc::SYS_rseq,
        libc::SYS_statx,
        libc::SYS_futex,
        452,
        libc::SYS_wait4,
        libc::SYS_setgroups,
    ] {
        check(call, u64::MAX, None);
    }
}

#[test]
fn processes_are_made_and_namespaces_are_not() {
    check(libc::SYS_clone, (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64, None);
    check(libc::SYS_clone, 0x003d_0f00, None); // a thread of the C library
    for flag in [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWUSER,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
    ] {
        check(libc::SYS_clone, (flag | libc::SIGCHLD) as u32 as u64, Some(EPERM));
    }
}

#[test]
fn sockets_and_personalities_are_decided_by_the_bits_that_the_kernel_reads() {
    for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
        check(libc::SYS_socket, family as u64, None);
    }
    for family in [libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET, libc::AF_CAN, libc::AF_TIPC, libc::AF_KEY] {
        check(libc::SYS_socket, family as u64, Some(EAFNOSUPPORT));
        // The kernel uses only the lower half, so the filter must ignore the upper half too.
        check(libc::SYS_socket, family as u64 | 1 << 32, Some(EAFNOSUPPORT));
    }
    check(libc::SYS_personality, 0xffff_ffff, None);
    check(libc::SYS_personality, 0x0040_0000, Some(EPERM));
}

#[test]
fn other_architectures_have_no_calls() {
    assert_eq!(answer(program(), 0x4000_0003, 3, [0; 6]), Some(ENOSYS));
    check(libc::SYS_read | 0x4000_0000, 0, Some(ENOSYS));
}

#[test]
fn every_call_is_answered_within_a_dozen_steps() {
    assert!(program().len() < 400, "{}", program().len());
    let tree_depth = (program().len() as f64).log2().ceil();
    assert!(tree_depth < 10.0);
}

/// The kernel accepts the program, and a process continues under it.
#[test]
fn the_kernel_takes_the_program() {
    // Installed on a thread, so that it ends with the thread.
    let installed = std::thread::spawn(|| {
        rustix::thread::set_no_new_privs(true).unwrap();
        crate::sys::install_filter(program()).unwrap();
        (rustix::process::getpid(), std::fs::read_to_string("/proc/thread-self/status").unwrap())
    });
    let (_, status) = installed.join().unwrap();
    assert!(status.lines().any(|it| it == "Seccomp:\t2"), "{status}");
}
