//! The one way to an image with a recipe on it: a cached one, else its base with the recipe run in a build container, which
//! is then committed.

mod installed_packages;
mod output;
mod recipe_run;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::future::Future;
use std::time::Duration;

use coracle_client::Link;
use coracle_runtime::{ContainerRuntime, Image};
use coracle_types::{ByteSize, ContainerId, ImageRef};
use tokio_util::sync::CancellationToken;

pub use self::recipe_run::{BuildReport, CommandReport, run_recipe};
use crate::cache::{Built, Cache, CacheLookup, CachedImage};
use crate::ensure::{BaseRequest, FetchSettings, Pull, ensure};
use crate::recipe::{BuildOptions, OnFailure};
use crate::{Base, Error, ImageOrigin, ImageRequest, Progress, Recipe, stand_in};

/// A running container of a base, whose link is to a guest that may act as root.
#[derive(Debug)]
pub struct BuildContainer {
    /// Its id.
    pub id: ContainerId,
    /// Its guest.
    pub link: Link,
    /// The whole environment of a recipe's commands in it.
    pub env: BTreeMap<String, String>,
}

/// Creates the containers that recipes run in. The caller removes them, also after an error or a cancel.
pub trait BuildContainers {
    /// Why none could be created.
    type Error: From<Error>;

    /// Creates one that is ready for that recipe; none if it would have no guest.
    fn create(
        &mut self,
        base: &Base,
        recipe: &Recipe,
    ) -> impl Future<Output = Result<Option<BuildContainer>, Self::Error>> + Send;
}

/// Gets images. Everything that comes from configuration or host is given.
pub struct ImageBuilder<'a> {
    /// The engine.
    pub runtime: &'a dyn ContainerRuntime,
    /// Where images are kept.
    pub cache: &'a Cache,
    /// How bases are fetched.
    pub fetch: &'a FetchSettings,
    /// For a whole recipe (`images.build_timeout`).
    pub timeout: Duration,
    /// The size of all cached images together (`images.cache_max_bytes`).
    pub max_bytes: ByteSize,
    /// Ends a recipe.
    pub cancel: CancellationToken,
    /// Reports what takes long.
    pub progress: &'a Progress<'a>,
}

/// How an image was got.
#[derive(Debug)]
pub enum BuildOutcome {
    /// The base as it is: there is nothing to put on it.
    Base(Base),
    /// It was in the cache.
    Cached(CachedImage),
    /// It was in the cache and is stale, but its base cannot be had for a newer one.
    Stale(CachedImage, Error),
    /// It was built, on a base from that source.
    Built(CachedImage, ImageOrigin),
    /// The recipe failed on that base.
    Failed(Base, BuildFailure),
}

/// Why no image was built, and the end of the output of the command that failed.
#[derive(Debug)]
pub struct BuildFailure {
    /// The reason.
    pub why: String,
    /// The end of the output.
    pub log: Option<String>,
}

impl BuildOutcome {
    /// The image, and its name; of a recipe that failed, the base.
    #[must_use]
    pub fn image(&self) -> (&Image, &ImageRef) {
        match self {
            Self::Base(it) | Self::Failed(it, _) => (&it.image, &it.reference),
            Self::Cached(it) | Self::Stale(it, _) | Self::Built(it, _) => (&it.image, &it.reference),
        }
    }

    /// The same outcome with the image as another engine has it.
    #[must_use]
    pub fn with_image(mut self, image: Image) -> Self {
        match &mut self {
            Self::Base(it) | Self::Failed(it, _) => it.image = image,
            Self::Cached(it) | Self::Stale(it, _) | Self::Built(it, _) => it.image = image,
        }
        self
    }

    /// The image and its name, unless the recipe failed.
    ///
    /// # Errors
    /// Why the recipe failed.
    pub fn into_image(self) -> Result<(Image, ImageRef), BuildFailure> {
        match self {
            Self::Base(it) => Ok((it.image, it.reference)),
            Self::Cached(it) | Self::Stale(it, _) | Self::Built(it, _) => Ok((it.image, it.reference)),
            Self::Failed(_, failure) => Err(failure),
        }
    }
}

