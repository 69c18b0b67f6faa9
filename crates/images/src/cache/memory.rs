//! What is remembered of cached images: small files that may be lost, since the engine knows the rest.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};

use coracle_runtime::ImageId;
use jiff::Timestamp;

use super::settings::Cache;
use crate::digest::Sum;
use crate::lock::make_private_dir;

/// No file of ours is larger.
const MAX_BYTES: u64 = 256;

impl Cache {
    /// The image that was last found for this.
    pub(super) fn recall(&self, slot: &Sum) -> Option<ImageId> {
        ImageId::parse(read(&self.slot_file(slot))?).ok()
    }

    pub(super) fn remember(&self, slot: &Sum, image: &ImageId) {
        if self.recall(slot).as_ref() != Some(image) {
            write(&self.slot_file(slot), image.as_str());
        }
    }

    /// Notes that it was used.
    pub(super) fn used(&self, image: &ImageId, now: Timestamp) {
        write(&self.used_file(image), &now.to_string());
    }

    pub(super) fn last_used(&self, image: &ImageId) -> Option<Timestamp> {
        read(&self.used_file(image))?.parse().ok()
    }

    pub(super) fn forget(&self, image: &ImageId) {
        let _ = fs::remove_file(self.used_file(image));
    }

    fn slot_file(&self, slot: &Sum) -> PathBuf {
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

/// What cannot be written is asked of the engine again: no reason for a call to fail.
fn write(path: &Path, text: &str) {
    let write = || {
        let dir = path.parent().unwrap_or(path);
        make_private_dir(dir)?;
        let mut file = tempfile::NamedTempFile::new_in(dir)?;
        file.write_all(text.as_bytes())?;
        file.persist(path).map_err(|it| it.error)
    };
    if let Err(err) = write() {
        tracing::debug!(path = %path.display(), %err, "cannot remember a cached image");
    }
}
