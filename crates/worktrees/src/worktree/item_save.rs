//! Saves worktrees and other parts of a sandbox with `lifecycle`, like those of containers.

use std::path::PathBuf;

use coracle_lifecycle::{PartKind, Save, SaveDestination, SaveWriter, SavedItem, SavedKind};
use coracle_types::failure::{Code, Failure, Result};
use serde::Serialize;

use super::WorktreeManager;
use super::git_in_container::Workdir;

/// Saved work.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SavedWork {
    /// Its directory on the host.
    pub location: PathBuf,
    /// `git`: a bundle; `tree`: an archive of the files.
    pub kind: SavedKind,
    /// Its size.
    pub bytes: u64,
    /// Number of uncommitted files, or of all files in an archive.
    pub files: u64,
}

impl SavedWork {
    pub(super) fn new(save: Save, item: &SavedItem) -> Self {
        Self { location: save.location, kind: item.kind, bytes: item.bytes, files: item.files }
    }
}

/// A save of one item.
pub(super) struct ItemSave<'a> {
    to: &'a SaveDestination,
    max_bytes: u64,
    pub(super) writer: SaveWriter,
    pub(super) item: SavedItem,
}

/// References that are saved as a bundle.
pub(super) struct BundleSave<'a> {
    pub(super) to: &'a SaveDestination,
    /// Contains the state by which the save is found again.
    pub(super) item: SavedItem,
    pub(super) refs: &'a [&'a str],
    /// The file's name.
    pub(super) name: String,
}

impl WorktreeManager {
    /// Begins a save. It is moved to its final place when it is complete, so that no cleanup removes it before.
    pub(super) fn begin_save<'a>(&self, to: &'a SaveDestination, item: SavedItem) -> Result<ItemSave<'a>> {
        let max_bytes = self.settings.save_max;
        let writer = SaveWriter::staged(to.clone(), &self.mirrors, max_bytes).map_err(no_place)?;
        Ok(ItemSave { to, max_bytes, writer, item })
    }

    /// Saves a bundle, unless an interrupted removal saved the same state before.
    pub(super) async fn save_references(&self, at: &Workdir, bundle: BundleSave<'_>) -> Result<SavedWork> {
        let BundleSave { to, item, refs, name } = bundle;
        if let Some((save, item)) = to.find(&item.path, |it| it.state == item.state) {
            return Ok(SavedWork::new(save, &item));
        }
        let mut save = self.begin_save(to, item)?;
        save.item.bundle = Some(self.bundle_of(at, refs, &save.writer.path(&name)).await?);
        save.writer.seal(&mut save.item, name, PartKind::Bundle).map_err(Failure::internal)?;
        save.finish()
    }
}

impl ItemSave<'_> {
    /// Finishes the save. If the same was saved before, the result is that save.
    pub(super) fn finish(mut self) -> Result<SavedWork> {
        let Self { item, max_bytes, .. } = &self;
        if item.bytes > *max_bytes {
            return Err(Failure::new(Code::SaveFailed, format!("There are more than {max_bytes} bytes to save.")));
        }
        let digest = |it: &SavedItem| it.parts.first().map(|it| it.sha256.clone());
        if let Some((save, _)) = self.to.find(&item.path, |it| digest(it) == digest(item)) {
            return Ok(SavedWork::new(save, item));
        }
        self.writer.add(item.clone());
        let save = self.writer.finish().map_err(no_place)?.ok_or_else(|| no_place("nothing was written"))?;
        Ok(SavedWork::new(save, &self.item))
    }
}

fn no_place(err: impl std::fmt::Display) -> Failure {
    Failure::new(Code::SaveFailed, format!("There is no place to save it: {err}"))
}
