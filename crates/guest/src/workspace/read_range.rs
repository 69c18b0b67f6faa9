//! Reads a range of bytes of a file.

use std::os::unix::fs::FileExt as _;

use super::WorkspaceOperation;
use super::fingerprint::Print;
use super::tracker::ContentSource;
use crate::files::error::OperationResult;
use crate::protocol::workspace::{MAX_WORKSPACE_REPLY, WorkspaceReply};

/// The tool that reads files; a read request does not contain its name.
pub(super) const READER: &str = "read_file";

/// Limit of a range in a reply, in bytes.
const MAX_REPLY: usize = MAX_WORKSPACE_REPLY / 2;

impl WorkspaceOperation<'_> {
    pub(super) fn bytes(&self, path: &str, offset: u64, limit: u32) -> OperationResult<WorkspaceReply> {
        let (entry, real) = self.root.open_path(path)?;
        let file = entry.read()?;
        let print = Print::from_file(&file)?;
        let left = entry.size().saturating_sub(offset);
        let mut piece = vec![0; usize::try_from(left.min(u64::from(limit))).unwrap_or(MAX_REPLY).min(MAX_REPLY)];
        let mut got = 0;
        while got < piece.len() {
            match file.read_at(&mut piece[got..], offset + got as u64)? {
                0 => break,
                read => got += read,
            }
        }
        piece.truncate(got);
        self.tracker.touch(&real, &print, READER, ContentSource::Tool);
        Ok(WorkspaceReply::Bytes { content: piece.into(), offset, size: print.size })
    }
}
