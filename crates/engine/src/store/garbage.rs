//! Collects what nothing needs.

use std::path::Path;

use coracle_runtime::ImageId;

use super::removal::Uses;
use super::{DiffId, Result, Store, StoreError};

/// What a collection removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct GarbageReport {
    pub(crate) images: Vec<ImageId>,
    pub(crate) layers: Vec<DiffId>,
    /// Directories that dead processes left, in the making or in the trash.
    pub(crate) leftovers: u64,
    /// Bytes of the removed layers' files.
    pub(crate) bytes: u64,
}

impl Store {
    /// Removes what nothing needs: layers without an image, intermediate images without a name or a user, leftovers of
    /// dead processes. An image that lost its name and is not intermediate stays until it is removed.
    pub(crate) fn collect_garbage(&self) -> Result<GarbageReport> {
        let failed = || StoreError::io("cannot collect garbage in the image store");
        let mut report = GarbageReport::default();
        let lock = self.lock()?;
        let uses = self.uses()?;
        report.images = self.collect_images(&uses)?;
        self.collect_layers(&uses, &mut report)?;
        report.leftovers = self.collect_drafts(&uses).map_err(failed())?;
        drop(lock);
        let taken = (report.images.len() + report.layers.len()) as u64 + report.leftovers;
        let emptied = self.trash.empty().map_err(failed())?;
        report.leftovers += emptied.saturating_sub(taken);
        Ok(report)
    }

    fn collect_images(&self, uses: &Uses) -> Result<Vec<ImageId>> {
        let failed = || StoreError::io("cannot collect images");
        let names = self.all_names().map_err(failed())?;
        let mut collected = Vec::new();
        for id in self.image_ids().map_err(failed())? {
            let is_needed = names.contains_key(&id) || uses.user_of(&id).is_some();
            // One whose record cannot be read is damage, which `verify` reports.
            let intermediate = self.image_record(&id).ok().flatten().is_some_and(|it| it.intermediate);
            if intermediate && !is_needed {
                self.trash.take(&self.image_dir(&id)).map_err(failed())?;
                collected.push(id);
            }
        }
        Ok(collected)
    }

    fn collect_layers(&self, uses: &Uses, report: &mut GarbageReport) -> Result<()> {
        let failed = || StoreError::io("cannot collect layers");
        let needed = self.layers_in_use(&[])?;
        for layer in self.layer_ids().map_err(failed())? {
            if needed.contains(&layer) || uses.needs_layer(&layer) {
                continue;
            }
            report.bytes += self.layer(&layer).ok().flatten().map_or(0, |it| it.size_bytes);
            self.trash.take(&self.layer_dir(&layer)).map_err(failed())?;
            report.layers.push(layer);
        }
        Ok(())
    }

    /// Takes away what was in the making when its maker died.
    fn collect_drafts(&self, uses: &Uses) -> std::io::Result<u64> {
        let mut count = 0;
        for entry in std::fs::read_dir(self.temporary())? {
            let entry = entry?;
            let name = entry.file_name();
            let maker = name.to_str().and_then(|it| it.split_once('-')).map_or("", |it| it.0);
            if uses.holds.live.contains(maker) {
                continue;
            }
            count += u64::from(self.discard_leftover(&entry.path())?);
        }
        Ok(count)
    }

    fn discard_leftover(&self, path: &Path) -> std::io::Result<bool> {
        // Names are made under the lock that the collection holds, so a link that is still there is a leftover.
        if path.is_symlink() {
            return std::fs::remove_file(path).map(|()| false);
        }
        Ok(self.trash.take(path)?.is_some())
    }
}
