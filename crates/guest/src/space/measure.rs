//! How much a workspace holds.

use super::place::look_at;
use super::walk::Walk;
use super::{Tried, Work};
use crate::wire::space::{Bounds, Done};

/// What `st_blocks` counts in, whatever the file system has.
const BLOCK: u64 = 512;

impl Work<'_> {
    /// Counts what lies on the disk, so that a file with holes is as large as it is there. What is mounted is not of the
    /// workspace, and not counted.
    pub(super) fn measure(&self, bounds: Bounds) -> Tried<Done> {
        let mut walk = Walk::begin(self.root.dir(), None, bounds, self.stop)?;
        let mut bytes = 0_u64;
        while let Some(met) = walk.next(&|_, _| true) {
            if let Ok(Some(there)) = look_at(&met.dir, &met.name) {
                bytes = bytes.saturating_add(u64::try_from(there.stat.st_blocks).unwrap_or(0).saturating_mul(BLOCK));
            }
        }
        Ok(Done::Measured { bytes, complete: walk.is_complete() })
    }
}
