//! Lists all files with a digest of their content.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use rustix::fs::FileType;
use sha2::{Digest as _, Sha256};

use super::WorkspaceOperation;
use super::entry::{kind, text};
use crate::files::error::{FsError, OperationResult};
use crate::files::resolve::{OpenEntry, open_entry, target};
use crate::files::walk::{TreeWalk, WalkEntry, WalkLimits, by_parts};
use crate::protocol::workspace::{EntryKind, FileDigest, SearchLimits, WorkspaceErrorCode, WorkspaceReply};

/// Limit of files and links in one reply.
const MAX_FILES: usize = 20_000;

/// Limit of bytes of their paths and targets, so that a reply is never cut.
const MAX_BYTES: usize = 2 << 20;

impl WorkspaceOperation<'_> {
    pub(super) fn sums(&self, after: Option<&str>, bounds: SearchLimits) -> OperationResult<WorkspaceReply> {
        let bad = |_| FsError::with_detail(WorkspaceErrorCode::NotFound, "invalid position");
        let from = after.map(hex::decode).transpose().map_err(bad)?;
        let mut walk = TreeWalk::begin(self.root.dir(), WalkLimits::sorted(bounds), None, self.stop)?;
        let most = (bounds.most as usize).min(MAX_FILES);
        let (mut entries, mut bytes, mut last) = (Vec::new(), 0, None);
        while let Some(entry) = walk.next(&|_, _| true) {
            let is_before = from.as_ref().is_some_and(|it| by_parts(&entry.path, it).is_le());
            if entry.kind == FileType::Directory || is_before {
                continue;
            }
            if entries.len() >= most || bytes > MAX_BYTES {
                return Ok(WorkspaceReply::Summed { entries, after: last.map(hex::encode::<Vec<u8>>), complete: true });
            }
            if let Some(sum) = self.sum(&entry) {
                bytes += sum.path.len() + sum.target.as_ref().map_or(0, String::len);
                entries.push(sum);
            }
            last = Some(entry.path);
        }
        Ok(WorkspaceReply::Summed { entries, after: None, complete: walk.is_complete() })
    }

    /// `None` for a file that was removed concurrently.
    fn sum(&self, entry: &WalkEntry) -> Option<FileDigest> {
        let file = open_entry(&entry.dir, &entry.name).ok()??;
        let (path, odd) = text(&entry.path);
        let kind = kind(&file.stat);
        let mut sum =
            FileDigest { path, kind, size: 0, mode: file.stat.st_mode & 0o7777, sha256: None, target: None, odd };
        match kind {
            EntryKind::Directory => return None,
            EntryKind::Symlink => sum.target = target(&file),
            EntryKind::File => {
                sum.size = file.size();
                sum.sha256 = self.hash(&file);
            }
            EntryKind::Other => {}
        }
        Some(sum)
    }

    fn hash(&self, entry: &OpenEntry) -> Option<String> {
        let file: File = entry.read().ok()?;
        let (mut hash, mut block, mut at) = (Sha256::new(), vec![0; 64 << 10], 0);
        loop {
            if self.stop.is_set() {
                return None;
            }
            match file.read_at(&mut block, at) {
                Ok(0) => return Some(hex::encode(hash.finalize())),
                Ok(read) => {
                    hash.update(&block[..read]);
                    at += read as u64;
                }
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => {}
                Err(_) => return None,
            }
        }
    }
}
