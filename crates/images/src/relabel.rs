//! Rewrites archives of images with other labels.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_archive::image::ImageArchive;
use coracle_archive::oci::ImageError;
use coracle_types::ImageRef;

/// Writes the image of an engine's archive under a name and with these labels instead of its own.
///
/// # Errors
/// If it cannot be read or written, and for a layer whose digest does not match.
pub async fn relabel(
    saved: File,
    name: &ImageRef,
    labels: BTreeMap<String, String>,
    into: File,
) -> Result<(), ImageError> {
    let name = name.to_string();
    off_thread(move |is_cancelled| {
        let mut image = ImageArchive::open_saved(saved)?;
        image.set_labels(&labels);
        image.write(&name, &into, is_cancelled)
    })
    .await
}

/// Runs blocking work on another thread. It ends if the caller stops waiting.
pub(crate) async fn off_thread<T: Send + 'static>(
    work: impl FnOnce(&AtomicBool) -> Result<T, ImageError> + Send + 'static,
) -> Result<T, ImageError> {
    let is_cancelled = Arc::new(AtomicBool::new(false));
    let _given_up = CancelOnDrop(Arc::clone(&is_cancelled));
    let done = tokio::task::spawn_blocking(move || work(&is_cancelled)).await;
    done.map_err(|err| ImageError::from(std::io::Error::other(err)))?
}

#[derive(Debug)]
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
