//! Images that containers are created from, and the lookup of local ones.

use std::collections::BTreeMap;

use coracle_runtime::{ContainerRuntime, Image, LabelFilter};
use coracle_types::{EngineKind, ImageId, ImageRef};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where an image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageOrigin {
    /// It was here.
    Local,
    /// From its registry.
    Pulled,
    /// Made here, because no registry answered.
    Bootstrap,
}

/// An image to make containers from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// As the engine has it.
    pub image: Image,
    /// The name it was found or made under.
    pub reference: ImageRef,
    /// Where it came from.
    pub source: ImageOrigin,
    /// Of a bootstrapped one: which way it was made, from what, and which versions.
    pub note: Option<String>,
}

impl Base {
    /// The digest that its registry gave it, or its id.
    pub(crate) fn digest(&self) -> &str {
        digest(&self.image)
    }
}

/// The digest that its registry gave an image, or its id.
#[must_use]
pub fn digest(image: &Image) -> &str {
    image.digest.as_deref().unwrap_or(image.id.as_str())
}

/// Names of containers, by the image that they were created from.
pub(crate) async fn users(runtime: &dyn ContainerRuntime) -> Result<BTreeMap<ImageId, Vec<String>>, Error> {
    let mut users: BTreeMap<ImageId, Vec<String>> = BTreeMap::new();
    for container in runtime.list(&LabelFilter::default()).await? {
        users.entry(container.image).or_default().push(container.name);
    }
    Ok(users)
}

/// The local image of that name, and the name that led to it. Asks no registry.
///
/// # Errors
/// [`Error::Engine`].
pub async fn find(runtime: &dyn ContainerRuntime, image: &ImageRef) -> Result<Option<(Image, ImageRef)>, Error> {
    let names = names(runtime.kind(), image);
    let found = runtime.find_images(&names).await?.into_iter().next();
    Ok(found.map(|it| {
        let led = names.into_iter().find(|name| it.is_named(name)).unwrap_or_else(|| image.clone());
        (it, led)
    }))
}

/// The name that an archive has to give an image, so that the engine finds it by the name without a registry.
pub(crate) fn local_name(engine: EngineKind, image: &ImageRef) -> ImageRef {
    match names(engine, image).pop() {
        Some(local) if engine == EngineKind::Podman => local,
        _ => image.clone(),
    }
}

/// As given, as engines complete it, and on Podman as it keeps what has no registry.
pub(crate) fn names(engine: EngineKind, image: &ImageRef) -> Vec<ImageRef> {
    let mut names = vec![image.clone(), image.completed()];
    if engine == EngineKind::Podman && image.registry().is_none() {
        names.extend(ImageRef::parse(format!("localhost/{image}")));
    }
    names.dedup();
    names
}
