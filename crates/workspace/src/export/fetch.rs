//! Digests and content of the workspace's files, from the guest.

use coracle_protocol::workspace::{FileDigest, SearchLimits, WorkspaceOp, WorkspaceReply};
use coracle_types::{Error, Result};

use crate::GuestFs;

/// The most that a guest scans.
const ALL: SearchLimits = SearchLimits { most: 20_000, entries: 1_000_000, within_ms: 110_000 };

/// Every file and link of a workspace, by path.
///
/// # Errors
/// Those of the link; if there are more entries than a guest walks.
pub async fn digests(files: &GuestFs) -> Result<Vec<FileDigest>> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        match files.request(WorkspaceOp::Sums { after: from, bounds: ALL }).await? {
            WorkspaceReply::Summed { entries, after, complete: true }
                if all.len() + entries.len() <= ALL.entries as usize =>
            {
                // An empty page that announces another one would never end.
                from = after.filter(|_| !entries.is_empty());
                all.extend(entries);
                if from.is_none() {
                    return Ok(all);
                }
            }
            WorkspaceReply::Summed { .. } => return Err(unreadable("there are more files than can be looked at")),
            WorkspaceReply::Not(trouble) => return Err(unreadable(&trouble.detail)),
            _ => return Err(unreadable("another answer")),
        }
    }
}

/// Reads a whole file; none if it has more than `most` bytes.
pub(super) async fn read(files: &GuestFs, path: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let mut content = files.open(path).await?;
    let mut bytes = Vec::new();
    while let Some(piece) = content.next().await? {
        bytes.extend(piece);
        if bytes.len() as u64 > most {
            return Ok(None);
        }
    }
    Ok(Some(bytes))
}

fn unreadable(detail: &str) -> Error {
    Error::Unreadable { verb: "sums", detail: detail.to_owned() }
}
