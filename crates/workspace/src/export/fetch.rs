//! What the guest tells of the files, and their content.

use coracle_runtime::link::protocol::workspace::{FileDigest, SearchLimits, WorkspaceOp, WorkspaceReply};
use coracle_runtime::link::protocol::{FileRef, UserSpec};
use coracle_runtime::link::{FileContent, Link};
use coracle_runtime::{ContainerPath, Error, Ids, Result};

/// As much as a guest goes through.
const ALL: SearchLimits = SearchLimits { most: 20_000, entries: 1_000_000, within_ms: 110_000 };

/// Every file and link of a workspace, by path.
///
/// # Errors
/// Those of the link; also when there are more than a guest goes through.
pub async fn sums(link: &Link, (user, root): (Ids, &ContainerPath)) -> Result<Vec<FileDigest>> {
    let (mut all, mut from) = (Vec::new(), None);
    loop {
        match link.space(user, root, WorkspaceOp::Sums { after: from, bounds: ALL }, &[]).await? {
            WorkspaceReply::Summed { entries, after, complete: true }
                if all.len() + entries.len() <= ALL.entries as usize =>
            {
                // A guest that tells of more and has none would never end.
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

/// A file's content, as the session's user sees it.
pub(super) async fn open(link: &Link, (user, root): (Ids, &ContainerPath), path: &str) -> Result<FileContent> {
    let at = FileRef {
        user: UserSpec::Ids { uid: user.uid, gid: Some(user.gid) },
        path: format!("{}/{path}", root.as_str().trim_end_matches('/')),
        follow: false,
    };
    Ok(link.open_file(at, 0, u64::MAX >> 1).await?.1)
}

/// All of a file, if it has no more than that.
pub(super) async fn read(link: &Link, at: (Ids, &ContainerPath), path: &str, most: u64) -> Result<Option<Vec<u8>>> {
    let mut content = open(link, at, path).await?;
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
