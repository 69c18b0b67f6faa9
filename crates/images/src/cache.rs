//! The cache of images with a recipe applied.
//!
//! [`ImageBuilder`](crate::ImageBuilder) looks here first, which costs one or two engine calls, and commits what it
//! builds.
//!
//! **Invariant:** an image without Coracle's signature, or of another kind, is not used, whatever its name and key.
//! **Invariant:** a cached image has the environment, the volumes and the command of its base.

mod clear;
mod commit;
mod image;
mod last_used;

use std::fs::File;
use std::path::PathBuf;
use std::time::Duration;

use coracle_runtime::labels::Signer;
use coracle_runtime::{ContainerRuntime, Image, LabelFilter};
use coracle_types::{EngineKind, ImageRef};
use jiff::Timestamp;

pub use self::clear::{CacheClearReport, CachedImageInfo, Clear, RetainedImage};
pub use self::commit::Built;
pub use self::image::CachedImage;
use self::image::{CONTENTS, KIND};
use crate::digest::Sha256Hex;
use crate::profile::Purpose;
use crate::stand_in::Contents;
use crate::{Base, Error, ImageRequest, Progress, Recipe, base_image, lock};

/// The cache's directories and signer. All values from configuration and host are passed in.
#[derive(Clone, Debug)]
pub struct Cache {
    /// Signs the labels of images.
    pub signer: Signer,
    /// Records which image was found for a request, and when it was last used.
    pub dir: PathBuf,
    /// The directory of locks.
    pub locks: PathBuf,
    /// Coracle's version, for the label.
    pub version: String,
}

/// The result of a lookup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CacheLookup {
    /// The requested image.
    Hit(CachedImage),
    /// The requested image, but too old or built by another version: used if no newer one can be built.
    Stale(CachedImage),
    /// No usable image.
    Miss,
}

