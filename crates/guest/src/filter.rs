//! The system calls that no command may make, whatever the engine's own profile lets pass.
//!
//! A program for the kernel's packet filter machine, made once and installed by every child before it becomes the
//! command: no filter, no command. Rules that need more than a system call's numbers (the modes that would make a
//! set-id file on a bind, which the guest has to answer for) become rows of [`RULES`] too, with a listener that
//! [`Filter::install`] hands back.
#![expect(unsafe_code, reason = "a filter is installed by a system call that no safe wrapper offers")]

use libc::{ENOSYS, EPERM, c_long, sock_filter, sock_fprog};
use rustix::io::Errno;

use crate::start::raw;

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;

/// Calls of the x32 kind carry this bit and reach the same functions of the kernel under other numbers.
const X32: u32 = 0x4000_0000;

const LOAD: u16 = 0x20;
const IF_EQUAL: u16 = 0x15;
const IF_ANY_BIT: u16 = 0x45;
const RETURN: u16 = 0x06;

const ALLOW: u32 = 0x7fff_0000;
const REFUSE: u32 = 0x0005_0000;

const NUMBER_AT: u32 = 0;
const ARCHITECTURE_AT: u32 = 4;

/// A call that is refused, with what it answers.
struct Rule {
    call: c_long,
    when: When,
    errno: i32,
}

/// Which of its calls. Arguments count from 0; unless said otherwise their lower halves are what the kernel looks at.
enum When {
    Always,
    AnyBit {
        argument: u32,
        bits: i32,
    },
    OneOf {
        argument: u32,
        values: &'static [i32],
    },
    /// The argument has this value, and the pointer is not null.
    Sets {
        argument: u32,
        value: u32,
        pointer: u32,
    },
}

const fn never(call: c_long, errno: i32) -> Rule {
    Rule { call, when: When::Always, errno }
}

/// At most one row for each call.
const RULES: &[Rule] = &[
    Rule { call: libc::SYS_clone, when: NEW_USER, errno: EPERM },
    Rule { call: libc::SYS_unshare, when: NEW_USER, errno: EPERM },
    // Its flags lie in memory, where a filter cannot look. The C libraries fall back to `clone`.
    never(libc::SYS_clone3, ENOSYS),
    never(libc::SYS_keyctl, EPERM),
    never(libc::SYS_add_key, EPERM),
    never(libc::SYS_request_key, EPERM),
    never(libc::SYS_bpf, EPERM),
    never(libc::SYS_perf_event_open, EPERM),
    never(libc::SYS_userfaultfd, EPERM),
    Rule {
        call: libc::SYS_socket,
        when: When::OneOf { argument: 0, values: &[libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET] },
        errno: EPERM,
    },
    never(libc::SYS_io_uring_setup, ENOSYS),
    never(libc::SYS_io_uring_enter, ENOSYS),
    never(libc::SYS_io_uring_register, ENOSYS),
    // A command is told by this limit (see `tree`). Nobody can raise it again, but everybody could lower it further.
    #[cfg(target_arch = "x86_64")]
    Rule { call: libc::SYS_setrlimit, when: When::OneOf { argument: 0, values: &[MARK] }, errno: EPERM },
    #[cfg(target_arch = "aarch64")]
    Rule { call: 164, when: When::OneOf { argument: 0, values: &[MARK] }, errno: EPERM },
    Rule { call: libc::SYS_prlimit64, when: When::Sets { argument: 1, value: MARK as u32, pointer: 2 }, errno: EPERM },
];

const NEW_USER: When = When::AnyBit { argument: 0, bits: libc::CLONE_NEWUSER };
const MARK: i32 = libc::RLIMIT_RTTIME as i32;

/// The program, ready to be installed.
pub(crate) struct Filter(Vec<sock_filter>);

impl std::fmt::Debug for Filter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Filter").field(&self.0.len()).finish()
    }
}

