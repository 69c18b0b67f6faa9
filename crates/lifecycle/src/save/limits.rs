//! How much of a container is saved, and how long that may take.

use std::time::Duration;

/// Names of directories whose files can be had again.
pub(super) const PRUNED: &[&str] = &["node_modules", "target", ".venv", "__pycache__", ".cache"];

/// For all that saving one container takes.
pub const SAVE_TIME: Duration = Duration::from_secs(60);

/// Bounds of one save.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SaveLimits {
    /// Bytes together.
    pub max_bytes: u64,
    /// For all of it. With less than [`SAVE_TIME`] it is tried again later: files that there was no time for are a failure
    /// then, and not left out.
    pub time: Duration,
}
