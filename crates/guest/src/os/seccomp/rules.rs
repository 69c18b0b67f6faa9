//! The rules of the seccomp filter.

use libc::{ENOSYS, EPERM, c_long};

/// How one system call is treated.
pub(super) struct CallRule {
    pub(super) call: c_long,
    pub(super) when: CallCondition,
    pub(super) then: RuleAction,
}

pub(super) enum RuleAction {
    /// The call is not made and returns this errno.
    Refuse(i32),
    /// The guest decides, makes the call in the caller's place, and returns the result.
    Notify,
}

/// Selects calls by their arguments. Arguments count from 0; unless noted otherwise their lower 32 bits are compared.
pub(super) enum CallCondition {
    Always,
    AnyBit {
        argument: u32,
        bits: i32,
    },
    OneOf {
        argument: u32,
        values: &'static [i32],
    },
    /// Any of these bits in one argument, and any of those in another.
    BothAnyBit([(u32, i32); 2]),
    /// The argument has this value, and the pointer is not null.
    Sets {
        argument: u32,
        value: u32,
        pointer: u32,
    },
    /// As `Sets`, and also if the pointer is not null and `other` is not 0.
    SetsOrOther {
        argument: u32,
        value: u32,
        pointer: u32,
        other: u32,
    },
}

const fn never(call: c_long, errno: i32) -> CallRule {
    CallRule { call, when: CallCondition::Always, then: RuleAction::Refuse(errno) }
}

const fn forbidden(call: c_long, when: CallCondition) -> CallRule {
    CallRule { call, when, then: RuleAction::Refuse(EPERM) }
}

/// At most one rule per call.
pub(super) const RULES: &[CallRule] = &[
    forbidden(libc::SYS_clone, NEW_USER),
    forbidden(libc::SYS_unshare, NEW_USER),
    // Its flags are in memory, which a filter cannot read. The C libraries fall back to `clone`.
    never(libc::SYS_clone3, ENOSYS),
    never(libc::SYS_keyctl, EPERM),
    never(libc::SYS_add_key, EPERM),
    never(libc::SYS_request_key, EPERM),
    never(libc::SYS_bpf, EPERM),
    never(libc::SYS_perf_event_open, EPERM),
    never(libc::SYS_userfaultfd, EPERM),
    forbidden(
        libc::SYS_socket,
        CallCondition::OneOf { argument: 0, values: &[libc::AF_VSOCK, libc::AF_ALG, libc::AF_PACKET] },
    ),
    never(libc::SYS_io_uring_setup, ENOSYS),
    never(libc::SYS_io_uring_enter, ENOSYS),
    never(libc::SYS_io_uring_register, ENOSYS),
    // This limit identifies the processes of a command (see `tree`). The kernel prevents raising it again, and this
    // rule prevents lowering it.
    forbidden(SETRLIMIT, CallCondition::OneOf { argument: 0, values: &[MARK] }),
    forbidden(libc::SYS_prlimit64, CallCondition::Sets { argument: 1, value: MARK as u32, pointer: 2 }),
];

/// For containers where the worker, PID 1 and all commands have one user. A rule here replaces the one for the same call
/// above.
pub(super) const STRICT_RULES: &[CallRule] = &[
    never(libc::SYS_ptrace, EPERM),
    never(libc::SYS_process_vm_readv, EPERM),
    never(libc::SYS_process_vm_writev, EPERM),
    never(libc::SYS_pidfd_getfd, EPERM),
    never(libc::SYS_process_madvise, EPERM),
    // No command may set limits of PID 1 or the worker.
    forbidden(
        libc::SYS_prlimit64,
        CallCondition::SetsOrOther { argument: 1, value: MARK as u32, pointer: 2, other: 0 },
    ),
];

#[cfg(target_arch = "x86_64")]
const SETRLIMIT: c_long = libc::SYS_setrlimit;
#[cfg(target_arch = "aarch64")]
const SETRLIMIT: c_long = 164;

const NEW_USER: CallCondition = CallCondition::AnyBit { argument: 0, bits: libc::CLONE_NEWUSER };
pub(super) const MARK: i32 = libc::RLIMIT_RTTIME as i32;

const SET_ID_BITS: i32 = 0o6000;

/// The flag that distinguishes `O_TMPFILE` from `O_DIRECTORY`.
const NAMELESS: i32 = libc::O_TMPFILE & !libc::O_DIRECTORY;

const fn mode(call: c_long, argument: u32, then: RuleAction) -> CallRule {
    CallRule { call, when: CallCondition::AnyBit { argument, bits: SET_ID_BITS }, then }
}

/// The mode counts only if the call creates a file. The guest is notified, because unpackers create set-id files this way.
const fn created(call: c_long, flags: u32, mode: u32) -> CallRule {
    let when = CallCondition::BothAnyBit([(mode, SET_ID_BITS), (flags, libc::O_CREAT | NAMELESS)]);
    CallRule { call, when, then: RuleAction::Notify }
}

/// All calls that can give a file a set-id bit. Creating a directory never does.
pub(super) const SET_ID: &[CallRule] = &[
    #[cfg(target_arch = "x86_64")]
    created(libc::SYS_open, 1, 2),
    created(libc::SYS_openat, 2, 3),
    #[cfg(target_arch = "x86_64")]
    mode(libc::SYS_chmod, 1, RuleAction::Notify),
    mode(libc::SYS_fchmod, 1, RuleAction::Notify),
    mode(libc::SYS_fchmodat, 2, RuleAction::Notify),
    #[cfg(target_arch = "x86_64")]
    mode(libc::SYS_creat, 1, RuleAction::Refuse(EPERM)),
    #[cfg(target_arch = "x86_64")]
    mode(libc::SYS_mknod, 1, RuleAction::Refuse(EPERM)),
    mode(libc::SYS_mknodat, 2, RuleAction::Refuse(EPERM)),
    // Their modes are in memory or combined with flags; programs fall back to the calls above.
    never(libc::SYS_openat2, ENOSYS),
    never(libc::SYS_fchmodat2, ENOSYS),
];
