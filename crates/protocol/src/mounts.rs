//! Bind mounts of a container as the host expects them. A guest runs no command before they are compared.

use serde::{Deserialize, Serialize};

/// Unlocks the guest, if each of these mounts is the expected one.
///
/// An engine resolves the source of a bind mount again at each start, and code of another container may have replaced it by
/// a link. So a guest starts locked: until this call succeeds, every other call fails with
/// [`ErrorCode::Locked`](crate::ErrorCode::Locked).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unlock {
    /// All bind mounts of the container, except those of Coracle's own files.
    pub mounts: Vec<MountIdentity>,
}

/// A mount point, and the file that must be mounted there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MountIdentity {
    /// Its path in the container.
    pub target: String,
    /// Device number of the file, from `stat`.
    pub device: u64,
    /// Its inode.
    pub inode: u64,
}
