//! Writes an image under one name.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_types::ImageRef;
use serde_json::Value;

use super::{ArchiveLayer, ImageArchive};
use crate::oci::{ImageDocuments, ImageError, ImageName, Result};
use crate::tar::Writer;

/// Fails when the caller cancels.
struct CancellableWriter<'a, W> {
    stream: W,
    is_cancelled: &'a AtomicBool,
}

impl<W: Write> Write for CancellableWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        self.stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

impl ImageArchive {
    /// Writes the image under `name`, its documents first. Blocks; ends early once `is_cancelled` is set.
    ///
    /// # Errors
    /// [`ImageError::WrongDigest`] for a layer with another digest; [`ImageError::Io`].
    pub fn write(&self, name: &str, into: &File, is_cancelled: &AtomicBool) -> Result<()> {
        match self.write_all(name, CancellableWriter { stream: into, is_cancelled }) {
            Err(_) if is_cancelled.load(Ordering::Relaxed) => Err(ImageError::Cancelled),
            done => done,
        }
    }

    fn write_all(&self, name: &str, into: impl Write) -> Result<()> {
        let mut tar = Writer::new(BufWriter::with_capacity(1 << 20, into));
        let configuration = Value::Object(self.configuration.clone()).to_string().into_bytes();
        // Docker searches for the completed name where containerd stores it. Podman uses the reference as the whole
        // name, and knows the other only in later versions.
        let completed = ImageRef::parse(name).map_or_else(|_| name.to_owned(), |it| it.completed().to_string());
        let name = ImageName { docker: name.to_owned(), containerd: completed, reference: name.to_owned() };
        let layers = self.layers.iter().map(ArchiveLayer::written).collect();
        ImageDocuments { configuration, layers, names: vec![name] }.write(&mut tar)?;
        let mut written = HashSet::new();
        for layer in self.layers.iter().filter(|it| written.insert(&it.digest)) {
            tar.write_entry(&layer.written().entry())?;
            layer.copy_to(&mut tar)?;
        }
        Ok(tar.finish()?.flush()?)
    }
}
