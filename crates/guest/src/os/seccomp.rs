//! The seccomp filter: system calls that no command may make, independent of the engine's own profile.
//!
//! The BPF program is built once and installed by every child before it executes the command: a command never runs without
//! it. Calls that would set a set-id bit are suspended until the guest answers them (see
//! [`suid_guard`](crate::os::suid_guard)), through a listener that [`Filter::install`] returns.
#![expect(unsafe_code, reason = "a filter is installed by a system call that no safe wrapper offers")]

mod rules;

use std::os::fd::RawFd;

use libc::{ENOSYS, SECCOMP_FILTER_FLAG_NEW_LISTENER, c_ulong, sock_filter, sock_fprog};
use rustix::io::Errno;

use self::rules::{CallCondition, CallRule, RULES, RuleAction, SET_ID, STRICT_RULES};
use crate::os::raw_syscall;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// System calls of the x32 ABI have this bit and reach the same kernel functions under other numbers.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000;
const NOTIFY: u32 = 0x7fc0_0000;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// The BPF program, ready to be installed.
pub(crate) struct Filter {
    program: Vec<sock_filter>,
    flags: c_ulong,
}

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filter").field("steps", &self.program.len()).field("flags", &self.flags).finish()
    }
}

impl Filter {
    pub(crate) fn new() -> Self {
        Self { program: program(RULES.iter()), flags: 0 }
    }

    /// As [`new`](Self::new), and no command may read the memory of another one. For containers where all processes have one
    /// user.
    pub(crate) fn strict() -> Self {
        Self {
            program: program(RULES.iter().filter(|it| it.call != libc::SYS_prlimit64).chain(STRICT_RULES)),
            flags: 0,
        }
    }

    /// As [`new`](Self::new), and the guest is notified of modes with set-id bits. `flags` are those of the listener.
    pub(crate) fn with_listener(flags: c_ulong) -> Self {
        let program = program(RULES.iter().chain(SET_ID));
        Self { program, flags: SECCOMP_FILTER_FLAG_NEW_LISTENER | flags }
    }

    /// Installs the filter on this thread and its future children, not on other threads or processes that share its
    /// memory. Allocates nothing and does not change `errno`, so a child may call it. A filter with notifications returns
    /// its listener, which is closed on exec.
    ///
    /// # Errors
    /// Fails if the kernel refuses; then no filter is installed.
    pub(crate) fn install(&self) -> Result<Option<RawFd>, Errno> {
        let program = sock_fprog { len: self.program.len() as u16, filter: self.program.as_ptr().cast_mut() };
        let (mode, flags) = (libc::SECCOMP_SET_MODE_FILTER as usize, self.flags as usize);
        // SAFETY: the kernel copies the program, whose length is that of a live vector, and does not write to it.
        let result = unsafe { raw_syscall::call(libc::SYS_seccomp, [mode, flags, &raw const program as usize, 0, 0]) }?;
        Ok((self.flags != 0).then_some(result as RawFd))
    }
}

fn program<'a>(rules: impl Iterator<Item = &'a CallRule>) -> Vec<sock_filter> {
    let mut program = vec![
        step(LOAD, ARCHITECTURE_AT),
        jump(IF_EQUAL, ARCHITECTURE, 1, 0),
        refuse(ENOSYS),
        step(LOAD, NUMBER_AT),
        jump(IF_ANY_BIT, X32, 0, 1),
        refuse(ENOSYS),
    ];
    rules.for_each(|rule| rule.write(&mut program));
    program.push(step(RETURN, ALLOW));
    program
}

impl CallRule {
    /// Appends the instructions of this rule: other calls jump over them, and its own call returns in them.
    fn write(&self, program: &mut Vec<sock_filter>) {
        let mut block = Vec::new();
        match self.when {
            CallCondition::Always => {}
            CallCondition::AnyBit { argument, bits } => {
                block.extend([lower(argument), jump(IF_ANY_BIT, bits as u32, 1, 0), step(RETURN, ALLOW)]);
            }
            CallCondition::BothAnyBit([(one, bits), (other, others)]) => block.extend([
                lower(one),
                jump(IF_ANY_BIT, bits as u32, 0, 2),
                lower(other),
                jump(IF_ANY_BIT, others as u32, 1, 0),
                step(RETURN, ALLOW),
            ]),
            CallCondition::OneOf { argument, values } => {
                block.push(lower(argument));
                for (at, value) in values.iter().enumerate() {
                    block.push(jump(IF_EQUAL, *value as u32, (values.len() - at) as u8, 0));
                }
                block.push(step(RETURN, ALLOW));
            }
            CallCondition::Sets { argument, value, pointer } => block.extend([
                lower(argument),
                jump(IF_EQUAL, value, 0, 4),
                lower(pointer),
                jump(IF_ANY_BIT, u32::MAX, 3, 0),
                upper(pointer),
                jump(IF_ANY_BIT, u32::MAX, 1, 0),
                step(RETURN, ALLOW),
            ]),
            CallCondition::SetsOrOther { argument, value, pointer, other } => block.extend([
                lower(pointer),
                jump(IF_ANY_BIT, u32::MAX, 2, 0),
                upper(pointer),
                jump(IF_ANY_BIT, u32::MAX, 0, 4),
                lower(other),
                jump(IF_ANY_BIT, u32::MAX, 3, 0),
                lower(argument),
                jump(IF_EQUAL, value, 1, 0),
                step(RETURN, ALLOW),
            ]),
        }
        block.push(match self.then {
            RuleAction::Refuse(errno) => refuse(errno),
            RuleAction::Notify => step(RETURN, NOTIFY),
        });
        program.push(jump(IF_EQUAL, self.call as u32, 0, block.len() as u8));
        program.append(&mut block);
    }
}

