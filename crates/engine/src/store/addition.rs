//! Layers and images that are being added, safe from garbage collection until their image stands.

use std::fs::File;

use coracle_runtime::{Image, ImageRef};

use super::{DiffId, LayerRecord, Result, Store, StoreError};

/// How the blob of a layer is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// What a layer may hold at most.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LayerLimits {
    /// Bytes of the uncompressed archive.
    pub(crate) bytes: u64,
    /// Entries of the archive.
    pub(crate) entries: u64,
    /// Parts of a path.
    pub(crate) depth: usize,
}

impl Default for LayerLimits {
    fn default() -> Self {
        Self { bytes: 64 << 30, entries: 4_000_000, depth: 1024 }
    }
}

/// A layer to be added.
#[derive(Debug)]
pub(crate) struct NewLayer {
    pub(crate) diff_id: DiffId,
    /// Read from its present position on.
    pub(crate) blob: File,
    pub(crate) compression: Compression,
    pub(crate) limits: LayerLimits,
}

/// An image whose layers are all in the store.
#[derive(Debug, Default)]
pub(crate) struct NewImage {
    /// The OCI configuration, byte for byte: the image's id is its digest.
    pub(crate) configuration: Vec<u8>,
    /// Names that lead to it from now on.
    pub(crate) names: Vec<ImageRef>,
    /// `repository@sha256:…` of the manifest it came by.
    pub(crate) repo_digest: Option<String>,
    /// Made on the way to another image: garbage as soon as it has no name and no user.
    pub(crate) intermediate: bool,
}

/// An addition in progress. Garbage collection leaves the layers it has seen or added; dropping it ends that.
#[derive(Debug)]
pub(crate) struct Addition<'a> {
    store: &'a Store,
}

impl Store {
    /// Begins to add an image.
    pub(crate) fn begin_addition(&self) -> Result<Addition<'_>> {
        Ok(Addition { store: self })
    }
}

impl Addition<'_> {
    /// Whether the store has the layer; if so, it stays until this addition ends.
    pub(crate) fn has_layer(&mut self, _diff_id: &DiffId) -> Result<bool> {
        Ok(false)
    }

    /// Unpacks a layer, unless the store has it.
    pub(crate) fn add_layer(&mut self, layer: NewLayer) -> Result<LayerRecord> {
        let NewLayer { diff_id, .. } = layer;
        Err(StoreError::NoSuchLayer(diff_id))
    }

    /// Adds an image of layers that the store has. One with the same configuration gets the new names.
    pub(crate) fn add_image(&mut self, _image: NewImage) -> Result<Image> {
        let _ = &self.store;
        Err(StoreError::Configuration("not built".into()))
    }
}
