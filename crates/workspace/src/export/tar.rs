//! All of a workspace as an archive of the host.

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::path::Path;

use coracle_archive::transfer::{self, Limits, TransferReport, Writer};
use coracle_client::FileContent;
use coracle_protocol::workspace::{EntryKind, FileDigest};
use coracle_types::{Error, Ids};
use tokio_util::task::AbortOnDropHandle;

use super::changes::{SkippedFile, travels};
use crate::GuestFs;

/// The directory that contains everything in the archive.
const TOP: &str = "workspace";

/// Files that are opened before it is their turn. A connection has room for many more.
const AHEAD: usize = 12;

/// What was packed.
#[derive(Debug)]
pub struct WorkspaceArchive {
    /// The archive, at its beginning.
    pub file: File,
    /// Files and links, and their bytes.
    pub moved: TransferReport,
    /// What is not in it.
    pub passed: Vec<SkippedFile>,
}

/// Packs all files of a workspace, and the links that stay inside, into `into`, which is empty.
///
/// # Errors
/// Those of the link, and [`transfer::Error`] as [`Error::Host`].
pub async fn export(
    files: &GuestFs,
    sums: &[FileDigest],
    into: File,
    limits: Limits,
) -> Result<WorkspaceArchive, Error> {
    let mut writer = Writer::new(into, Ids::ROOT, limits);
    let mut passed = Vec::new();
    // Files are opened ahead, so that each costs no round trip of its own.
    let mut opening = VecDeque::new();
    let mut coming = sums.iter();
    loop {
        while opening.len() < AHEAD
            && let Some(sum) = coming.next()
        {
            let content = travels(sum).is_ok().then(|| open(files, sum));
            opening.push_back((sum, content));
        }
        let Some((sum, content)) = opening.pop_front() else { break };
        if let Some(reason) = add(sum, content, &mut writer).await? {
            passed.push(SkippedFile { path: sum.path.clone(), reason });
        }
    }
    let (file, moved) = writer.finish().map_err(cannot_write)?;
    Ok(WorkspaceArchive { file, moved, passed })
}

/// A file that is being opened. Dropping it cancels that.
type FileOpenTask = AbortOnDropHandle<Result<FileContent, Error>>;

fn open(files: &GuestFs, sum: &FileDigest) -> FileOpenTask {
    let (files, path) = (files.clone(), sum.path.clone());
    AbortOnDropHandle::new(tokio::spawn(async move { files.open(&path).await }))
}

/// Why it is not in the archive, if it is not.
async fn add(
    sum: &FileDigest,
    content: Option<FileOpenTask>,
    writer: &mut Writer,
) -> Result<Option<&'static str>, Error> {
    let name = format!("{TOP}/{}", sum.path);
    if let (EntryKind::Symlink, Some(target), false) = (sum.kind, &sum.target, sum.odd) {
        let plain = transfer::plain_name(Path::new(&sum.path)).is_some_and(|it| it == sum.path);
        let inside = plain && writer.link_within(&name, target, None).map_err(cannot_write)?;
        return Ok((!inside).then_some("it is a link that leads outside"));
    }
    let (file, content) = match (travels(sum), content) {
        (Ok(file), Some(content)) => (file, content),
        (Err(reason), _) => return Ok(Some(reason)),
        (Ok(_), None) => return Ok(Some("it went meanwhile")),
    };
    let given_up = |err| Error::Host { what: "the work was given up".into(), source: io::Error::other(err) };
    let mut content = match content.await.map_err(given_up)? {
        Ok(content) => content,
        Err(Error::Refused(_)) => return Ok(Some("it went meanwhile")),
        Err(err) => return Err(err),
    };
    let mut growing = writer.begin(&name, file.mode, None).map_err(cannot_write)?;
    while let Some(piece) = content.next().await? {
        growing.write(&piece).map_err(cannot_write)?;
    }
    growing.end().map_err(cannot_write)?;
    Ok(None)
}

fn cannot_write(err: transfer::Error) -> Error {
    Error::Host { what: "cannot write the archive".into(), source: io::Error::other(err) }
}
