//! Copies images into the store, from registries, files and other engines.
//!
//! A source resolves a name to one image for this machine, and fetches the blobs of its layers. [`copy_into`] fetches
//! only layers that the store does not have.
//!
//! | module | content |
//! |---|---|
//! | `copy` | copies an image from a source into the store |
//! | `identity` | checks an image against the name that was requested; pure |
//! | `scratch` | temporary files, limited so that they do not fill the disk |
//! | `blob` | blobs in temporary files, verified as they are written |
//! | `layout` | image layouts and archives on this machine |
//! | `local_engine` | images of Docker and Podman on this machine, through their `save` |
//!
//! **Invariant:** nothing that a source sends is used before its size and SHA-256 match those in a document that is
//! itself verified.
//! **Invariant:** blobs are in files without a name, so they disappear with the process.

mod blob;
mod copy;
mod error;
mod identity;
mod layout;
mod local_engine;
mod scratch;

use std::fmt;

use async_trait::async_trait;

pub(crate) use blob::{BlobWriter, LayerBlob};
pub(crate) use copy::{Deadline, ImageCopy, copy_into};
pub(crate) use error::{Result, SourceError};
pub(crate) use identity::{ImageIdentity, NameUse};
pub(crate) use layout::{LocalImages, open_archive, unblock};
pub(crate) use local_engine::{LocalEngine, save_from_engine};
pub(crate) use scratch::Scratch;

use coracle_archive::Sha256Digest;
use coracle_archive::oci::{Platform, ResolvedImage, ResolvedLayer};

/// The digest of a blob as it is transferred: a manifest, a configuration or a layer, which may be compressed.
pub(crate) type BlobDigest = Sha256Digest;

/// An image that can be copied into the store.
#[async_trait]
pub(crate) trait ImageSource: fmt::Debug + Send + Sync {
    /// Finds the image for a platform. Its configuration is verified.
    async fn resolve(&self, platform: &Platform) -> Result<ResolvedImage>;

    /// Fetches the blob of a layer into a nameless file in `scratch`, and verifies it.
    async fn fetch_layer(&self, layer: &ResolvedLayer, scratch: &Scratch) -> Result<LayerBlob>;
}
