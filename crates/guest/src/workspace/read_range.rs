//! A piece of a file as it is.

use std::os::unix::fs::FileExt as _;

use super::Work;
use super::fingerprint::Print;
use super::tracker::By;
use crate::files::error::OperationResult;
use crate::protocol::workspace::{MAX_TOLD, WorkspaceReply};

/// Who reads has no name in an act; this is the tool that does.
pub(super) const READER: &str = "read_file";

/// Bytes that are told at most.
const MOST: usize = MAX_TOLD / 2;

impl Work<'_> {
    pub(super) fn bytes(&self, path: &str, offset: u64, limit: u32) -> OperationResult<WorkspaceReply> {
        let (there, real) = self.root.look(path)?;
        let file = there.read()?;
        let print = Print::of(&file)?;
        let left = there.size().saturating_sub(offset);
        let mut piece = vec![0; usize::try_from(left.min(u64::from(limit))).unwrap_or(MOST).min(MOST)];
        let mut got = 0;
        while got < piece.len() {
            match file.read_at(&mut piece[got..], offset + got as u64)? {
                0 => break,
                read => got += read,
            }
        }
        piece.truncate(got);
        self.memory.touch(&real, &print, READER, By::Tool);
        Ok(WorkspaceReply::Bytes { content: piece.into(), offset, size: print.size })
    }
}