impl ImageBuilder<'_> {
    /// Gets an image with a recipe on it. Of calls that need the same one at once, one builds it.
    ///
    /// # Errors
    /// No base can be had, or a container or the engine failed.
    pub async fn build<C: BuildContainers>(
        &self,
        request: &ImageRequest,
        containers: &mut C,
    ) -> Result<BuildOutcome, C::Error> {
        if request.is_empty() {
            return Ok(BuildOutcome::Base(self.base(request).await?));
        }
        let stale = match self.cache.find(self.runtime, request).await? {
            CacheLookup::Hit(cached) if !request.is_fresh() => return Ok(BuildOutcome::Cached(cached)),
            CacheLookup::Hit(cached) | CacheLookup::Stale(cached) => Some(cached),
            CacheLookup::Miss => None,
        };
        let base = match (self.base(request).await, stale) {
            (Ok(base), _) => base,
            (Err(why), Some(cached)) if !request.is_fresh() => return Ok(BuildOutcome::Stale(cached, why)),
            (Err(why), _) => return Err(why.into()),
        };
        if request.recipe_on(&base).is_empty() {
            return Ok(BuildOutcome::Base(base));
        }
        let _lock = self.cache.lock(&request.key_on(&base, self.runtime.kind()), self.progress).await?;
        // The holder before may have built it.
        if !request.is_fresh()
            && let CacheLookup::Hit(cached) = self.cache.find_on(self.runtime, request, &base).await?
        {
            return Ok(BuildOutcome::Cached(cached));
        }
        match self.run_and_commit(request, &base, containers).await? {
            Ok(cached) => Ok(BuildOutcome::Built(cached, base.source)),
            Err(failure) => Ok(BuildOutcome::Failed(base, failure)),
        }
    }

    /// The base alone.
    ///
    /// # Errors
    /// It cannot be had.
    pub async fn base(&self, request: &ImageRequest) -> Result<Base, Error> {
        let base = BaseRequest { image: &request.image, explicit: request.explicit, pull: request.pull };
        if request.rebuild && request.pull == Pull::Missing {
            // A base that cannot be fetched again is the local one.
            let again = BaseRequest { pull: Pull::Always, ..base };
            if let Ok(base) = ensure(self.runtime, again, self.fetch, self.progress).await {
                return Ok(base);
            }
        }
        ensure(self.runtime, base, self.fetch, self.progress).await
    }

    /// Runs a recipe in a build container; nothing if it would have no guest.
    ///
    /// # Errors
    /// The container or the link to it is lost.
    pub async fn run<C: BuildContainers>(
        &self,
        base: &Base,
        recipe: &Recipe,
        containers: &mut C,
    ) -> Result<Option<(BuildContainer, BuildReport)>, C::Error> {
        let Some(container) = containers.create(base, recipe).await? else { return Ok(None) };
        let report = run_recipe(&container.link, recipe, &self.options(&container), self.progress).await?;
        Ok(Some((container, report)))
    }

    async fn run_and_commit<C: BuildContainers>(
        &self,
        request: &ImageRequest,
        base: &Base,
        containers: &mut C,
    ) -> Result<Result<CachedImage, BuildFailure>, C::Error> {
        let of = request.purpose.as_ref().map_or_else(|| request.image.to_string(), ToString::to_string);
        (self.progress)(&format!("making the image of `{of}`"));
        let Some((container, report)) = self.run(base, &request.recipe_on(base), containers).await? else {
            return Ok(Err(BuildFailure::new("this container has no guest, and recipes are cooked by one")));
        };
        if let Some(why) = report.failure() {
            return Ok(Err(BuildFailure { why, log: report.log().map(str::to_owned) }));
        }
        let contents = match base.source == ImageOrigin::Bootstrap || request.stands_in {
            true => Some(stand_in::probe(&container.link, &self.options(&container)).await?),
            false => None,
        };
        (self.progress)("keeping the image");
        let contents = contents.as_ref();
        let built = Built { container: &container.id, base, request, contents, max_bytes: Some(self.max_bytes) };
        match self.cache.commit(self.runtime, &built).await {
            Ok(cached) => Ok(Ok(cached)),
            Err(Error::Unfit { what }) => Ok(Err(BuildFailure::new(what))),
            Err(err) => Err(err.into()),
        }
    }

    fn options(&self, container: &BuildContainer) -> BuildOptions {
        let (env, cancel) = (container.env.clone(), self.cancel.clone());
        BuildOptions { env, limit: self.timeout, on_failure: OnFailure::Stop, cancel }
    }
}

impl BuildFailure {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), log: None }
    }
}

impl std::fmt::Debug for ImageBuilder<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ImageBuilder").field("cache", self.cache).field("fetch", self.fetch).finish_non_exhaustive()
    }
}
