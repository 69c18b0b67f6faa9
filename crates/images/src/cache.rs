//! Images with a recipe on them, kept so that the next container has it at once (containers.md 8).
//!
//! [`Cache::find`] comes first and costs one engine call, or two; on a miss the caller gets a base, asks [`Cache::find_on`]
//! under [`Cache::lock`], cooks in a container of its own, and gives it to [`Cache::keep`].
//!
//! **Invariant:** an image without our signature, or of another kind, is not used, whatever its name and its key.
//! **Invariant:** a cached image has the environment, the volumes and the start of its base.

mod clear;
mod commit;
mod image;
mod memory;
mod request;
mod settings;

use std::collections::BTreeMap;
use std::fs::File;
use std::time::Duration;

use coracle_runtime::{ContainerRuntime, EngineKind, Image, ImageRef, LabelFilter};
use jiff::Timestamp;

pub use self::clear::{Clear, Cleared, Kept, Listed};
pub use self::commit::Built;
pub use self::image::Cached;
use self::image::{CONTENTS, KIND, digest};
use self::request::BaseKey;
pub use self::request::Wanted;
pub use self::settings::Cache;
use crate::digest::Sum;
use crate::profile::Purpose;
use crate::stand_in::Contents;
use crate::{Base, Error, Progress, base_image, lock};

/// What there is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// What is wanted.
    Hit(Cached),
    /// The same, too old or made by another version: for when nothing better can be made.
    Stale(Cached),
    /// Nothing.
    Miss,
}

