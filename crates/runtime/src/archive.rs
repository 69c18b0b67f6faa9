//! Tars of our own.
/// E
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
