//! The request to remove a worktree.

use coracle_lifecycle::SaveDestination;

/// How a worktree is removed.
#[derive(Clone, Debug)]
pub struct RemoveRequest {
    /// Where its work goes.
    pub save_to: SaveDestination,
    /// Its work is discarded (`security.allow_discard`).
    pub discard: bool,
    /// Ignored files are saved as well.
    pub salvage_ignored: bool,
}
