//! Directories of the host that are copied into a workspace that is new (workspace.md 1.10).
//!
//! What is copied is decided first and looks at names and sizes only; then files are read and go over the link in few
//! large pieces, into a place that nobody sees, and at last everything is moved into the workspace together.
//!
//! **Invariant:** the host is gone through by descriptors beneath a directory that the person allows. A link is followed
//! only when that was said, and where it leads is decided here, name by name.
//! **Invariant:** a failure leaves the workspace as it was.

mod filter;
mod follow;
mod plan;
mod read;
mod send;
mod survey;
#[cfg(test)]
mod tests;

use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Error, Policy, Problem};

pub use self::filter::Filter;
pub use self::send::copy_in;
pub use self::survey::{Survey, survey};

/// Permission bits that a file keeps on its way in and out.
pub(crate) const MODE: u32 = 0o755;

/// A directory of the host that is to be copied.
#[derive(Clone, Debug)]
pub struct HostMount {
    /// As the person calls it.
    pub name: String,
    /// The allowed directory that it lies in: no link leads out of it.
    pub root: HostPath,
    /// The directory itself.
    pub host: HostPath,
    /// Its path in the workspace; empty for the workspace itself.
    pub at: String,
    /// Which files are copied.
    pub filter: Filter,
    /// At most so many bytes together.
    pub max_bytes: u64,
    /// At most so many files, and entries that are met.
    pub max_entries: u64,
    /// Links are followed.
    pub follow: bool,
    /// Decides where links may lead.
    pub policy: Policy,
}

/// Why a directory of the host was not copied.
#[non_exhaustive]
#[derive(Debug, thiserror::Error)]
pub enum MountError {
    /// Two of them have the same file.
    #[error("Two host mounts have the file {0}.")]
    Twice(String),
    /// A link leads to what may not be copied.
    #[error("Host path is outside the allowed roots or missing.")]
    Refused {
        /// The link.
        path: String,
        /// The rule that says so.
        problem: Box<Problem>,
    },
    /// More bytes or files than it may have.
    #[error("Host mount exceeded the configured byte budget.")]
    TooLarge {
        /// As the person calls it.
        name: String,
        /// What it may have.
        limit: u64,
        /// Of what.
        of: &'static str,
    },
    /// A file could not be read, or is not what it was a moment ago.
    #[error("Failed to read mounted file {path}.")]
    Read {
        /// Which.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The workspace did not take them.
    #[error("Failed to copy the host mounts in: {0}")]
    Inside(String),
    /// The connection to the guest.
    #[error(transparent)]
    Link(#[from] Error),
}
