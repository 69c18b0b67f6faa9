//! Wrappers of Linux: processes, users, and the atomic replacement of files.

pub(crate) mod as_user;
pub(crate) mod blocking;
pub(crate) mod container;
pub(crate) mod inherited_fd;
pub mod machine;
pub(crate) mod main_program;
pub(crate) mod oom;
pub(crate) mod openat2;
pub(crate) mod raw_syscall;
pub(crate) mod reap;
pub(crate) mod seccomp;
pub(crate) mod signal_queue;
pub(crate) mod start;
pub(crate) mod suid_guard;
pub(crate) mod tree;
pub(crate) mod user;
