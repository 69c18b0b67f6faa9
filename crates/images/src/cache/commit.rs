//! Commits a container in which a recipe ran as a cached image.

use coracle_runtime::{Container, ContainerRuntime, Image, LabelFilter};
use coracle_types::{ByteSize, ContainerId, ImageId};

use super::Cache;
use super::image::{CONTENTS, CachedImage, KIND};
use crate::commit::{Commit, unfit};
use crate::stand_in::Contents;
use crate::{Base, Error, ImageRequest};

/// A container in which every command of the recipe exited with 0.
#[derive(Clone, Debug)]
pub struct Built<'a> {
    /// The container. It may be running.
    pub container: &'a ContainerId,
    /// The image it was created from.
    pub base: &'a Base,
    /// The request that it was built for.
    pub request: &'a ImageRequest,
    /// The versions in it, if it replaces an image of a registry.
    pub contents: Option<&'a Contents>,
    /// Maximum size of all cached images together (`images.cache_max_bytes`).
    pub max_bytes: Option<ByteSize>,
}

impl Cache {
    /// Checks the container and commits it.
    ///
    /// # Errors
    /// [`Error::Unfit`] if the container has more than the recipe; the image is then removed. [`Error::Engine`].
    pub async fn commit(&self, runtime: &dyn ContainerRuntime, built: &Built<'_>) -> Result<CachedImage, Error> {
        let container = runtime.inspect(&built.container.into()).await?;
        self.check_labels(&container, &built.base.image)?;
        let engine = runtime.kind();
        let (request, key) = (built.request, built.request.key_on(built.base, engine));
        // An empty label as well, since the base's would otherwise be inherited.
        let contents = built.contents.and_then(|it| serde_json::to_string(it).ok()).unwrap_or_default();
        let commit = Commit {
            signer: &self.signer,
            container: &container,
            base: &built.base.image,
            tag: self.tag(request.purpose.as_ref(), &key),
            kind: KIND,
            created: request.now.to_string(),
            version: &self.version,
        };
        let labels = [
            ("cache.key", key.to_string()),
            ("cache.recipe", request.recipe.sum().to_string()),
            ("cache.base", request.image.to_string()),
            ("cache.base_digest", built.base.digest().to_owned()),
            (CONTENTS, contents),
            ("cache.purpose", request.purpose.as_ref().map(ToString::to_string).unwrap_or_default()),
        ];
        let cached = commit.run(runtime, labels, |image| self.read(engine, image)).await?;
        self.remember(&request.slot(engine), &cached.image.id);
        self.used(&cached.image.id, request.now);
        self.enforce_quota(runtime, built, &cached).await?;
        Ok(cached)
    }

    /// Refuses labels that come neither from the base nor from Coracle, since the image would inherit them.
    fn check_labels(&self, container: &Container, base: &Image) -> Result<(), Error> {
        let prefix = self.signer.key("");
        let foreign = |it: &(&String, &String)| !it.0.starts_with(&prefix) && base.labels.get(it.0) != Some(it.1);
        match container.labels.iter().find(foreign) {
            Some((label, _)) => unfit(format!("the container has a label `{label}`")),
            None => Ok(()),
        }
    }

    /// Removes the images that the new one replaces, then the least recently used ones until the rest is small enough.
    /// Images in use are not removed.
    async fn enforce_quota(
        &self,
        runtime: &dyn ContainerRuntime,
        built: &Built<'_>,
        new: &CachedImage,
    ) -> Result<(), Error> {
        let mut others = self.all(runtime).await?;
        others.retain(|it| it.image.id != new.image.id);
        let (replaced, mut rest): (Vec<_>, Vec<_>) = others.into_iter().partition(|it| {
            it.key == new.key || (built.request.rebuild && it.purpose == new.purpose && it.base == new.base)
        });
        for it in &replaced {
            self.remove(runtime, &it.image.id).await;
        }
        let Some(max) = built.max_bytes else { return Ok(()) };
        rest.sort_by_key(|it| self.last_used(&it.image.id).unwrap_or(it.created));
        let mut total: u64 = new.image.size_bytes + rest.iter().map(|it| it.image.size_bytes).sum::<u64>();
        for it in &rest {
            if total <= max.0 {
                break;
            }
            if self.remove(runtime, &it.image.id).await {
                total -= it.image.size_bytes;
            }
        }
        Ok(())
    }

    /// Lists every cached image.
    pub(super) async fn all(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<CachedImage>, Error> {
        let ours = LabelFilter(vec![(self.signer.key("kind"), Some(KIND.to_owned()))]);
        let here = runtime.list_images(&ours).await?;
        Ok(here.iter().filter_map(|it| self.read(runtime.kind(), it)).collect())
    }

    async fn remove(&self, runtime: &dyn ContainerRuntime, image: &ImageId) -> bool {
        let removed = runtime.remove_image(image).await;
        match &removed {
            Ok(_) => self.forget(image),
            Err(err) => tracing::debug!(%image, %err, "cannot remove a cached image"),
        }
        removed.is_ok()
    }
}