fn step(code: u16, k: u32) -> sock_filter {
    jump(code, k, 0, 0)
}

fn jump(code: u16, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code, jt, jf, k }
}

fn refuse(errno: i32) -> sock_filter {
    step(RETURN, REFUSE | errno as u32)
}

/// Both architectures are little-endian.
fn lower(argument: u32) -> sock_filter {
    step(LOAD, 16 + 8 * argument)
}

fn upper(argument: u32) -> sock_filter {
    step(LOAD, 20 + 8 * argument)
}

#[cfg(test)]
mod tests {
    use libc::{EPERM, c_long};

    use super::rules::MARK;
    use super::*;

    /// Stands for a notification of the guest.
    const NOTIFIED: i32 = -1;

    /// Evaluates the filter: an errno, or `None` for an allowed call.
    fn evaluate(filter: &Filter, architecture: u32, call: c_long, arguments: [u64; 6]) -> Option<i32> {
        let mut data = [(call as u32).to_le_bytes(), architecture.to_le_bytes()].concat();
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|it| it.to_le_bytes()));
        let (program, mut at, mut word) = (&filter.program, 0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            at += 1;
            match code {
                LOAD => word = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
                IF_EQUAL => at += jump(word == k),
                IF_ANY_BIT => at += jump(word & k != 0),
                _ if k == NOTIFY => return Some(NOTIFIED),
                _ => return (k != ALLOW).then_some((k ^ REFUSE) as i32),
            }
        }
    }

    /// Checks that both filters return the same.
    fn check(call: c_long, arguments: &[u64], expected: Option<i32>) {
        check_with(&Filter::new(), call, arguments, expected);
        check_with(&Filter::with_listener(0), call, arguments, expected);
    }

    fn check_with(filter: &Filter, call: c_long, arguments: &[u64], expected: Option<i32>) {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        assert_eq!(evaluate(filter, ARCHITECTURE, call, all), expected, "{call} {arguments:?}");
    }

    #[test]
    fn dangerous_calls_are_refused_and_others_allowed() {
        let new_user = libc::CLONE_NEWUSER as u64;
        check(libc::SYS_unshare, &[new_user], Some(EPERM));
        check(libc::SYS_unshare, &[libc::CLONE_NEWNS as u64 | new_user], Some(EPERM));
        check(libc::SYS_unshare, &[libc::CLONE_NEWNS as u64], None);
        check(libc::SYS_clone, &[new_user | libc::SIGCHLD as u64], Some(EPERM));
        check(libc::SYS_clone, &[libc::CLONE_VM as u64 | libc::SIGCHLD as u64], None);
        check(libc::SYS_clone3, &[], Some(ENOSYS));
        for call in [libc::SYS_keyctl, libc::SYS_add_key, libc::SYS_request_key, libc::SYS_bpf] {
            check(call, &[], Some(EPERM));
        }
        check(libc::SYS_perf_event_open, &[], Some(EPERM));
        check(libc::SYS_userfaultfd, &[], Some(EPERM));
        for call in [libc::SYS_io_uring_setup, libc::SYS_io_uring_enter, libc::SYS_io_uring_register] {
            check(call, &[], Some(ENOSYS));
        }
        for call in [libc::SYS_read, libc::SYS_execve, libc::SYS_ptrace, libc::SYS_exit_group] {
            check(call, &[u64::MAX; 6], None);
        }
    }

    #[test]
    fn with_one_user_no_process_may_inspect_another() {
        let calls = [libc::SYS_ptrace, libc::SYS_process_vm_readv, libc::SYS_process_vm_writev];
        for call in calls.into_iter().chain([libc::SYS_pidfd_getfd, libc::SYS_process_madvise]) {
            check_with(&Filter::strict(), call, &[], Some(EPERM));
            check(call, &[], None);
        }
        check_with(&Filter::strict(), libc::SYS_bpf, &[], Some(EPERM));
        let limit = libc::RLIMIT_NOFILE as u64;
        for (arguments, expected) in [
            ([1, limit, 1, 0], Some(EPERM)),
            ([1, limit, 1 << 32, 0], Some(EPERM)),
            ([1, limit, 0, 1], None),
            ([0, limit, 1, 0], None),
            ([0, limit, 1 << 32, 0], None),
            ([0, MARK as u64, 1, 0], Some(EPERM)),
            ([0, MARK as u64, 1 << 32, 0], Some(EPERM)),
            ([0, MARK as u64, 0, 1], None),
        ] {
            check_with(&Filter::strict(), libc::SYS_prlimit64, &arguments, expected);
        }
        check(libc::SYS_prlimit64, &[1, limit, 1, 0], None);
        check_with(&Filter::strict(), libc::SYS_read, &[], None);
    }

    #[test]
    fn sockets_are_filtered_by_their_family() {
        for family in [libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET] {
            check(libc::SYS_socket, &[family as u64], Some(EPERM));
            check(libc::SYS_socket, &[family as u64 | 7 << 32], Some(EPERM));
        }
        for family in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK] {
            check(libc::SYS_socket, &[family as u64], None);
        }
    }

    #[test]
    fn the_mark_can_be_read_and_not_changed() {
        check(libc::SYS_prlimit64, &[0, MARK as u64, 0, 1], None);
        check(libc::SYS_prlimit64, &[0, MARK as u64, 1, 0], Some(EPERM));
        check(libc::SYS_prlimit64, &[0, MARK as u64, 1 << 32, 0], Some(EPERM));
        check(libc::SYS_prlimit64, &[0, libc::RLIMIT_NOFILE as u64, 1, 0], None);
        #[cfg(target_arch = "x86_64")]
        check(libc::SYS_setrlimit, &[MARK as u64, 1], Some(EPERM));
    }

    #[test]
    fn calls_of_another_architecture_are_refused() {
        let i386 = 0x4000_0003;
        for filter in [Filter::new(), Filter::with_listener(0)] {
            assert_eq!(evaluate(&filter, i386, 20, [0; 6]), Some(ENOSYS));
        }
        check(libc::SYS_read | c_long::from(X32 as i32), &[], Some(ENOSYS));
    }

    /// Checks a call with a mode in that argument, and optionally flags in the argument before it.
    fn check_modes(call: c_long, mode_at: usize, flags: Option<i32>, expected: i32) {
        for (mode, expected) in [
            (0o4755, Some(expected)),
            (0o2755, Some(expected)),
            (0o6000, Some(expected)),
            (0o4755 | 1 << 32, Some(expected)),
            (0o1777, None),
            (0o755 | 0o6000 << 32, None),
        ] {
            let mut arguments = [0; 6];
            arguments[mode_at] = mode;
            if let Some(flags) = flags {
                arguments[mode_at - 1] = flags as u64;
            }
            check_with(&Filter::with_listener(0), call, &arguments, expected);
            check_with(&Filter::new(), call, &arguments, None);
        }
    }

    #[test]
    fn a_mode_with_a_set_id_bit_notifies_the_guest_or_is_refused() {
        check_modes(libc::SYS_fchmod, 1, None, NOTIFIED);
        check_modes(libc::SYS_fchmodat, 2, None, NOTIFIED);
        check_modes(libc::SYS_mknodat, 2, None, EPERM);
        for flags in [libc::O_CREAT | libc::O_WRONLY, libc::O_TMPFILE | libc::O_RDWR] {
            check_modes(libc::SYS_openat, 3, Some(flags), NOTIFIED);
        }
        #[cfg(target_arch = "x86_64")]
        {
            check_modes(libc::SYS_chmod, 1, None, NOTIFIED);
            check_modes(libc::SYS_creat, 1, None, EPERM);
            check_modes(libc::SYS_mknod, 1, None, EPERM);
            check_modes(libc::SYS_open, 2, Some(libc::O_CREAT), NOTIFIED);
        }
        for call in [libc::SYS_openat2, libc::SYS_fchmodat2] {
            check_with(&Filter::with_listener(0), call, &[], Some(ENOSYS));
            check_with(&Filter::new(), call, &[], None);
        }
    }

    #[test]
    fn a_mode_is_ignored_if_the_call_creates_no_file() {
        let directory = (libc::O_RDONLY | libc::O_DIRECTORY) as u64;
        for flags in [0, libc::O_RDWR as u64, directory] {
            check(libc::SYS_openat, &[0, 0, flags, 0o6755], None);
        }
        check(libc::SYS_mkdirat, &[0, 0, 0o6755], None);
    }
}
