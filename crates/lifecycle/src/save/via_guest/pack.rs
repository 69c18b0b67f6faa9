//! Adds files and links of a container to an archive with the directories above them, or the reason why one is left out
//! to its item.

use std::collections::BTreeSet;

use coracle_client::ScanOptions;
use coracle_protocol::{ErrorCode, FileKind};
use coracle_types::{ContainerPath, Error as Engine};
use tokio::time::{Instant, timeout_at};

use super::{GuestSave, relative};
use crate::save::error::SaveError;
use crate::save::limits::PRUNED;
use crate::save::manifest::SavedItem;
use crate::save::writer::ArchiveWriter;

/// What is added to the archive of an item.
pub(super) struct ItemArchive<'a> {
    pub(super) archive: ArchiveWriter,
    pub(super) item: &'a mut SavedItem,
    /// Directories that are in it.
    dirs: BTreeSet<String>,
}

impl<'a> ItemArchive<'a> {
    pub(super) fn new(archive: ArchiveWriter, item: &'a mut SavedItem) -> Self {
        Self { archive, item, dirs: BTreeSet::new() }
    }

    fn name(&self, path: &str) -> String {
        let top = self.item.top();
        if path.is_empty() { top.to_owned() } else { format!("{top}/{path}") }
    }

    fn inside(&self, path: &str) -> String {
        format!("{}/{path}", self.item.path.as_str().trim_end_matches('/'))
    }
}

impl GuestSave<'_> {
    /// Everything below a directory of the item.
    pub(super) async fn add_all(&self, to: &mut ItemArchive<'_>, dir: &str) -> Result<(), SaveError> {
        let Ok(root) = ContainerPath::parse(to.inside(dir)) else {
            to.item.left_out.add(dir, "its name cannot be saved");
            return Ok(());
        };
        let prune = PRUNED.iter().map(|it| (*it).to_owned()).collect();
        let within = self.until.saturating_duration_since(Instant::now());
        let (entries, more) = self.scan(Some(ScanOptions { prune, within, ..ScanOptions::all(root) })).await?;
        if more {
            return Err(SaveError::Invalid("there are more files than can be looked at"));
        }
        for it in entries {
            match relative(&it.path, to.item.path.as_str()).filter(|_| !it.odd) {
                Some(path) => self.add(to, &path).await?,
                None => to.item.left_out.add(&it.path, "its name cannot be saved"),
            }
        }
        Ok(())
    }

    /// Adds a file or link, or says why not.
    pub(super) async fn add(&self, to: &mut ItemArchive<'_>, path: &str) -> Result<(), SaveError> {
        let (inside, name) = (to.inside(path), to.name(path));
        let (entry, mut content) = match self.link.open_file(self.at(&inside), 0, u64::MAX >> 1).await {
            Ok(opened) => opened,
            Err(Engine::Refused(fault)) if fault.code == ErrorCode::WrongKind => {
                return self.add_link(to, path).await;
            }
            Err(Engine::Refused(fault)) => {
                to.item.left_out.add(path, reason(fault.code));
                return Ok(());
            }
            Err(err) => return Err(err.into()),
        };
        let mut growing = to.archive.tar.begin(&name, entry.mode & 0o777, entry.changed_s())?;
        loop {
            match timeout_at(self.until, content.next()).await.map_err(|_| SaveError::TooSlow)? {
                Ok(Some(piece)) => growing.write(&piece)?,
                Ok(None) => break,
                Err(Engine::Refused(fault)) => {
                    drop(growing);
                    to.item.left_out.add(path, reason(fault.code));
                    return Ok(());
                }
                Err(err) => return Err(err.into()),
            }
        }
        growing.end()?;
        self.add_dirs_above(to, path).await
    }

    async fn add_link(&self, to: &mut ItemArchive<'_>, path: &str) -> Result<(), SaveError> {
        match self.link.stat(self.at(&to.inside(path))).await {
            Ok(entry) if entry.kind == FileKind::Link => {
                let (changed, target) = (entry.changed_s(), entry.link.unwrap_or_default());
                to.item.add_link(&mut to.archive.tar, path, &target, changed)?;
                return self.add_dirs_above(to, path).await;
            }
            Ok(_) => to.item.left_out.add(path, "it is neither a file nor a link"),
            Err(Engine::Refused(fault)) => to.item.left_out.add(path, reason(fault.code)),
            Err(err) => return Err(err.into()),
        }
        Ok(())
    }

    /// Adds the directories above a file, once each, with their modes and times.
    async fn add_dirs_above(&self, to: &mut ItemArchive<'_>, path: &str) -> Result<(), SaveError> {
        let mut dir = path;
        while !dir.is_empty() {
            dir = dir.rsplit_once('/').map_or("", |(above, _)| above);
            if !to.dirs.insert(dir.to_owned()) {
                break;
            }
            self.add_dir(to, dir).await?;
        }
        Ok(())
    }

    /// Adds a directory of the item, if it is one.
    pub(super) async fn add_dir(&self, to: &mut ItemArchive<'_>, dir: &str) -> Result<(), SaveError> {
        let inside = to.inside(dir);
        let inside = if dir.is_empty() && inside.len() > 1 { inside.trim_end_matches('/') } else { &inside };
        match self.link.stat(self.at(inside)).await {
            Ok(entry) if entry.kind == FileKind::Dir => {
                Ok(to.archive.tar.dir(&to.name(dir), entry.mode & 0o777, entry.changed_s())?)
            }
            Ok(_) | Err(Engine::Refused(_)) => Ok(()),
            Err(err) => Err(err.into()),
        }
    }
}

fn reason(code: ErrorCode) -> &'static str {
    match code {
        ErrorCode::NotFound => "it went while it was saved",
        ErrorCode::Denied => "it may not be read",
        _ => "it cannot be read",
    }
}
