//! Measures the size of a workspace.

use std::collections::HashSet;

use rustix::fs::FileType;

use super::WorkspaceOperation;
use crate::files::error::OperationResult;
use crate::files::resolve::open_entry;
use crate::files::walk::{TreeWalk, WalkLimits};
use crate::protocol::workspace::{SearchLimits, WorkspaceReply};

/// The unit of `st_blocks` on every file system.
const STAT_BLOCK: u64 = 512;

/// Limit of files with several hard links that are remembered; beyond it each name counts.
const MAX_LINKED: usize = 1 << 20;

impl WorkspaceOperation<'_> {
    /// Counts allocated blocks, so that a sparse file counts only its data, and each file once, regardless of its hard links.
    /// Mounts are not part of the workspace, and not counted.
    pub(super) fn measure(&self, bounds: SearchLimits) -> OperationResult<WorkspaceReply> {
        let mut walk = TreeWalk::begin(self.root.dir(), WalkLimits::sorted(bounds), None, self.stop)?;
        let (mut bytes, mut linked) = (0_u64, HashSet::new());
        while let Some(entry) = walk.next(&|_, _| true) {
            if let Ok(Some(file)) = open_entry(&entry.dir, &entry.name) {
                let stat = &file.stat;
                let several = stat.st_nlink > 1
                    && FileType::from_raw_mode(stat.st_mode) != FileType::Directory
                    && linked.len() < MAX_LINKED;
                if several && !linked.insert((stat.st_dev, stat.st_ino)) {
                    continue;
                }
                bytes =
                    bytes.saturating_add(u64::try_from(file.stat.st_blocks).unwrap_or(0).saturating_mul(STAT_BLOCK));
            }
        }
        Ok(WorkspaceReply::Measured { bytes, complete: walk.is_complete() })
    }
}
