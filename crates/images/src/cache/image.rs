//! A cached image and its labels.

use coracle_runtime::Image;
use coracle_types::ImageRef;
use jiff::Timestamp;

use crate::profile::Purpose;
use crate::stand_in::Contents;

/// The word of our cached images, in the label `<ns>.kind`.
pub(super) const KIND: &str = "cache";

/// The label with what was found in an image that stands in for another, as JSON.
pub(super) const CONTENTS: &str = "cache.contents";

/// A cached image of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachedImage {
    /// As the engine has it.
    pub image: Image,
    /// The name it was kept under.
    pub reference: ImageRef,
    /// Its key.
    pub key: String,
    /// The profile it was made for.
    pub purpose: Option<Purpose>,
    /// Its base, as it was asked for.
    pub base: ImageRef,
    /// When it was made.
    pub created: Timestamp,
    /// What was found in it, if it stands in for an image that no registry gave.
    pub contents: Option<Contents>,
    pub(super) base_digest: String,
    pub(super) recipe: String,
}
