//! What is kept, and how it goes (containers.md 8.9).

use std::collections::BTreeMap;

use coracle_runtime::{ContainerRuntime, Image, ImageAct, ImageId, ImageRef, LabelFilter};
use serde::Serialize;

use super::{Cache, KIND};
use crate::Error;
use crate::profile::Purpose;

/// The word of bases that were made without a registry, in the label `<ns>.kind`.
const BASE: &str = "base";

/// A cached image or a bootstrapped base of ours, as answers show it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Listed {
    /// Its name, or its id when it lost the name.
    pub image: ImageRef,
    /// Its id.
    pub image_id: ImageId,
    /// The profile it was made for; none for packages alone, and for a base.
    pub purpose: Option<Purpose>,
    /// Its key; none for a base.
    pub key: Option<String>,
    /// Its base, as it was asked for; none for a base.
    pub base: Option<ImageRef>,
    /// Size in bytes, with the layers it shares.
    pub size_bytes: u64,
    /// When it was made (RFC 3339).
    pub created: String,
    /// Some container was made from it.
    pub in_use: bool,
}

/// What shall go.
#[derive(Clone, Debug, Default)]
pub struct Clear {
    /// Only what was made for this profile; else everything, bases too.
    pub purpose: Option<Purpose>,
    /// Nothing goes: it is only told what would.
    pub dry_run: bool,
}

/// What went and what did not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cleared {
    /// All that were found.
    pub images: Vec<Listed>,
    /// Those that went, or would.
    pub cleared: Vec<ImageRef>,
    /// Those that did not, or would not.
    pub kept: Vec<Kept>,
}

/// An image that stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    /// Which.
    pub image: ImageRef,
    /// Why.
    pub reason: String,
}

impl Cache {
    /// Everything of ours: cached images first, then bases, each the newest first.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn list(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<Listed>, Error> {
        Ok(self.users(runtime).await?.into_iter().map(|it| it.0).collect())
    }

    /// Removes what is not in use, by id.
    ///
    /// # Errors
    /// [`Error::Engine`] when it cannot be told what there is.
    pub async fn clear(&self, runtime: &dyn ContainerRuntime, clear: &Clear) -> Result<Cleared, Error> {
        let mut answer = Cleared::default();
        for (listed, users) in self.users(runtime).await? {
            if clear.purpose.is_some() && listed.purpose != clear.purpose {
                continue;
            }
            let (image, id) = (listed.image.clone(), listed.image_id.clone());
            answer.images.push(listed);
            if !users.is_empty() {
                answer.kept.push(Kept { image, reason: format!("used by {}", users.join(", ")) });
                continue;
            }
            if !clear.dry_run
                && let Err(err) = runtime.image(ImageAct::Remove(id.clone())).await
            {
                answer.kept.push(Kept { image, reason: err.to_string() });
                continue;
            }
            if !clear.dry_run {
                self.forget(&id);
            }
            answer.cleared.push(image);
        }
        Ok(answer)
    }

    /// With the names of the containers that were made from each.
    async fn users(&self, runtime: &dyn ContainerRuntime) -> Result<Vec<(Listed, Vec<String>)>, Error> {
        let mut images: Vec<Listed> = Vec::new();
        for kind in [KIND, BASE] {
            let filter = LabelFilter(vec![(self.signer.key("kind"), Some(kind.to_owned()))]);
            let here = runtime.image(ImageAct::List(filter)).await?;
            let ours = here.iter().filter(|it| self.signer.verify(runtime.kind(), &it.labels));
            let mut listed: Vec<_> = ours.filter_map(|it| self.listed(it)).collect();
            listed.sort_by(|a, b| b.created.cmp(&a.created));
            images.extend(listed);
        }
        if images.is_empty() {
            return Ok(Vec::new());
        }
        let mut users: BTreeMap<ImageId, Vec<String>> = BTreeMap::new();
        for container in runtime.list(&LabelFilter::default()).await? {
            users.entry(container.image).or_default().push(container.name);
        }
        let with_users = |it: Listed| {
            let users = users.get(&it.image_id).cloned().unwrap_or_default();
            (Listed { in_use: !users.is_empty(), ..it }, users)
        };
        Ok(images.into_iter().map(with_users).collect())
    }

    /// By labels that were verified.
    fn listed(&self, image: &Image) -> Option<Listed> {
        let label = |name: &str| image.labels.get(&self.signer.key(name)).filter(|it| !it.is_empty()).cloned();
        // A base has these no more than an image of another kind that was made from a cached one may show them.
        let cached = |name: &str| label(name).filter(|_| label("kind").as_deref() == Some(KIND));
        let named = image.tags.iter().filter_map(|it| ImageRef::parse(it).ok()).next();
        Some(Listed {
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
