//! Adds files and links of a container to an archive, or the reason why one is left out to its item.

use coracle_runtime::archive::Writer;
use coracle_runtime::link::ScanOptions;
use coracle_runtime::link::protocol::{ErrorCode, FileEntry, FileKind};
use coracle_runtime::{ContainerPath, Error as Engine};
use tokio::time::{Instant, timeout_at};

use super::{GuestSave, relative};
use crate::save::error::SaveError;
use crate::save::limits::PRUNED;
use crate::save::manifest::SavedItem;

impl GuestSave<'_> {
    /// Everything below a directory of the item.
    pub(super) async fn add_all(&self, writer: &mut Writer, item: &mut SavedItem, dir: &str) -> Result<(), SaveError> {
        let above = format!("{}/{dir}", item.path.as_str().trim_end_matches('/'));
        let Ok(root) = ContainerPath::parse(&above) else {
            item.left_out.add(dir, "its name is none that can be kept");
            return Ok(());
        };
        let prune = PRUNED.iter().map(|it| (*it).to_owned()).collect();
        let within = self.until.saturating_duration_since(Instant::now());
        let (met, more) = self.scan(Some(ScanOptions { prune, within, ..ScanOptions::all(root) })).await?;
        if more {
            return Err(SaveError::Invalid("there are more files than can be looked at"));
        }
        for it in met {
            match relative(&it.path, item.path.as_str()).filter(|_| !it.odd) {
                Some(path) => self.add(writer, item, &path).await?,
                None => item.left_out.add(&it.path, "its name is none that can be kept"),
            }
        }
        Ok(())
    }

    /// Adds a file or link, or says why not.
    pub(super) async fn add(&self, writer: &mut Writer, item: &mut SavedItem, path: &str) -> Result<(), SaveError> {
        let inside = format!("{}/{path}", item.path.as_str().trim_end_matches('/'));
        let name = format!("{}/{path}", item.top());
        let (entry, mut content) = match self.link.open_file(self.at(&inside), 0, u64::MAX >> 1).await {
            Ok(opened) => opened,
            Err(Engine::Refused(fault)) if fault.code == ErrorCode::WrongKind => {
                return self.add_link(writer, item, path).await;
            }
            Err(Engine::Refused(fault)) => {
                item.left_out.add(path, reason(fault.code));
                return Ok(());
            }
            Err(err) => return Err(err.into()),
        };
        let mtime = u64::try_from(entry.changed_ns / 1_000_000_000).unwrap_or(0);
        let mut growing = writer.begin(&name, entry.mode & 0o777, mtime)?;
        loop {
            match timeout_at(self.until, content.next()).await.map_err(|_| SaveError::TooSlow)? {
                Ok(Some(piece)) => growing.write(&piece)?,
                Ok(None) => break,
                Err(Engine::Refused(fault)) => {
                    drop(growing);
                    item.left_out.add(path, reason(fault.code));
                    return Ok(());
                }
                Err(err) => return Err(err.into()),
            }
        }
        growing.end()?;
        Ok(())
    }

    async fn add_link(&self, writer: &mut Writer, item: &mut SavedItem, path: &str) -> Result<(), SaveError> {
        let inside = format!("{}/{path}", item.path.as_str().trim_end_matches('/'));
        match self.link.stat(self.at(&inside)).await {
            Ok(FileEntry { kind: FileKind::Link, link: Some(target), .. }) => item.add_link(writer, path, &target)?,
            Ok(_) => item.left_out.add(path, "it is neither a file nor a link"),
            Err(Engine::Refused(fault)) => item.left_out.add(path, reason(fault.code)),
            Err(err) => return Err(err.into()),
        }
        Ok(())
    }
}

fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NotFound => "it went while it was saved",
        ErrorCode::Denied => "it may not be read",
        _ => "it cannot be read",
    }
}
