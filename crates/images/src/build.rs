//! Gets an image with a recipe applied: a cached one, else its base with the recipe run in a build container, which
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

/// A running container of a base. Its guest may act as root.
#[derive(Debug)]
pub struct BuildContainer {
    /// Its id.
    pub id: ContainerId,
    /// Its guest.
    pub link: Link,
    /// The complete environment of a recipe's commands.
    pub env: BTreeMap<String, String>,
}

/// Creates the containers that recipes run in. The caller removes them, also after an error or a cancellation.
pub trait BuildContainers {
    /// Why none could be created.
    type Error: From<Error>;

    /// Creates a container for that recipe; none if it would have no guest.
    fn create(
        &mut self,
        base: &Base,
        recipe: &Recipe,
    ) -> impl Future<Output = Result<Option<BuildContainer>, Self::Error>> + Send;
}

/// Builds images. All values from configuration and host are passed in.
pub struct ImageBuilder<'a> {
    /// The engine.
    pub runtime: &'a dyn ContainerRuntime,
    /// The cache of images.
    pub cache: &'a Cache,
    /// How bases are fetched.
    pub fetch: &'a FetchSettings,
    /// Time limit of a recipe (`images.build_timeout`).
    pub timeout: Duration,
    /// Maximum size of all cached images together (`images.cache_max_bytes`).
    pub max_bytes: ByteSize,
    /// Cancels a recipe.
    pub cancel: CancellationToken,
    /// Receives progress messages.
    pub progress: &'a Progress<'a>,
}

/// The result of a build.
#[derive(Debug)]
pub enum BuildOutcome {
    /// The base unchanged: the recipe is empty.
    Base(Base),
    /// It was in the cache.
    Cached(CachedImage),
    /// It was in the cache and is stale, but its base could not be fetched for a newer one.
    Stale(CachedImage, Error),
    /// It was built, on a base from that source.
    Built(CachedImage, ImageOrigin),
    /// The recipe failed on that base.
    Failed(Base, BuildFailure),
}

/// Why no image was built, with the end of the failed command's output.
#[derive(Debug)]
pub struct BuildFailure {
    /// The reason.
    pub why: String,
    /// The end of the output.
    pub log: Option<String>,
}

impl BuildOutcome {
    /// Returns the image and its name; the base if the recipe failed.
    #[must_use]
    pub fn image(&self) -> (&Image, &ImageRef) {
        match self {
            Self::Base(it) | Self::Failed(it, _) => (&it.image, &it.reference),
            Self::Cached(it) | Self::Stale(it, _) | Self::Built(it, _) => (&it.image, &it.reference),
        }
    }

    /// Replaces the image by the same one on another engine.
    #[must_use]
    pub fn with_image(mut self, image: Image) -> Self {
        match &mut self {
            Self::Base(it) | Self::Failed(it, _) => it.image = image,
            Self::Cached(it) | Self::Stale(it, _) | Self::Built(it, _) => it.image = image,
        }
        self
    }

    /// Returns the image and its name, unless the recipe failed.
    ///
    /// # Errors
    /// The failure of the recipe.
    pub fn into_image(self) -> Result<(Image, ImageRef), BuildFailure> {
        match self {
            Self::Base(it) => Ok((it.image, it.reference)),
            Self::Cached(it) | Self::Stale(it, _) | Self::Built(it, _) => Ok((it.image, it.reference)),
            Self::Failed(_, failure) => Err(failure),
        }
    }
}

impl ImageBuilder<'_> {
    /// Builds an image with a recipe applied. Of concurrent calls for the same image, one builds it.
    ///
    /// # Errors
    /// If no base is available, or a container or the engine failed.
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
        // The previous holder of the lock may have built it.
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

    /// Returns only the base.
    ///
    /// # Errors
    /// If it is not available.
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

    /// Runs a recipe in a build container; none if it would have no guest.
    ///
    /// # Errors
    /// If the container or the link to it is lost.
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
        (self.progress)(&format!("building the image of `{of}`"));
        let Some((container, report)) = self.run(base, &request.recipe_on(base), containers).await? else {
            return Ok(Err(BuildFailure::new("this container has no guest, and recipes need one")));
        };
        if let Some(why) = report.failure() {
            return Ok(Err(BuildFailure { why, log: report.log().map(str::to_owned) }));
        }
        let contents = match base.source == ImageOrigin::Bootstrap || request.stands_in {
            true => Some(stand_in::probe(&container.link, &self.options(&container)).await?),
            false => None,
        };
        (self.progress)("committing the image");
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
