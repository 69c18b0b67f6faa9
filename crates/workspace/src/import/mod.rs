//! Directories of the host that are copied into a workspace that is new (workspace.md 1.10).
//!
//! What is copied is decided first and looks at names and sizes only; then files are read and go over the link in few
//! large pieces, into a place that nobody sees, and at last everything is moved into the workspace together.
//!
//! **Invariant:** the host is gone through by descriptors beneath a directory that the person allows. A link is followed
//! only when that was said, and where it leads is decided here, name by name.
//! **Invariant:** a failure leaves the workspace as it was.

mod error;
mod estimate;
mod filter;
mod follow;
mod host_mount;
mod plan;
mod read;
#[cfg(test)]
mod tests;
mod upload;

pub use self::error::ImportError;
pub use self::estimate::{ImportEstimate, estimate};
pub use self::filter::Filter;
pub use self::host_mount::HostMount;
pub(crate) use self::host_mount::MODE;
pub use self::upload::copy_in;
