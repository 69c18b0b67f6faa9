//! The request to remove a worktree.

use coracle_lifecycle::SaveDestination;

/// The options of a removal.
#[derive(Clone, Debug)]
pub struct RemoveRequest {
    /// The destination of its work.
    pub save_to: SaveDestination,
    /// Whether its work is discarded (`security.allow_discard`).
    pub discard: bool,
    /// Whether ignored files are saved as well.
    pub salvage_ignored: bool,
}
