//! Images that are copied into the store, and what all their sources have in common.
//!
//! A source resolves a name to one image for this machine, and fetches the blobs of its layers. [`copy_into`] asks it only
//! for layers that the store lacks.
//!
//! | module | content |
//! |---|---|
//! | `copy` | copies an image from a source into the store |
//! | `identity` | what an image's name demands of it; pure |
//! | `scratch` | temporary files, which do not fill the disk |
//! | `blob` | blobs in temporary files, verified as they are written |
//! | `layout` | image layouts and archives on this machine |
//! | `local_engine` | images of Docker and Podman on this machine, by their `save` |
//!
//! **Invariant:** nothing that a source sends is used before its size and SHA-256 are those that something verified
//! before names.
//! **Invariant:** blobs lie in files without a name: they are gone when their process is.

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

/// The digest of a blob as it is transferred: of a manifest, a configuration or a layer that may be compressed.
pub(crate) type BlobDigest = Sha256Digest;

/// An image that can be copied into the store.
#[async_trait]
pub(crate) trait ImageSource: fmt::Debug + Send + Sync {
    /// Finds the image for a platform. Its configuration is verified.
    async fn resolve(&self, platform: &Platform) -> Result<ResolvedImage>;

    /// Fetches the blob of a layer into a nameless file in `scratch`, and verifies it.
    async fn fetch_layer(&self, layer: &ResolvedLayer, scratch: &Scratch) -> Result<LayerBlob>;
}