impl Filter {
    /// Writes the program.
    pub(crate) fn new() -> Self {
        let mut program = vec![
            step(LOAD, ARCHITECTURE_AT),
            jump(IF_EQUAL, ARCHITECTURE, 1, 0),
            refuse(ENOSYS),
            step(LOAD, NUMBER_AT),
            jump(IF_ANY_BIT, X32, 0, 1),
            refuse(ENOSYS),
        ];
        RULES.iter().for_each(|rule| rule.write(&mut program));
        program.push(step(RETURN, ALLOW));
        Self(program)
    }

    /// Puts it on this thread and all that comes after it: no other thread, and nobody who shares its memory. Allocates
    /// nothing and leaves `errno` alone, so a child may call it.
    ///
    /// # Errors
    /// The kernel's, and then there is no filter.
    pub(crate) fn install(&self) -> Result<(), Errno> {
        let program = sock_fprog { len: self.0.len() as u16, filter: self.0.as_ptr().cast_mut() };
        let arguments = [libc::SECCOMP_SET_MODE_FILTER as usize, 0, &raw const program as usize, 0, 0];
        // SAFETY: the kernel copies the program, whose length is that of a live vector, and writes nothing to it.
        unsafe { raw::call(libc::SYS_seccomp, arguments) }.map(drop)
    }
}

impl Rule {
    /// Appends its block, which is jumped over for all other calls and returns for its own.
    fn write(&self, program: &mut Vec<sock_filter>) {
        let mut block = Vec::new();
        match self.when {
            When::Always => {}
            When::AnyBit { argument, bits } => {
                block.extend([lower(argument), jump(IF_ANY_BIT, bits as u32, 1, 0), step(RETURN, ALLOW)]);
            }
            When::OneOf { argument, values } => {
                block.push(lower(argument));
                for (at, value) in values.iter().enumerate() {
                    block.push(jump(IF_EQUAL, *value as u32, (values.len() - at) as u8, 0));
                }
                block.push(step(RETURN, ALLOW));
            }
            When::Sets { argument, value, pointer } => block.extend([
                lower(argument),
                jump(IF_EQUAL, value, 0, 4),
                lower(pointer),
                jump(IF_ANY_BIT, u32::MAX, 3, 0),
                upper(pointer),
                jump(IF_ANY_BIT, u32::MAX, 1, 0),
                step(RETURN, ALLOW),
            ]),
        }
        block.push(refuse(self.errno));
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
    use super::*;

    /// What the kernel would answer: an error, or nothing when the call is let through.
    fn answer(architecture: u32, call: c_long, arguments: [u64; 6]) -> Option<i32> {
        let mut data = [(call as u32).to_le_bytes(), architecture.to_le_bytes()].concat();
        data.extend([0; 8]);
        data.extend(arguments.iter().flat_map(|it| it.to_le_bytes()));
        let (program, mut at, mut word) = (Filter::new().0, 0, 0);
        loop {
            let sock_filter { code, jt, jf, k } = program[at];
            let jump = |holds: bool| usize::from(if holds { jt } else { jf });
            at += 1;
            match code {
                LOAD => word = u32::from_le_bytes(data[k as usize..][..4].try_into().unwrap()),
                IF_EQUAL => at += jump(word == k),
                IF_ANY_BIT => at += jump(word & k != 0),
                _ => return (k != ALLOW).then_some((k ^ REFUSE) as i32),
            }
        }
    }

    fn check(call: c_long, arguments: &[u64], expected: Option<i32>) {
        let mut all = [0; 6];
        all[..arguments.len()].copy_from_slice(arguments);
        assert_eq!(answer(ARCHITECTURE, call, all), expected, "{call} {arguments:?}");
    }

    #[test]
    fn what_opens_the_kernel_is_refused_and_nothing_else() {
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
    fn sockets_are_told_by_their_family() {
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
        assert_eq!(answer(i386, 20, [0; 6]), Some(ENOSYS));
        check(libc::SYS_read | c_long::from(X32 as i32), &[], Some(ENOSYS));
    }
}