impl Cache {
    /// Looks for the requested image on this engine, whether its base is local or not. Contacts no registry.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn find(&self, runtime: &dyn ContainerRuntime, request: &ImageRequest) -> Result<CacheLookup, Error> {
        let engine = runtime.kind();
        let slot = request.slot(engine);
        let (mut names, known) = (base_image::names(engine, &request.image), self.recall(&slot));
        let bases = names.clone();
        names.extend(known.clone().map(ImageRef::from));
        let here = runtime.find_images(&names).await?;
        let base = here.iter().find(|it| bases.iter().any(|name| it.is_named(name)));
        let known = here.iter().find(|it| Some(&it.id) == known.as_ref());
        let key = base.map(|it| request.key_on_local(it, engine));
        let mut found = known.map_or(CacheLookup::Miss, |it| self.rate(engine, request, it, key.as_ref()));
        if !matches!(found, CacheLookup::Hit(_)) {
            found = match &key {
                Some(key) => self.by_key(runtime, request, key).await?,
                None => self.newest(runtime, request).await?,
            };
        }
        if let CacheLookup::Hit(it) = &found {
            self.remember(&slot, &it.image.id);
            self.used(&it.image.id, request.now);
        }
        Ok(found)
    }

    /// Looks for the requested image on a local base, for instance after waiting for [`lock`](Self::lock).
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn find_on(
        &self,
        runtime: &dyn ContainerRuntime,
        request: &ImageRequest,
        base: &Base,
    ) -> Result<CacheLookup, Error> {
        self.by_key(runtime, request, &request.key_on(base, runtime.kind())).await
    }

    /// Locks one key: one process builds its image, and the others find it afterwards.
    ///
    /// # Errors
    /// [`Error::State`].
    pub async fn lock(&self, key: &Sha256Hex, progress: &Progress<'_>) -> Result<File, Error> {
        lock::lock(&self.locks.join(format!("cache-{}", key.short())), lock::SAME_IMAGE, progress).await
    }

    async fn by_key(
        &self,
        runtime: &dyn ContainerRuntime,
        request: &ImageRequest,
        key: &Sha256Hex,
    ) -> Result<CacheLookup, Error> {
        let names = base_image::names(runtime.kind(), &self.tag(request.purpose.as_ref(), key));
        let here = runtime.find_images(&names).await?;
        let all = here.iter().map(|it| self.rate(runtime.kind(), request, it, Some(key)));
        Ok(best(all))
    }

    async fn newest(&self, runtime: &dyn ContainerRuntime, request: &ImageRequest) -> Result<CacheLookup, Error> {
        let label = |name: &str, value: &str| (self.signer.key(name), Some(value.to_owned()));
        let recipe = label("cache.recipe", request.recipe.sum().as_str());
        let filter = LabelFilter(vec![recipe, label("cache.base", request.image.as_str())]);
        let here = runtime.list_images(&filter).await?;
        Ok(best(here.iter().map(|it| self.rate(runtime.kind(), request, it, None))))
    }

    /// Decides whether an image is the requested one, and whether it is stale. Without a key, its base is not local:
    /// then the base in its labels counts.
    fn rate(&self, engine: EngineKind, request: &ImageRequest, image: &Image, key: Option<&Sha256Hex>) -> CacheLookup {
        let Some(it) = self.read(engine, image) else { return CacheLookup::Miss };
        if it.base != request.image || it.recipe != request.recipe.sum().as_str() {
            return CacheLookup::Miss;
        }
        // An image without this label was built by a version that did not record its contents.
        let may_stand_in = it.contents.is_some() || !image.labels.contains_key(&self.signer.key(CONTENTS));
        if request.explicit && may_stand_in {
            return CacheLookup::Miss;
        }
        let current = match key {
            Some(key) if it.key != key.as_str() => return CacheLookup::Miss,
            Some(_) => true,
            None => {
                let possible = request.possible_keys(&it.base_digest, &image.arch, engine);
                possible.iter().any(|key| key.as_str() == it.key)
            }
        };
        let age = Duration::try_from(request.now.duration_since(it.created)).unwrap_or_default();
        if current && age <= request.max_age { CacheLookup::Hit(it) } else { CacheLookup::Stale(it) }
    }

    /// Returns the local image of a fixed name, unless another state directory signed it, or this cache built it from
    /// another recipe. An image that a user built on one of Coracle's inherits its labels but has no name in the cache:
    /// it is used.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn find_named(
        &self,
        runtime: &dyn ContainerRuntime,
        name: &ImageRef,
        recipe: &Recipe,
    ) -> Result<Option<(Image, ImageRef)>, Error> {
        let found = base_image::find(runtime, name).await?;
        Ok(found.filter(|(image, _)| self.is_current(runtime.kind(), image, recipe)))
    }

    fn is_current(&self, engine: EngineKind, image: &Image, recipe: &Recipe) -> bool {
        let prefix = self.signer.key("");
        if image.labels.keys().any(|it| it.starts_with(&prefix)) && !self.signer.verify(engine, &image.labels) {
            return false;
        }
        let cache = format!("{}-cache:", self.signer.namespace());
        let made_by = image.labels.get(&self.signer.key("cache.recipe"));
        made_by.is_none_or(|it| it == recipe.sum().as_str()) || !image.tags.iter().any(|it| it.contains(&cache))
    }

    /// Reads a cached image, if its signature is valid.
    fn read(&self, engine: EngineKind, image: &Image) -> Option<CachedImage> {
        let label = |name: &str| image.labels.get(&self.signer.key(name)).map(String::as_str);
        if label("kind") != Some(KIND) || !self.signer.verify(engine, &image.labels) {
            return None;
        }
        let purpose = label("cache.purpose").filter(|it| !it.is_empty());
        let purpose = purpose.map(Purpose::parse).transpose().ok()?;
        let named = image.tags.iter().filter_map(|it| ImageRef::parse(it).ok()).next();
        Some(CachedImage {
            reference: named.unwrap_or_else(|| image.id.clone().into()),
            key: label("cache.key")?.to_owned(),
            purpose,
            base: ImageRef::parse(label("cache.base")?).ok()?,
            created: label("created")?.parse().ok()?,
            contents: self.contents(image),
            base_digest: label("cache.base_digest")?.to_owned(),
            recipe: label("cache.recipe")?.to_owned(),
            image: image.clone(),
        })
    }

    /// Returns the recorded contents of an image that replaces another.
    #[must_use]
    pub fn contents(&self, image: &Image) -> Option<Contents> {
        serde_json::from_str(image.labels.get(&self.signer.key(CONTENTS))?).ok()
    }

    fn tag(&self, purpose: Option<&Purpose>, key: &Sha256Hex) -> ImageRef {
        let purpose = purpose.map_or("custom", Purpose::as_str);
        // Each state directory has its own names: with shared names, one would take the name from an image of the
        // other, and remove it when the cache is cleared.
        let (namespace, owner) = (self.signer.namespace(), self.signer.fingerprint());
        let tag = format!("{namespace}-cache:{purpose}-{}-{owner}", key.short());
        ImageRef::parse(tag).expect("namespace, purpose and hex digits are fit for a name")
    }
}

/// Prefers a hit to a stale image, and then the newer one.
fn best(all: impl Iterator<Item = CacheLookup>) -> CacheLookup {
    let rank = |it: &CacheLookup| match it {
        CacheLookup::Hit(it) => (2, it.created),
        CacheLookup::Stale(it) => (1, it.created),
        CacheLookup::Miss => (0, Timestamp::MIN),
    };
    all.max_by_key(rank).unwrap_or(CacheLookup::Miss)
}

#[cfg(test)]
mod tests;
