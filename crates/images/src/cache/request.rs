//! What is wanted of the cache.

use std::time::Duration;

use coracle_runtime::{EngineKind, ImageRef};
use jiff::Timestamp;
use serde::Serialize;

use super::image::digest;
use crate::digest::{Sum, sum_of};
use crate::key::KeyOf;
use crate::profile::Purpose;
use crate::{Base, Recipe, Source};

/// What is wanted, every default decided.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// The profile, for the name of the image; none for packages on an image of the caller's.
    pub purpose: Option<Purpose>,
    /// The base, as the profile or the caller names it.
    pub image: ImageRef,
    /// The caller named it: no image that stands in for it will do.
    pub explicit: bool,
    /// What is put on it.
    pub recipe: Recipe,
    /// What comes before that on a base that was made without a registry.
    pub bootstrap: Recipe,
    /// The hash of the certificates that are put in first.
    pub ca: Option<String>,
    /// Our own version, `major.minor`.
    pub tool: String,
    /// An older one is to be made anew (`images.cache_max_age`).
    pub max_age: Duration,
    /// The present time.
    pub now: Timestamp,
}

/// What of a base decides the key of an image on it.
#[derive(Clone, Copy)]
pub(super) struct BaseKey<'a> {
    pub(super) digest: &'a str,
    pub(super) arch: &'a str,
}

impl Wanted {
    /// What is put on that base, all of it.
    #[must_use]
    pub fn recipe_on(&self, base: &Base) -> Recipe {
        if base.source == Source::Bootstrap { self.bootstrapped() } else { self.recipe.clone() }
    }

    /// The key of its image on that base.
    #[must_use]
    pub fn key_on(&self, base: &Base, engine: EngineKind) -> Sum {
        self.key(&self.recipe_on(base), BaseKey { digest: digest(&base.image), arch: &base.image.arch }, engine)
    }

    /// Nothing is put on whatever the base turns out to be.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.recipe.is_empty() && self.bootstrap.is_empty()
    }

    pub(super) fn bootstrapped(&self) -> Recipe {
        self.recipe.clone().after(&self.bootstrap)
    }

    pub(super) fn key(&self, recipe: &Recipe, base: BaseKey<'_>, engine: EngineKind) -> Sum {
        let BaseKey { digest: base_digest, arch } = base;
        KeyOf { recipe, base_digest, ca: self.ca.as_deref(), arch, engine, tool: &self.tool }.sum()
    }

    /// Tells what is asked for from all else on this machine.
    pub(super) fn slot(&self, engine: EngineKind) -> Sum {
        #[derive(Serialize)]
        struct Slot<'a>(EngineKind, &'a Recipe, &'a ImageRef);
        sum_of(&Slot(engine, &self.recipe, &self.image))
    }
}
