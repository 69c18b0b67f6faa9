//! Other commands of the guest's program: small tools that run inside beside PID 1.

pub mod check_port;
pub mod clear_suid;
pub mod connect;
pub mod forward;
pub mod git_credential;
pub mod login_shell;
pub mod secret_fd;
pub mod sftp;
pub mod tcp_stdio;
