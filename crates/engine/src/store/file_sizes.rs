//! Adds up the sizes of a layer's files.

use coracle_archive::tar::{EntryKind, TarEntry};

use super::LayerRefusal;

/// The sum of file sizes, including holes: hashing and packing a hole costs as much as content, although creating it costs
/// nothing.
#[derive(Debug)]
pub(super) struct FileSizes {
    sum: u64,
    limit: u64,
}

impl FileSizes {
    pub(super) fn up_to(limit: u64) -> Self {
        Self { sum: 0, limit }
    }

    /// Adds an entry, before its content is read.
    ///
    /// # Errors
    /// [`LayerRefusal::FileTooLarge`].
    pub(super) fn add(&mut self, entry: &TarEntry) -> Result<(), LayerRefusal> {
        let EntryKind::File { size, .. } = entry.kind else { return Ok(()) };
        self.sum = self.sum.saturating_add(size);
        if self.sum <= self.limit {
            return Ok(());
        }
        Err(LayerRefusal::FileTooLarge { path: entry.path.escape_ascii().to_string(), size, limit: self.limit })
    }
}
