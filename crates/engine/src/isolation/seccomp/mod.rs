//! The system call filter of containers.
//!
//! A call is allowed, fails with `EPERM` or `ENOSYS` (so that programs fall back), or depends on its arguments. The
//! filter is Docker's default, and in addition refuses `io_uring`, keyrings and rare socket families. The guest
//! installs a second, shorter filter for commands; if both refuse a call, the error is the second filter's.
//!
//! Calls of 32-bit programs (i386, arm) and of the x32 ABI fail with `ENOSYS`: they are a second way into the kernel,
//! with its own bugs. Docker allows them. Commands lose nothing, since the guest's filter refuses them too; but a
//! 32-bit PID 1 of a service does not run.
//!
//! The filter does not check arguments of `ioctl` (`TIOCSTI`, `TIOCLINUX`): no process of a container has a terminal of
//! the host. The kernel caches the result only for calls without conditions, so a rule would run the filter at each
//! `ioctl`.

mod calls;
mod compiler;
mod profile;

use std::sync::OnceLock;

use libc::{EAFNOSUPPORT, ENOSYS, EPERM, c_long, sock_filter};

use calls::SystemCall;
use compiler::{Action, ArgumentCondition, Rule};
pub(crate) use profile::oci_profile;

/// Flags for new namespaces: `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID`, `NEWNET`. In `clone`,
/// the bit of `NEWTIME` is part of the exit signal.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Socket families that programs use. Other families make the kernel load rarely used modules, which have had many
/// bugs. Docker allows all except `AF_VSOCK`, `AF_ALG` and removed ones.
const SOCKET_FAMILIES: &[u32] =
    &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32, libc::AF_NETLINK as u32];

/// The personalities that Docker allows: `PER_LINUX`, `PER_LINUX32`, `UNAME26`, the last two together, and the query of
/// the current one.
const PERSONALITIES: &[u32] = &[0, 0x0008, 0x0002_0000, 0x0002_0008, 0xffff_ffff];

/// Calls with conditions, or with an answer other than `EPERM`.
const RULES: &[Rule] = &[
    Rule { name: "clone", call: libc::SYS_clone, action: Action::If(ArgumentCondition::NoBits(NEW_NAMESPACES), EPERM) },
    Rule {
        name: "socket",
        call: libc::SYS_socket,
        action: Action::If(ArgumentCondition::OneOf(SOCKET_FAMILIES), EAFNOSUPPORT),
    },
    Rule {
        name: "personality",
        call: libc::SYS_personality,
        action: Action::If(ArgumentCondition::OneOf(PERSONALITIES), EPERM),
    },
    // Its flags are in memory, which a filter cannot read. The C libraries fall back to `clone`.
    Rule { name: "clone3", call: libc::SYS_clone3, action: Action::Refuse(ENOSYS) },
    Rule { name: "io_uring_setup", call: libc::SYS_io_uring_setup, action: Action::Refuse(ENOSYS) },
    Rule { name: "io_uring_enter", call: libc::SYS_io_uring_enter, action: Action::Refuse(ENOSYS) },
    Rule { name: "io_uring_register", call: libc::SYS_io_uring_register, action: Action::Refuse(ENOSYS) },
];

/// The filter of every container, to be installed after `no_new_privs`. Compiled once per process.
pub(crate) fn program() -> &'static [sock_filter] {
    static PROGRAM: OnceLock<Vec<sock_filter>> = OnceLock::new();
    PROGRAM.get_or_init(|| compiler::compile(&table()))
}

/// Calls without conditions.
fn allowed() -> impl Iterator<Item = &'static SystemCall> {
    let lists = [calls::COMMON, calls::OF_ARCHITECTURE, calls::WITHOUT_CONSTANT, calls::NEWER];
    lists.into_iter().flatten()
}

/// The action for each known number.
fn table() -> Vec<Action> {
    let mut table = vec![Action::Refuse(EPERM); index(calls::LAST_KNOWN) + 1];
    for call in allowed() {
        table[index(call.number)] = Action::Allow;
    }
    for rule in RULES {
        table[index(rule.call)] = rule.action;
    }
    table
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "numbers of calls are small")]
fn index(call: c_long) -> usize {
    call as usize
}

#[cfg(test)]
mod tests;
