//! From a container in which a recipe was cooked to a cached image (containers.md 8.2, 8.3, 8.7, 8.8).

use coracle_runtime::{
    ByteSize, Container, ContainerId, ContainerRuntime, Image, ImageCommit, ImageId, LabelFilter, RecordId,
};

use super::image::{CONTENTS, Cached, KIND, digest};
use super::request::Wanted;
use super::settings::Cache;
use crate::stand_in::Contents;
use crate::validate::{OF_ONE_CONTAINER, check_env, check_image, unfit};
use crate::{Base, Error};

/// A container of a base in which every command of the recipe ended with 0.
#[derive(Clone, Debug)]
pub struct Built<'a> {
    /// The container. It may run.
    pub container: &'a ContainerId,
    /// What it was made from.
    pub base: &'a Base,
    /// What was put on.
    pub wanted: &'a Wanted,
    /// What was found in it, if it is to stand in for an image that no registry gave.
    pub contents: Option<&'a Contents>,
    /// Whatever else is kept for that purpose and that base goes (`cache_bust`).
    pub replaces: bool,
    /// For all cached images together (`images.cache_max_bytes`).
    pub max_bytes: Option<ByteSize>,
}

impl Cache {
    /// Checks what was built and makes the image.
    ///
    /// # Errors
    /// [`Error::Unfit`] when more came into the container than the recipe; then nothing is kept. [`Error::Engine`].
    pub async fn keep(&self, runtime: &dyn ContainerRuntime, built: &Built<'_>) -> Result<Cached, Error> {
        let container = runtime.inspect(&built.container.into()).await?;
        self.check_container(&container, &built.base.image)?;
        let engine = runtime.kind();
        let (wanted, key) = (built.wanted, built.wanted.key_on(built.base, engine));
        // Written even if there are none: one of the base's would be inherited.
        let contents = built.contents.and_then(|it| serde_json::to_string(it).ok()).unwrap_or_default();
        // Inherited ones of ours cannot be taken away: they are signed along, without what they said of one container.
        let prefix = self.signer.key("");
        let mut labels = container.labels;
        labels.retain(|name, _| name.starts_with(&prefix));
        for name in OF_ONE_CONTAINER {
            labels.entry(self.signer.key(name)).and_modify(String::clear);
        }
        labels.extend(self.labels([
            ("managed", "true".to_owned()),
            ("kind", KIND.to_owned()),
            ("id", RecordId::random().to_string()),
            ("created", wanted.now.to_string()),
            ("version", self.version.clone()),
            ("cache.key", key.to_string()),
            ("cache.recipe", wanted.recipe.sum().to_string()),
            ("cache.base", wanted.image.to_string()),
            ("cache.base_digest", digest(&built.base.image).to_owned()),
            (CONTENTS, contents),
            ("cache.purpose", wanted.purpose.as_ref().map(ToString::to_string).unwrap_or_default()),
        ]));
        self.signer.sign(engine, &mut labels);
        let commit = ImageCommit {
            container: built.container.clone(),
            tag: Some(self.tag(wanted.purpose.as_ref(), &key)),
            labels: labels.into_iter().collect(),
            config: built.base.image.config.clone(),
        };
        let image = runtime.commit_image(&commit).await?;
        let cached = match self.read(engine, &image).ok_or("its labels are not those it was given") {
            Ok(cached) => check_image(&image, &built.base.image).map(|()| cached),
            Err(what) => Err(Error::Unfit { what: what.into() }),
        };
        let cached = match cached {
            Ok(cached) => cached,
            Err(unfit) => {
                runtime.remove_image(&image.id).await?;
                return Err(unfit);
            }
        };
        self.remember(&wanted.slot(engine), &cached.image.id);
        self.used(&cached.image.id, wanted.now);
        self.make_room(runtime, built, &cached).await?;
        Ok(cached)
    }

    /// Before the commit, since a container that has more is not to become an image even for a moment.
    fn check_container(&self, container: &Container, base: &Image) -> Result<(), Error> {
        let prefix = self.signer.key("");
        let foreign = |it: &(&String, &String)| !it.0.starts_with(&prefix) && base.labels.get(it.0) != Some(it.1);
        if let Some((label, _)) = container.labels.iter().find(foreign) {
            return unfit(format!("the container has a label `{label}`"));
        }
        check_env(&container.env, base)
    }

    /// Those that the new one takes the place of go, and then the longest unused, until the rest is small enough. One
    /// that is in use stays.
    async fn make_room(&self, runtime: &dyn ContainerRuntime, built: &Built<'_>, new: &Cached) -> Result<(), Error> {
        let mut others = self.all(runtime).await?;
        others.retain(|it| it.image.id != new.image.id);
        let (replaced, mut rest): (Vec<_>, Vec<_>) = others
            .into_iter()
            .partition(|it| it.key == new.key || (built.replaces && it.purpose == new.purpose && it.base == new.base));
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

    /// Every cached image of ours.
    pub(super) async fn all(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<Cached>, Error> {
        let ours = LabelFilter(vec![(self.signer.key("kind"), Some(KIND.to_owned()))]);
        let here = runtime.list_images(&ours).await?;
        Ok(here.iter().filter_map(|it| self.read(runtime.kind(), it)).collect())
    }

    async fn remove(&self, runtime: &dyn ContainerRuntime, image: &ImageId) -> bool {
        let removed = runtime.remove_image(image).await;
        match &removed {
            Ok(_) => self.forget(image),
            Err(err) => tracing::debug!(%image, %err, "a cached image stays"),
        }
        removed.is_ok()
    }
}
