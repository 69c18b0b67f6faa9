//! The system call filter of containers.
//!
//! A call is allowed, refused with `EPERM`, unknown (`ENOSYS`: programs fall back), or depends on its arguments. The list
//! is Docker's default and ours on top: `io_uring`, keyrings and rare socket families, which commands of the guest are
//! refused anyway. The guest installs a second, shorter filter for commands; where both refuse, its answer counts.
//!
//! Calls of 32-bit programs (i386, arm) and of the x32 kind are unknown. Docker lets them through its list. The guest's
//! filter never did, so no command loses anything, and a second way into the kernel with its own bugs stays shut; 32-bit
//! programs started by a service's own PID 1 do not run.
//!
//! `ioctl` is not looked into (`TIOCSTI`, `TIOCLINUX`): no process of a container has a terminal of the host, and a rule
//! would make the kernel run the filter for each call. It remembers the answer for calls without conditions.

mod calls;
mod compiler;
mod profile;

use std::sync::OnceLock;

use libc::{EAFNOSUPPORT, ENOSYS, EPERM, c_long, sock_filter};

use calls::SystemCall;
use compiler::{Action, ArgumentCondition, Rule};
pub(crate) use profile::oci_profile;

/// New namespaces of any kind: `CLONE_NEWNS`, `NEWCGROUP`, `NEWUTS`, `NEWIPC`, `NEWUSER`, `NEWPID`, `NEWNET`. The bit of
/// `NEWTIME` belongs to the exit signal here.
const NEW_NAMESPACES: u32 = 0x7e02_0000;

/// Families of sockets that programs use. Others make the kernel load a module, and are where its bugs are. Docker allows
/// all but `AF_VSOCK`, `AF_ALG` and removed ones.
const SOCKET_FAMILIES: &[u32] =
    &[libc::AF_UNIX as u32, libc::AF_INET as u32, libc::AF_INET6 as u32, libc::AF_NETLINK as u32];

/// Linux, `UNAME26` and both with `ADDR_NO_RANDOMIZE`-free layouts, as Docker has them: `PER_LINUX`, `PER_LINUX32`,
/// `UNAME26`, both, and the question for the present one.
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
    // Its flags lie in memory, where a filter cannot look. The C libraries fall back to `clone`.
    Rule { name: "clone3", call: libc::SYS_clone3, action: Action::Refuse(ENOSYS) },
    Rule { name: "io_uring_setup", call: libc::SYS_io_uring_setup, action: Action::Refuse(ENOSYS) },
    Rule { name: "io_uring_enter", call: libc::SYS_io_uring_enter, action: Action::Refuse(ENOSYS) },
    Rule { name: "io_uring_register", call: libc::SYS_io_uring_register, action: Action::Refuse(ENOSYS) },
];

/// The filter of every container, to be installed after `no_new_privs`. Compiled once in a process.
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
