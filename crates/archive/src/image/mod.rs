//! Archives of one image: an OCI image layout in a tar, with the manifest of `docker save`, so that every engine can
//! load it.
//!
//! [`ImageArchive::open`] reads a layout, [`ImageArchive::open_saved`] also the output of an older engine's `save`.
//! Labels can be replaced before [`ImageArchive::write`] writes the image.
//!
//! **Invariant:** an archive is untrusted: what is read into memory is bounded, and no path from it is opened on the
//! host.
//! **Invariant:** a blob is written only if it has the length and the digest in its descriptor.

#[cfg(test)]
mod tests;
mod write;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read, Write};

use serde_json::{Map, Value};

use crate::index::TarIndex;
use crate::layout::ImageSet;
use crate::oci::{ImageError, LAYOUT_MARKER, LayerEncoding, Platform, ResolvedLayer, Result, WrittenLayer, parse_json};
use crate::tar::FileSpan;
use crate::{HashingStream, Sha256Digest};

/// Fields of the image specification. Docker adds what its container was made with, labels among it.
const CONFIGURATION_FIELDS: [&str; 10] =
    ["created", "author", "architecture", "os", "os.version", "os.features", "variant", "config", "rootfs", "history"];

/// An image in an archive. Its layers are read from the file.
#[derive(Debug)]
pub struct ImageArchive {
    configuration: Map<String, Value>,
    layers: Vec<ArchiveLayer>,
}

/// A layer of an archive.
#[derive(Clone, Debug)]
pub struct ArchiveLayer {
    content: FileSpan,
    digest: Sha256Digest,
    encoding: LayerEncoding,
}

impl ArchiveLayer {
    /// Finds a layer. Without a manifest, its digest is that of the uncompressed content.
    fn find(index: &TarIndex, layer: ResolvedLayer) -> Result<Self> {
        let path = layer.path();
        let absent = || ImageError::malformed("manifest", &format_args!("no `{}`", path.escape_debug()));
        let content = index.find(&path).ok_or_else(absent)?;
        let Some(blob) = layer.blob() else {
            return Ok(Self { content, digest: layer.diff_id, encoding: LayerEncoding::Plain });
        };
        blob.check_length("layer", content.size())?;
        let encoding = LayerEncoding::from_media_type(&blob.media_type).expect("the manifest was checked");
        Ok(Self { content, digest: blob.digest.clone(), encoding })
    }

    /// How it is compressed.
    #[must_use]
    pub fn encoding(&self) -> LayerEncoding {
        self.encoding
    }

    /// Copies its bytes unchanged.
    ///
    /// # Errors
    /// [`ImageError::WrongDigest`] if they do not match their digest; [`ImageError::Io`].
    pub fn copy_to(&self, into: &mut impl Write) -> Result<()> {
        self.digest.check("layer", &hash_into(&self.content, into)?)
    }

    fn written(&self) -> WrittenLayer {
        WrittenLayer { digest: self.digest.clone(), size: self.content.size(), encoding: self.encoding }
    }
}

impl ImageArchive {
    /// Opens the image for this host in an OCI image layout. Blocks.
    ///
    /// # Errors
    /// [`ImageError::NotImages`] for anything else, and errors of a refused image.
    pub fn open(file: File) -> Result<Self> {
        let index = TarIndex::read(file)?;
        if index.find(LAYOUT_MARKER).is_none() {
            return Err(ImageError::NotImages("it has no `oci-layout`".into()));
        }
        Self::from_index(&index)
    }

    /// Opens the output of an engine's `save`, which may be an archive of `docker save` without a layout. Blocks.
    ///
    /// # Errors
    /// Those of [`open`](Self::open).
    pub fn open_saved(file: File) -> Result<Self> {
        Self::from_index(&TarIndex::read(file)?)
    }

    fn from_index(index: &TarIndex) -> Result<Self> {
        let image = ImageSet::from_index(index.clone())?.image(None, &Platform::of_this_machine())?;
        let mut configuration: Map<String, Value> = parse_json("configuration", &image.configuration)?;
        configuration.retain(|name, _| CONFIGURATION_FIELDS.contains(&name.as_str()));
        let layers = image.layers.into_iter().map(|layer| ArchiveLayer::find(index, layer)).collect::<Result<_>>()?;
        Ok(Self { configuration, layers })
    }

    /// Creates an image with one layer, an uncompressed tar. Blocks.
    ///
    /// # Errors
    /// If the tar cannot be read.
    pub fn from_layer(mut configuration: Map<String, Value>, layer: File) -> Result<Self> {
        let content = FileSpan::whole(layer)?;
        let digest = hash_into(&content, &mut io::sink())?;
        configuration.insert("rootfs".into(), serde_json::json!({ "type": "layers", "diff_ids": [digest] }));
        let layer = ArchiveLayer { content, digest, encoding: LayerEncoding::Plain };
        Ok(Self { configuration, layers: vec![layer] })
    }

    /// The configuration: an object as in the OCI image specification.
    #[must_use]
    pub fn configuration(&self) -> &Map<String, Value> {
        &self.configuration
    }

    /// Its layers, bottom first.
    #[must_use]
    pub fn layers(&self) -> &[ArchiveLayer] {
        &self.layers
    }

    /// The tar of an image of one uncompressed layer.
    #[must_use]
    pub fn only_layer(&self) -> Option<impl Read> {
        match self.layers.as_slice() {
            [one] if one.encoding == LayerEncoding::Plain => Some(one.content.clone()),
            _ => None,
        }
    }

    /// Labels of the image.
    #[must_use]
    pub fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.configuration.get("config").and_then(|it| it.get("Labels")).and_then(Value::as_object);
        let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
        labels.into_iter().flatten().filter_map(text).collect()
    }

    /// Replaces all labels of the image.
    pub fn set_labels(&mut self, labels: &BTreeMap<String, String>) {
        let config = self.configuration.entry("config").or_insert_with(|| Value::Object(Map::new()));
        if !config.is_object() {
            *config = Value::Object(Map::new());
        }
        config["Labels"] = serde_json::json!(labels);
    }

    /// The size of all layers in the archive.
    #[must_use]
    pub fn layer_bytes(&self) -> u64 {
        self.layers.iter().map(|it| it.content.size()).sum()
    }
}

/// Copies content, and returns its digest.
fn hash_into(content: &FileSpan, into: &mut impl Write) -> io::Result<Sha256Digest> {
    let mut content = HashingStream::new(io::BufReader::with_capacity(256 << 10, content.clone()));
    io::copy(&mut content, into)?;
    Ok(content.finish().1)
}
