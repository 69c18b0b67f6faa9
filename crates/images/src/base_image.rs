//! An image to make containers from, and how one that is here is found.

use coracle_runtime::{ContainerRuntime, EngineKind, Image, ImageRef};
use serde::{Deserialize, Serialize};

use crate::error::Error;

/// Where an image came from (containers.md 4.5, `image_source`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Source {
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
    pub source: Source,
    /// Of a bootstrapped one: which way it was made, from what, and which versions.
    pub note: Option<String>,
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

/// As given, as engines complete it, and on Podman as it keeps what has no registry.
pub(crate) fn names(engine: EngineKind, image: &ImageRef) -> Vec<ImageRef> {
    let mut names = vec![image.clone(), image.completed()];
    if engine == EngineKind::Podman && image.registry().is_none() {
        names.extend(ImageRef::parse(format!("localhost/{image}")));
    }
    names.dedup();
    names
}
