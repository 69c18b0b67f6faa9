//! Who the users of a container are on the host, and acting as its root.

use std::io;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// One range of ids, as in `/proc/PID/uid_map`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdRange {
    /// First id inside.
    pub(crate) inside: u32,
    /// First id on the host.
    pub(crate) host: u32,
    /// Number of ids.
    pub(crate) count: u32,
}

/// The mapping of a user namespace. The same ranges hold for users and groups, unless their lists differ.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct IdMap {
    pub(crate) uids: Vec<IdRange>,
    pub(crate) gids: Vec<IdRange>,
}

/// What the engine's user may do.
#[derive(Clone, Debug)]
pub(crate) enum Privileges {
    /// Root: layers are stored with the ids of the image, and mounts are mapped to each container's range.
    Root,
    /// Another user: layers are stored as seen through this mapping, which all containers share.
    Rootless(IdMap),
}

impl Privileges {
    /// Whether the engine runs as root.
    pub(crate) fn is_root(&self) -> bool {
        matches!(self, Self::Root)
    }

    /// Runs `work` as root of the ids that the store's files belong to: at once for root, else in a child process within
    /// a user namespace of the mapping. The child is a copy of this process: `work` must not use threads, locks that other
    /// threads may hold, or tokio; its result comes back through a pipe.
    pub(crate) fn run_as_owner<T: Serialize + DeserializeOwned>(
        &self,
        work: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        match self {
            Self::Root => work(),
            Self::Rootless(_) => Err(io::Error::other("not implemented")),
        }
    }
}
