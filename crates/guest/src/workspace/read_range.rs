//! A piece of a file as it is.

use std::os::unix::fs::FileExt as _;

use super::WorkspaceOperation;
use super::fingerprint::Print;
use super::tracker::ContentSource;
use crate::files::error::OperationResult;
use crate::protocol::workspace::{MAX_TOLD, WorkspaceReply};

/// A read request has no tool name; this is the tool that sends it.
pub(super) const READER: &str = "read_file";

/// Limit of a range in a reply, in bytes.
const MAX_REPLY: usize = MAX_TOLD / 2;

impl WorkspaceOperation<'_> {
    pub(super) fn bytes(&self, path: &str, offset: u64, limit: u32) -> OperationResult<WorkspaceReply> {
        let (there, real) = self.root.open_path(path)?;
        let file = there.read()?;
        let print = Print::from_file(&file)?;
        let left = there.size().saturating_sub(offset);
        let mut piece = vec![0; usize::try_from(left.min(u64::from(limit))).unwrap_or(MAX_REPLY).min(MAX_REPLY)];
        let mut got = 0;
        while got < piece.len() {
            match file.read_at(&mut piece[got..], offset + got as u64)? {
                0 => break,
                read => got += read,
            }
        }
        piece.truncate(got);
        self.memory.touch(&real, &print, READER, ContentSource::Tool);
        Ok(WorkspaceReply::Bytes { content: piece.into(), offset, size: print.size })
    }
}
