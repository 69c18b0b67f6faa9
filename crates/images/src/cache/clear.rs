//! Lists and removes cached images and bases.

use coracle_runtime::{ContainerRuntime, Image, LabelFilter};
use coracle_types::{ImageId, ImageRef};
use serde::Serialize;

use super::Cache;
use super::image::KIND;
use crate::profile::Purpose;
use crate::{Error, base_image};

/// The value of the label `<ns>.kind` for bases that were built without a registry.
const BASE: &str = "base";

/// A cached image or a bootstrapped base, as answers show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CachedImageInfo {
    /// Its name, or its id if it lost the name.
    pub image: ImageRef,
    /// Its id.
    pub image_id: ImageId,
    /// The profile it was built for; none for packages alone, and for a base.
    pub purpose: Option<Purpose>,
    /// Its key; none for a base.
    pub key: Option<String>,
    /// Its base, as requested; none for a base.
    pub base: Option<ImageRef>,
    /// Size in bytes, with the layers it shares.
    pub size_bytes: u64,
    /// When it was created (RFC 3339).
    pub created: String,
    /// A container was created from it.
    pub in_use: bool,
}

/// What to remove.
#[derive(Clone, Debug, Default)]
pub struct Clear {
    /// Only the images of this profile; else all of them, and bases.
    pub purpose: Option<Purpose>,
    /// Removes nothing and reports what would be removed.
    pub dry_run: bool,
    /// Further names of images that belong to Coracle, besides those with the namespace.
    pub own_names: Vec<ImageRef>,
}

/// The result of clearing the cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CacheClearReport {
    /// All images that were found.
    pub images: Vec<CachedImageInfo>,
    /// Images that were removed, or would be.
    pub cleared: Vec<ImageRef>,
    /// Images that were not removed, or would not be.
    pub retained: Vec<RetainedImage>,
}

/// An image that is not removed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RetainedImage {
    /// Its name.
    pub image: ImageRef,
    /// The reason.
    pub reason: String,
}

impl Cache {
    /// Lists cached images, then bases, each from newest to oldest.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn list(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<CachedImageInfo>, Error> {
        Ok(self.users(runtime).await?.into_iter().map(|it| it.0).collect())
    }

    /// Removes unused images with all names of Coracle.
    ///
    /// # Errors
    /// [`Error::Engine`] if images or containers cannot be listed.
    pub async fn clear(&self, runtime: &dyn ContainerRuntime, clear: &Clear) -> Result<CacheClearReport, Error> {
        let mut answer = CacheClearReport::default();
        for (listed, names, users) in self.users(runtime).await? {
            if clear.purpose.is_some() && listed.purpose != clear.purpose {
                continue;
            }
            let (image, id) = (listed.image.clone(), listed.image_id.clone());
            answer.images.push(listed);
            if !users.is_empty() {
                answer.retained.push(RetainedImage { image, reason: format!("used by {}", users.join(", ")) });
                continue;
            }
            if !clear.dry_run {
                if let Err(reason) = self.untag(runtime, &id, &names, &clear.own_names).await {
                    answer.retained.push(RetainedImage { image, reason });
                    continue;
                }
                self.forget(&id);
            }
            answer.cleared.push(image);
        }
        Ok(answer)
    }

    /// Removes every name of Coracle from an image, and the image with the last one, since engines refuse to remove an
    /// image with several names by its id. An image with another name is not removed.
    async fn untag(
        &self,
        runtime: &dyn ContainerRuntime,
        id: &ImageId,
        names: &[ImageRef],
        own: &[ImageRef],
    ) -> Result<(), String> {
        let (ours, others): (Vec<_>, Vec<_>) = names.iter().partition(|it| self.is_own_name(it, own));
        for name in ours {
            runtime.untag_image(name).await.map_err(|it| it.to_string())?;
        }
        if !others.is_empty() {
            let others: Vec<_> = others.iter().map(|it| format!("`{it}`")).collect();
            return Err(format!("it has another name, {}; remove it by that name", others.join(" and ")));
        }
        runtime.remove_image(id).await.map_err(|it| it.to_string())
    }

    fn is_own_name(&self, name: &ImageRef, own: &[ImageRef]) -> bool {
        let repository = repository(name);
        let prefix = format!("{}-", self.signer.namespace());
        repository.starts_with(&prefix) || own.iter().any(|it| self::repository(it) == repository)
    }

    /// Lists each image with all its names, and the names of its containers.
    async fn users(
        &self,
        runtime: &dyn ContainerRuntime,
    ) -> Result<Vec<(CachedImageInfo, Vec<ImageRef>, Vec<String>)>, Error> {
        let mut images: Vec<(CachedImageInfo, Vec<ImageRef>)> = Vec::new();
        for kind in [KIND, BASE] {
            let filter = LabelFilter(vec![(self.signer.key("kind"), Some(kind.to_owned()))]);
            let here = runtime.list_images(&filter).await?;
            let ours = here.iter().filter(|it| self.signer.verify(runtime.kind(), &it.labels));
            let mut listed: Vec<_> = ours.filter_map(|it| Some((self.listed(it)?, names(it)))).collect();
            listed.sort_by(|(a, _), (b, _)| b.created.cmp(&a.created));
            images.extend(listed);
        }
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let users = base_image::users(runtime).await?;
        let with_users = |(it, names): (CachedImageInfo, Vec<ImageRef>)| {
            let users = users.get(&it.image_id).cloned().unwrap_or_default();
            (CachedImageInfo { in_use: !users.is_empty(), ..it }, names, users)
        };
        Ok(images.into_iter().map(with_users).collect())
    }

    /// Reads an image by its verified labels.
    fn listed(&self, image: &Image) -> Option<CachedImageInfo> {
        let label = |name: &str| image.labels.get(&self.signer.key(name)).filter(|it| !it.is_empty()).cloned();
        // These labels of a base or of another kind of image may be inherited from a cached one.
        let cached = |name: &str| label(name).filter(|_| label("kind").as_deref() == Some(KIND));
        let named = names(image).into_iter().next();
        Some(CachedImageInfo {
            image: named.unwrap_or_else(|| image.id.clone().into()),
            image_id: image.id.clone(),
            purpose: cached("cache.purpose").and_then(|it| Purpose::parse(it).ok()),
            key: cached("cache.key"),
            base: cached("cache.base").and_then(|it| ImageRef::parse(it).ok()),
            size_bytes: image.size_bytes,
            created: label("created")?,
            in_use: false,
        })
    }
}

fn names(image: &Image) -> Vec<ImageRef> {
    image.tags.iter().filter_map(|it| ImageRef::parse(it).ok()).collect()
}

/// Returns the last part of a name, without registry, path and tag.
fn repository(name: &ImageRef) -> String {
    let text = name.to_string();
    let last = text.rsplit('/').next().unwrap_or(&text);
    last.split([':', '@']).next().unwrap_or(last).to_owned()
}
