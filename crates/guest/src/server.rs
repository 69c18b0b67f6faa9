//! Handles connections: checks which calls a caller may make, and replies to each.

pub(crate) mod channel;
pub mod codec;
pub(crate) mod connection;
pub(crate) mod dispatch;
pub(crate) mod egress;
pub(crate) mod exec;
pub(crate) mod mounts;
pub(crate) mod quota;
pub(crate) mod requests;
pub(crate) mod scan;
pub(crate) mod services;
pub(crate) mod session_env;
pub(crate) mod terminal;
pub(crate) mod transfer;
pub(crate) mod worker_socket;
pub(crate) mod workspace;
