//! Directories of the host that are copied into a workspace that is new.
//!
//! A plan is made first, from names and sizes only. Then files are read and sent in a few large pieces into a staging
//! directory, which is moved into the workspace in one step at the end.
//!
//! **Invariant:** the host is walked by descriptors beneath a directory that the user allows. A link is followed only
//! if the mount allows it, and its target is resolved here, name by name.
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
pub use self::upload::import;
