//! Writes an image anew, under one name.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use coracle_types::ImageRef;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{ArchiveLayer, ImageArchive, ImageArchiveError, Result};
use crate::tar_index::FileSpan;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIGURATION: &str = "application/vnd.oci.image.config.v1+json";

/// A small file of the layout.
struct Document {
    content: String,
    digest: String,
}

impl Document {
    fn new(content: &Value) -> Self {
        let content = content.to_string();
        Self { digest: hex::encode(Sha256::digest(&content)), content }
    }

    fn path(&self) -> String {
        blob_path(&self.digest)
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": format!("sha256:{}", self.digest), "size": self.content.len() })
    }
}

/// Reads a layer, hashes it, and ends early when the caller gives up.
struct CheckedLayer<'a> {
    content: FileSpan,
    hash: Sha256,
    is_cancelled: &'a AtomicBool,
}

impl Read for CheckedLayer<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.is_cancelled.load(Ordering::Relaxed) {
            return Err(io::Error::other("cancelled"));
        }
        let count = self.content.read(buffer)?;
        self.hash.update(&buffer[..count]);
        Ok(count)
    }
}

impl ArchiveLayer {
    fn descriptor(&self) -> Value {
        json!({ "mediaType": self.media_type(), "digest": format!("sha256:{}", self.digest), "size": self.content.size() })
    }
}

impl ImageArchive {
    /// Writes the image under `name`, its documents first. Blocks; ends early once `is_cancelled` is set.
    ///
    /// # Errors
    /// [`ImageArchiveError::Damaged`] for a layer of another digest; [`ImageArchiveError::Io`].
    pub fn write(&self, name: &str, into: &File, is_cancelled: &AtomicBool) -> Result<()> {
        let mut tar = tar::Builder::new(BufWriter::with_capacity(1 << 20, into));
        for (path, content) in self.documents(name) {
            tar.append_data(&mut header(content.len() as u64), path, content.as_bytes())?;
        }
        let mut written = HashSet::new();
        for layer in self.layers.iter().filter(|it| written.insert(&it.digest)) {
            let mut content = CheckedLayer { content: layer.content.clone(), hash: Sha256::new(), is_cancelled };
            let copied = tar.append_data(&mut header(layer.content.size()), blob_path(&layer.digest), &mut content);
            if is_cancelled.load(Ordering::Relaxed) {
                return Err(ImageArchiveError::Cancelled);
            }
            copied?;
            if hex::encode(content.hash.finalize()) != layer.digest {
                return Err(ImageArchiveError::Damaged(layer.digest.clone()));
            }
        }
        tar.into_inner()?.flush()?;
        Ok(())
    }

    fn documents(&self, name: &str) -> [(String, String); 5] {
        let configuration = Document::new(&Value::Object(self.configuration.clone()));
        let layers: Vec<_> = self.layers.iter().map(ArchiveLayer::descriptor).collect();
        let manifest = Document::new(&json!({
            "schemaVersion": 2,
            "mediaType": MANIFEST,
            "config": configuration.descriptor(CONFIGURATION),
            "layers": layers,
        }));
        let mut entry = manifest.descriptor(MANIFEST);
        // The image store of containerd keeps the first as it stands, and Docker looks for the completed name there.
        // Podman takes the second for the whole name, and knows the first in later versions only.
        let completed = ImageRef::parse(name).map_or_else(|_| name.to_owned(), |it| it.completed().to_string());
        entry["annotations"] =
            json!({ "io.containerd.image.name": completed, "org.opencontainers.image.ref.name": name });
        let index = json!({ "schemaVersion": 2, "manifests": [entry] });
        let paths: Vec<_> = self.layers.iter().map(|it| blob_path(&it.digest)).collect();
        let docker = json!([{ "Config": configuration.path(), "RepoTags": [name], "Layers": paths }]);
        [
            (super::documents::LAYOUT.to_owned(), json!({ "imageLayoutVersion": "1.0.0" }).to_string()),
            (configuration.path(), configuration.content),
            (manifest.path(), manifest.content),
            ("index.json".to_owned(), index.to_string()),
            ("manifest.json".to_owned(), docker.to_string()),
        ]
    }
}

fn blob_path(digest: &str) -> String {
    format!("blobs/sha256/{digest}")
}

fn header(size: u64) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_mode(0o644);
    header.set_size(size);
    header
}
