//! Small files with the last result of each request, and the last use of each image. Losing them does no harm.

use std::fs;
use std::path::{Path, PathBuf};

use coracle_types::ImageId;
use jiff::Timestamp;

use super::Cache;
use crate::digest::Sha256Hex;
use crate::lock::make_private_dir;

/// Larger files are not Coracle's.
const MAX_BYTES: u64 = 256;

impl Cache {
    /// Returns the image that was last found for a request.
    pub(super) fn recall(&self, slot: &Sha256Hex) -> Option<ImageId> {
        ImageId::parse(read(&self.slot_file(slot))?).ok()
    }

    pub(super) fn remember(&self, slot: &Sha256Hex, image: &ImageId) {
        if self.recall(slot).as_ref() != Some(image) {
            write(&self.slot_file(slot), image.as_str());
        }
    }

    /// Records the last use.
    pub(super) fn used(&self, image: &ImageId, now: Timestamp) {
        write(&self.used_file(image), &now.to_string());
    }

    pub(super) fn last_used(&self, image: &ImageId) -> Option<Timestamp> {
        read(&self.used_file(image))?.parse().ok()
    }

    pub(super) fn forget(&self, image: &ImageId) {
        let _ = fs::remove_file(self.used_file(image));
    }

    fn slot_file(&self, slot: &Sha256Hex) -> PathBuf {
        self.dir.join("found").join(slot.short())
    }

    fn used_file(&self, image: &ImageId) -> PathBuf {
        self.dir.join("used").join(image.as_str().trim_start_matches("sha256:"))
    }
}

fn read(path: &Path) -> Option<String> {
    fs::metadata(path).ok().filter(|it| it.is_file() && it.len() <= MAX_BYTES)?;
    fs::read_to_string(path).ok()
}

/// Writes a file. A failure is only logged: the next call then asks the engine.
fn write(path: &Path, text: &str) {
    let written = make_private_dir(path.parent().unwrap_or(path)).and_then(|()| fs::write(path, text));
    if let Err(err) = written {
        tracing::debug!(path = %path.display(), %err, "cannot record a cached image");
    }
}