impl Cache {
    /// Looks for what is wanted on this machine, whether its base is here or not. Asks no registry.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn find(&self, runtime: &dyn ContainerRuntime, wanted: &Wanted) -> Result<Found, Error> {
        let engine = runtime.kind();
        let slot = wanted.slot(engine);
        let (mut names, known) = (base_image::names(engine, &wanted.image), self.recall(&slot));
        let bases = names.clone();
        names.extend(known.clone().map(ImageRef::from));
        let here = runtime.find_images(&names).await?;
        let base = here.iter().find(|it| bases.iter().any(|name| it.is_named(name)));
        let known = here.iter().find(|it| Some(&it.id) == known.as_ref());
        let key = base.map(|it| wanted.key(&wanted.recipe, BaseKey { digest: digest(it), arch: &it.arch }, engine));
        let mut found = known.map_or(Found::Miss, |it| self.judge(engine, wanted, (it, key.as_ref())));
        if !matches!(found, Found::Hit(_)) {
            found = match &key {
                Some(key) => self.by_key(runtime, wanted, key).await?,
                None => self.newest(runtime, wanted).await?,
            };
        }
        if let Found::Hit(it) = &found {
            self.remember(&slot, &it.image.id);
            self.used(&it.image.id, wanted.now);
        }
        Ok(found)
    }

    /// Looks for what is wanted on a base that is at hand: after waiting for [`lock`](Self::lock), say.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn find_on(&self, runtime: &dyn ContainerRuntime, wanted: &Wanted, base: &Base) -> Result<Found, Error> {
        self.by_key(runtime, wanted, &wanted.key_on(base, runtime.kind())).await
    }

    /// Holds the lock of one key: who builds it builds it alone, and the others find it afterwards.
    ///
    /// # Errors
    /// [`Error::State`].
    pub async fn lock(&self, key: &Sum, progress: &Progress<'_>) -> Result<File, Error> {
        let path = self.locks.join(format!("cache-{}", key.short()));
        let waiting = "another call makes the same image; waiting for it";
        let locked = lock::take(&path, waiting, progress).await;
        locked.map_err(|source| Error::State { what: format!("lock `{}`", path.display()), source })
    }

    async fn by_key(&self, runtime: &dyn ContainerRuntime, wanted: &Wanted, key: &Sum) -> Result<Found, Error> {
        let names = base_image::names(runtime.kind(), &self.tag(wanted.purpose.as_ref(), key));
        let here = runtime.find_images(&names).await?;
        let all = here.iter().map(|it| self.judge(runtime.kind(), wanted, (it, Some(key))));
        Ok(best(all))
    }

    async fn newest(&self, runtime: &dyn ContainerRuntime, wanted: &Wanted) -> Result<Found, Error> {
        let label = |name: &str, value: &str| (self.signer.key(name), Some(value.to_owned()));
        let recipe = label("cache.recipe", wanted.recipe.sum().as_str());
        let filter = LabelFilter(vec![recipe, label("cache.base", wanted.image.as_str())]);
        let here = runtime.list_images(&filter).await?;
        Ok(best(here.iter().map(|it| self.judge(runtime.kind(), wanted, (it, None)))))
    }

    /// What an image is worth. Without a key, its base is not here: then the one it says it was made on counts.
    fn judge(&self, engine: EngineKind, wanted: &Wanted, (image, key): (&Image, Option<&Sum>)) -> Found {
        let Some(it) = self.read(engine, image) else { return Found::Miss };
        if it.base != wanted.image || it.recipe != wanted.recipe.sum().as_str() {
            return Found::Miss;
        }
        // An image without the label is of a version that did not tell what stands in.
        let may_stand_in = it.contents.is_some() || !image.labels.contains_key(&self.signer.key(CONTENTS));
        if wanted.explicit && may_stand_in {
            return Found::Miss;
        }
        let base = BaseKey { digest: &it.base_digest, arch: &image.arch };
        let current = match key {
            Some(key) if it.key != key.as_str() => return Found::Miss,
            Some(_) => true,
            None => [wanted.recipe.clone(), wanted.bootstrapped()]
                .iter()
                .any(|recipe| wanted.key(recipe, base, engine).as_str() == it.key),
        };
        let age = Duration::try_from(wanted.now.duration_since(it.created)).unwrap_or_default();
        if current && age <= wanted.max_age { Found::Hit(it) } else { Found::Stale(it) }
    }

    /// A cached image of ours, or none: a right signature over the right labels says so, and nothing else.
    fn read(&self, engine: EngineKind, image: &Image) -> Option<Cached> {
        let label = |name: &str| image.labels.get(&self.signer.key(name)).map(String::as_str);
        if label("kind") != Some(KIND) || !self.signer.verify(engine, &image.labels) {
            return None;
        }
        let purpose = label("cache.purpose").filter(|it| !it.is_empty());
        let purpose = purpose.map(Purpose::parse).transpose().ok()?;
        let named = image.tags.iter().filter_map(|it| ImageRef::parse(it).ok()).next();
        Some(Cached {
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

    /// What was found in an image when it was made, if it stands in for another.
    #[must_use]
    pub fn contents(&self, image: &Image) -> Option<Contents> {
        serde_json::from_str(image.labels.get(&self.signer.key(CONTENTS))?).ok()
    }

    fn tag(&self, purpose: Option<&Purpose>, key: &Sum) -> ImageRef {
        let purpose = purpose.map_or("custom", Purpose::as_str);
        // Each state directory has its own names: with shared ones, another's image would lose its name to ours, and go when
        // ours is cleared.
        let (namespace, owner) = (self.signer.namespace(), self.signer.fingerprint());
        let tag = format!("{namespace}-cache:{purpose}-{}-{owner}", key.short());
        ImageRef::parse(tag).expect("namespace, purpose and hex digits are fit for a name")
    }

    fn labels(&self, own: impl IntoIterator<Item = (&'static str, String)>) -> BTreeMap<String, String> {
        own.into_iter().map(|(name, value)| (self.signer.key(name), value)).collect()
    }
}

/// A hit before a stale one, and of two alike the newer.
fn best(all: impl Iterator<Item = Found>) -> Found {
    let rank = |it: &Found| match it {
        Found::Hit(it) => (2, it.created),
        Found::Stale(it) => (1, it.created),
        Found::Miss => (0, Timestamp::MIN),
    };
    all.max_by_key(rank).unwrap_or(Found::Miss)
}

#[cfg(test)]
mod tests;
