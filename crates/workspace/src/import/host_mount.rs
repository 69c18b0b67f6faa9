//! A directory of the host that is to be copied.

use coracle_host::fs::HostPath;
use coracle_runtime::Policy;

use super::filter::Filter;

/// Permission bits that a file keeps on its way in and out.
pub(crate) const MODE: u32 = 0o755;

/// A directory of the host that is to be copied.
#[derive(Clone, Debug)]
pub struct HostMount {
    /// The user's name for it.
    pub name: String,
    /// The allowed directory that it lies in: no link leads out of it.
    pub root: HostPath,
    /// The directory itself.
    pub host: HostPath,
    /// Its path in the workspace; empty for the workspace itself.
    pub at: String,
    /// Selects the copied files.
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
