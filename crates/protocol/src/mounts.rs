//! Binds of a container as the host expects them. A guest runs nothing before they were compared.

use serde::{Deserialize, Serialize};

/// Lets the guest run commands, if each of these mounts is what the host expects.
///
/// An engine resolves the source of a bind again at each start, and code of another container may have put a link in its
/// place. So a guest starts locked: until this call succeeds, it answers every other call with
/// [`ErrorCode::Locked`](crate::ErrorCode::Locked).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlock {
    /// All binds of the container, but those of Coracle's own files.
    pub mounts: Vec<MountIdentity>,
}

/// A mount point, and the file that has to be mounted there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountIdentity {
    /// Its path in the container.
    pub target: String,
    /// Number of the file's device, as `stat` gives it.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}
