//! A cached image and its labels.

use coracle_runtime::Image;
use coracle_types::ImageRef;
use jiff::Timestamp;

use crate::profile::Purpose;
use crate::stand_in::Contents;

/// The value of the label `<ns>.kind` for cached images.
pub(super) const KIND: &str = "cache";

/// The label with the contents of an image that replaces another, as JSON.
pub(super) const CONTENTS: &str = "cache.contents";

/// A cached image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedImage {
    /// The engine's description of it.
    pub image: Image,
    /// Its name in the cache.
    pub reference: ImageRef,
    /// Its key.
    pub key: String,
    /// The profile it was built for.
    pub purpose: Option<Purpose>,
    /// Its base, as requested.
    pub base: ImageRef,
    /// When it was created.
    pub created: Timestamp,
    /// Its contents, if it replaces an image of a registry.
    pub contents: Option<Contents>,
    pub(super) base_digest: String,
    pub(super) recipe: String,
}
