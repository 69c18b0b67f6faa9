//! A request for an image with a recipe on it.

use std::time::Duration;

use coracle_runtime::Image;
use coracle_types::{EngineKind, ImageRef};
use jiff::Timestamp;
use serde::Serialize;

use crate::base_image::digest;
use crate::digest::{Sha256Hex, sum_of};
use crate::ensure::Pull;
use crate::key::KeyOf;
use crate::profile::Purpose;
use crate::{Base, ImageOrigin, Recipe};

/// A request for an image with a recipe on it, every default decided.
#[derive(Clone, Debug)]
pub struct ImageRequest {
    /// The profile, for the name of the image; none for packages on an image of the caller's.
    pub purpose: Option<Purpose>,
    /// The base, as the profile or the caller names it.
    pub image: ImageRef,
    /// The caller named the base, so no other image may stand in for it.
    pub explicit: bool,
    /// When the base is fetched.
    pub pull: Pull,
    /// A cached image is ignored, and replaced by the new one (`cache_bust`).
    pub rebuild: bool,
    /// The result stands in for an image that no registry gives, so its versions are recorded.
    pub stands_in: bool,
    /// What is put on the base.
    pub recipe: Recipe,
    /// What comes before that on a base that was made without a registry.
    pub bootstrap: Recipe,
    /// The hash of the certificates that are installed first.
    pub ca: Option<String>,
    /// Coracle's version, `major.minor`.
    pub tool: String,
    /// The age at which a cached image is stale (`images.cache_max_age`).
    pub max_age: Duration,
    /// The present time.
    pub now: Timestamp,
}

impl ImageRequest {
    /// The whole recipe on that base.
    #[must_use]
    pub fn recipe_on(&self, base: &Base) -> Recipe {
        if base.source == ImageOrigin::Bootstrap { self.bootstrapped() } else { self.recipe.clone() }
    }

    /// The key of the image on that base.
    #[must_use]
    pub fn key_on(&self, base: &Base, engine: EngineKind) -> Sha256Hex {
        self.key(&self.recipe_on(base), base.digest(), &base.image.arch, engine)
    }

    /// Whether any base is used as it is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.recipe.is_empty() && self.bootstrap.is_empty()
    }

    /// Ignores the cache and fetches the base again.
    pub(crate) fn is_fresh(&self) -> bool {
        self.rebuild || self.pull == Pull::Always
    }

    /// The key on a local image of the base's name.
    pub(crate) fn key_on_local(&self, base: &Image, engine: EngineKind) -> Sha256Hex {
        self.key(&self.recipe, digest(base), &base.arch, engine)
    }

    /// The keys that a cached image of these labels may have: its base came from a registry, or was made here.
    pub(crate) fn possible_keys(&self, base_digest: &str, arch: &str, engine: EngineKind) -> [Sha256Hex; 2] {
        [&self.recipe, &self.bootstrapped()].map(|recipe| self.key(recipe, base_digest, arch, engine))
    }

    fn bootstrapped(&self) -> Recipe {
        self.recipe.clone().after(&self.bootstrap)
    }

    fn key(&self, recipe: &Recipe, base_digest: &str, arch: &str, engine: EngineKind) -> Sha256Hex {
        KeyOf { recipe, base_digest, ca: self.ca.as_deref(), arch, engine, tool: &self.tool }.sum()
    }

    /// Identifies the request in the file that remembers the last result.
    pub(crate) fn slot(&self, engine: EngineKind) -> Sha256Hex {
        #[derive(Serialize)]
        struct Slot<'a>(EngineKind, &'a Recipe, &'a ImageRef);
        sum_of(&Slot(engine, &self.recipe, &self.image))
    }
}
