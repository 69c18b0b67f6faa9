//! Garbage collection.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use coracle_types::ImageId;

use super::hold::Holds;
use super::removal::Uses;
use super::{DiffId, Result, Store, StoreError};

/// The result of a collection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GarbageReport {
    pub(crate) images: Vec<ImageId>,
    pub(crate) layers: Vec<DiffId>,
    /// Unfinished and trashed directories that dead processes left.
    pub(crate) leftovers: u64,
    /// Bytes of the removed layers' files.
    pub(crate) bytes: u64,
}

/// Directories that a collection has moved to the trash and not deleted yet.
#[derive(Debug, Default)]
struct Collection {
    report: GarbageReport,
    taken: Vec<OsString>,
}

impl Store {
    /// Removes layers without an image, intermediate images without a name or a user, and leftovers of dead processes. Other
    /// images without a name stay until they are removed.
    pub(crate) fn collect_garbage(&self) -> Result<GarbageReport> {
        let failed = || StoreError::io("cannot collect garbage in the image store");
        let lock = self.lock()?;
        let marker = self.mark_removal()?;
        let mut collected = Collection::default();
        if let Err(err) = self.collect(&mut collected) {
            // The next process that opens the store sees the marker, and tries again.
            let has_sign = Holds::read(&self.holds()).is_ok_and(|it| !it.dead.is_empty());
            if has_sign {
                drop(marker);
            } else {
                marker.abandon();
            }
            drop(lock);
            self.delete(&collected.taken);
            return Err(err);
        }
        drop((lock, marker));
        let Collection { mut report, taken } = collected;
        self.trash.delete(&taken).map_err(failed())?;
        report.leftovers += self.trash.empty().map_err(failed())?;
        Ok(report)
    }

    fn collect(&self, collected: &mut Collection) -> Result<()> {
        let failed = || StoreError::io("cannot collect garbage in the image store");
        let uses = self.uses()?;
        self.collect_images(&uses, collected)?;
        self.collect_layers(&uses, collected)?;
        self.collect_drafts(&uses, collected).map_err(failed())?;
        uses.holds.remove_dead().map_err(failed())
    }

    /// Collects what a failed operation left, such as complete layers. A failure of the collection is only logged, since the
    /// caller reports that of the operation.
    pub(crate) fn collect_leftovers(&self) {
        match self.collect_garbage() {
            Ok(report) => tracing::debug!(layers = report.layers.len(), bytes = report.bytes, "collected garbage"),
            Err(err) => tracing::warn!(%err, "layers that no image has stay for now"),
        }
    }

    /// Collects garbage if a process died while it used the store. Costs next to nothing if none did.
    pub(crate) fn repair(&self) -> Result<Option<GarbageReport>> {
        let failed = || StoreError::io("cannot look for leftovers in the image store");
        let is_empty = |dir: &Path| std::fs::read_dir(dir).map(|mut it| it.next().is_none());
        let dirs = [self.holds(), self.temporary(), self.trash.dir.clone()];
        if dirs.iter().map(|it| is_empty(it)).collect::<io::Result<Vec<_>>>().map_err(failed())? == [true; 3] {
            return Ok(None);
        }
        let lock = self.lock()?;
        let holds = Holds::read(&self.holds()).map_err(failed())?;
        let is_needed = !holds.dead.is_empty() || self.has_dead_drafts(&holds).map_err(failed())?;
        drop(lock);
        if is_needed {
            return self.collect_garbage().map(Some);
        }
        self.trash.empty().map_err(failed())?;
        Ok(None)
    }

    fn collect_images(&self, uses: &Uses, collected: &mut Collection) -> Result<()> {
        let failed = || StoreError::io("cannot collect images");
        let names = self.all_names().map_err(failed())?;
        for id in self.image_ids().map_err(failed())? {
            let is_needed = names.contains_key(&id) || uses.user_of(&id).is_some();
            // An unreadable record is damage, which `verify` reports.
            let intermediate = self.image_record(&id).ok().flatten().is_some_and(|it| it.intermediate);
            if intermediate && !is_needed {
                collected.taken.extend(self.trash.take(&self.image_dir(&id)).map_err(failed())?);
                collected.report.images.push(id);
            }
        }
        Ok(())
    }

    fn collect_layers(&self, uses: &Uses, collected: &mut Collection) -> Result<()> {
        let failed = || StoreError::io("cannot collect layers");
        let needed = self.layers_in_use(&[])?;
        for layer in self.layer_ids().map_err(failed())? {
            if needed.contains(&layer) || uses.needs_layer(&layer) {
                continue;
            }
            collected.report.bytes += self.layer(&layer).ok().flatten().map_or(0, |it| it.size_bytes);
            collected.taken.extend(self.trash.take(&self.layer_dir(&layer)).map_err(failed())?);
            collected.report.layers.push(layer);
        }
        Ok(())
    }

    /// Moves unfinished directories of dead processes to the trash.
    fn collect_drafts(&self, uses: &Uses, collected: &mut Collection) -> io::Result<()> {
        for path in self.dead_drafts(&uses.holds)? {
            // Names are created under the lock that the collection holds, so any link here is a leftover.
            if path.is_symlink() {
                std::fs::remove_file(&path)?;
            } else if let Some(taken) = self.trash.take(&path)? {
                collected.taken.push(taken);
                collected.report.leftovers += 1;
            }
        }
        Ok(())
    }

    fn has_dead_drafts(&self, holds: &Holds) -> io::Result<bool> {
        self.dead_drafts(holds).map(|it| !it.is_empty())
    }

    /// Lists entries of the temporary directory that belong to no running process.
    fn dead_drafts(&self, holds: &Holds) -> io::Result<Vec<PathBuf>> {
        let mut dead = Vec::new();
        for entry in std::fs::read_dir(self.temporary())? {
            let entry = entry?;
            let name = entry.file_name();
            let maker = name.to_str().and_then(|it| it.split_once('-')).map_or("", |it| it.0);
            dead.extend((!holds.live.contains(maker)).then(|| entry.path()));
        }
        Ok(dead)
    }
}
