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
    /// It was local.
    Local,
    /// Pulled from its registry.
    Pulled,
    /// Built on this host, because no registry answered.
    Bootstrap,
}

/// An image to create containers from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The engine's description of it.
    pub image: Image,
    /// The name under which it was found or built.
    pub reference: ImageRef,
    /// Where it came from.
    pub source: ImageOrigin,
    /// Of a bootstrapped one: the method, the source and the versions.
    pub note: Option<String>,
}

impl Base {
    /// The registry's digest, or the id.
    pub(crate) fn digest(&self) -> &str {
        digest(&self.image)
    }
}

/// Returns the registry's digest of an image, or its id.
#[must_use]
pub fn digest(image: &Image) -> &str {
    image.digest.as_deref().unwrap_or(image.id.as_str())
}

/// Lists the names of containers by the image that they were created from.
pub(crate) async fn users(runtime: &dyn ContainerRuntime) -> Result<BTreeMap<ImageId, Vec<String>>, Error> {
    let mut users: BTreeMap<ImageId, Vec<String>> = BTreeMap::new();
    for container in runtime.list(&LabelFilter::default()).await? {
        users.entry(container.image).or_default().push(container.name);
    }
    Ok(users)
}

/// Finds the local image of that name, and the name that led to it. Contacts no registry.
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

/// Returns the name for an image in an archive with which the engine finds it without a registry.
pub(crate) fn local_name(engine: EngineKind, image: &ImageRef) -> ImageRef {
    match names(engine, image).pop() {
        Some(local) if engine == EngineKind::Podman => local,
        _ => image.clone(),
    }
}

/// Returns the name as given, as engines complete it, and as Podman stores images of no registry.
pub(crate) fn names(engine: EngineKind, image: &ImageRef) -> Vec<ImageRef> {
    let mut names = vec![image.clone(), image.completed()];
    if engine == EngineKind::Podman && image.registry().is_none() {
        names.extend(ImageRef::parse(format!("localhost/{image}")));
    }
    names.dedup();
    names
}
