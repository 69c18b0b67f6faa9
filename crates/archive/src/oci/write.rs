//! Writes the documents of an image layout, with the manifest of `docker save`, so that every engine can load it.

use std::io::{self, Write};

use serde_json::{Value, json};

use super::{DOCKER_MANIFEST_FILE, LAYOUT_INDEX, LAYOUT_MARKER, LayerEncoding, OCI_CONFIG, OCI_MANIFEST};
use crate::Sha256Digest;
use crate::tar::{EntryKind, TarEntry, Writer};

/// The documents of one image, without the content of its layers.
#[derive(Clone, Debug)]
pub struct ImageDocuments {
    /// The configuration, byte for byte.
    pub configuration: Vec<u8>,
    /// The layers, bottom first.
    pub layers: Vec<WrittenLayer>,
    /// Its names. Without one it is identified by its digest.
    pub names: Vec<ImageName>,
}

/// A layer as a manifest describes it.
#[derive(Clone, Debug)]
pub struct WrittenLayer {
    /// The digest of its bytes in the archive.
    pub digest: Sha256Digest,
    /// Their number.
    pub size: u64,
    /// How they are compressed.
    pub encoding: LayerEncoding,
}

/// A name of an image, in the forms that different programs read.
#[derive(Clone, Debug)]
pub struct ImageName {
    /// For `docker load`.
    pub docker: String,
    /// For the image store of containerd, which stores it unchanged: the name with its registry.
    pub containerd: String,
    /// For Podman and other readers of layouts.
    pub reference: String,
}

impl ImageDocuments {
    /// Writes the documents. The archives of the layers follow, each by [`WrittenLayer::entry`].
    ///
    /// # Errors
    /// If the archive cannot be written.
    pub fn write<W: Write>(&self, tar: &mut Writer<W>) -> io::Result<()> {
        let layers: Vec<_> = self.layers.iter().map(WrittenLayer::descriptor).collect();
        let configuration = Sha256Digest::from_content(&self.configuration);
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": OCI_MANIFEST,
            "config": descriptor(OCI_CONFIG, &configuration, self.configuration.len() as u64),
            "layers": layers,
        });
        let manifest = manifest.to_string();
        let manifest_digest = Sha256Digest::from_content(manifest.as_bytes());
        let entry = descriptor(OCI_MANIFEST, &manifest_digest, manifest.len() as u64);
        let index = json!({ "schemaVersion": 2, "manifests": self.index(&entry) }).to_string();
        let tags: Vec<_> = self.names.iter().map(|name| &name.docker).collect();
        let paths: Vec<_> = self.layers.iter().map(|layer| blob_path(&layer.digest)).collect();
        let docker = json!([{ "Config": blob_path(&configuration), "RepoTags": tags, "Layers": paths }]).to_string();
        for (path, content) in [
            (LAYOUT_MARKER.to_owned(), &br#"{"imageLayoutVersion":"1.0.0"}"#[..]),
            (blob_path(&configuration), &self.configuration),
            (blob_path(&manifest_digest), manifest.as_bytes()),
            (LAYOUT_INDEX.to_owned(), index.as_bytes()),
            (DOCKER_MANIFEST_FILE.to_owned(), docker.as_bytes()),
        ] {
            tar.write_file(&file(path, content.len() as u64), content)?;
        }
        Ok(())
    }

    /// Returns the manifest once per name; once without a name if there is none.
    fn index(&self, manifest: &Value) -> Vec<Value> {
        let named = |name: &ImageName| {
            let mut entry = manifest.clone();
            entry["annotations"] = json!({ "io.containerd.image.name": name.containerd, "org.opencontainers.image.ref.name": name.reference });
            entry
        };
        if self.names.is_empty() { vec![manifest.clone()] } else { self.names.iter().map(named).collect() }
    }
}

impl WrittenLayer {
    /// Its entry in the archive of a layout.
    #[must_use]
    pub fn entry(&self) -> TarEntry {
        file(blob_path(&self.digest), self.size)
    }

    fn descriptor(&self) -> Value {
        descriptor(self.encoding.media_type(), &self.digest, self.size)
    }
}

/// The path of a blob in a layout.
#[must_use]
pub fn blob_path(digest: &Sha256Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn descriptor(media_type: &str, digest: &Sha256Digest, size: u64) -> Value {
    json!({ "mediaType": media_type, "digest": digest, "size": size })
}

fn file(path: String, size: u64) -> TarEntry {
    TarEntry::new(path, EntryKind::file(size), 0o644)
}
