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

/// A request for an image with a recipe applied, with all defaults resolved.
#[derive(Clone, Debug)]
pub struct ImageRequest {
    /// The profile, for the name of the image; none for packages in an image of the caller.
    pub purpose: Option<Purpose>,
    /// The base, as the profile or the caller names it.
    pub image: ImageRef,
    /// The caller chose the base, so no other image may replace it.
    pub explicit: bool,
    /// When to pull the base.
    pub pull: Pull,
    /// Ignore a cached image and replace it (`cache_bust`).
    pub rebuild: bool,
    /// The result replaces an image that no registry provides, so its versions are recorded.
    pub stands_in: bool,
    /// What is installed in the base.
    pub recipe: Recipe,
    /// What is installed first in a base that was built without a registry.
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
    /// Returns the complete recipe for that base.
    #[must_use]
    pub fn recipe_on(&self, base: &Base) -> Recipe {
        if base.source == ImageOrigin::Bootstrap { self.bootstrapped() } else { self.recipe.clone() }
    }

    /// Returns the key of the image on that base.
    #[must_use]
    pub fn key_on(&self, base: &Base, engine: EngineKind) -> Sha256Hex {
        self.key(&self.recipe_on(base), base.digest(), &base.image.arch, engine)
    }

    /// Whether any base is used unchanged.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.recipe.is_empty() && self.bootstrap.is_empty()
    }

    /// Whether to ignore the cache and fetch the base again.
    pub(crate) fn is_fresh(&self) -> bool {
        self.rebuild || self.pull == Pull::Always
    }

    /// Returns the key on a local image of the base's name.
    pub(crate) fn key_on_local(&self, base: &Image, engine: EngineKind) -> Sha256Hex {
        self.key(&self.recipe, digest(base), &base.arch, engine)
    }

    /// Returns the keys that a cached image of these labels may have: its base came from a registry, or was built here.
    pub(crate) fn possible_keys(&self, base_digest: &str, arch: &str, engine: EngineKind) -> [Sha256Hex; 2] {
        [&self.recipe, &self.bootstrapped()].map(|recipe| self.key(recipe, base_digest, arch, engine))
    }

    fn bootstrapped(&self) -> Recipe {
        self.recipe.clone().after(&self.bootstrap)
    }

    fn key(&self, recipe: &Recipe, base_digest: &str, arch: &str, engine: EngineKind) -> Sha256Hex {
        KeyOf { recipe, base_digest, ca: self.ca.as_deref(), arch, engine, tool: &self.tool }.sum()
    }

    /// Identifies the request in the file with the last result.
    pub(crate) fn slot(&self, engine: EngineKind) -> Sha256Hex {
        #[derive(Serialize)]
        struct Slot<'a>(EngineKind, &'a Recipe, &'a ImageRef);
        sum_of(&Slot(engine, &self.recipe, &self.image))
    }
}
