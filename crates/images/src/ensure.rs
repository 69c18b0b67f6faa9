//! Local, pulled, or made: the one decision of this crate.

use std::time::Duration;

use coracle_runtime::{ContainerRuntime, Error as EngineError, Excerpt, ImageRef};
use serde::{Deserialize, Serialize};

use crate::base::{self, Bootstrap};
use crate::base_image::{Base, Source, find};
use crate::error::Error;
use crate::progress::Progress;
use crate::registry;

/// An image that is wanted, every default decided.
#[derive(Clone, Debug)]
pub struct Want {
    /// Which.
    pub image: ImageRef,
    /// The caller named it, so nothing else will do.
    pub explicit: bool,
    /// Whether to fetch it.
    pub pull: Pull,
    /// The engine fetches through a proxy, so asking the registry directly tells nothing.
    pub proxy: bool,
    /// For the whole fetch (`images.pull_timeout`).
    pub pull_timeout: Duration,
    /// For the registry's first answer (`images.probe_timeout`).
    pub probe_timeout: Duration,
    /// What to do where no registry answers.
    pub fallback: Fallback,
}

/// When to fetch an image (containers.md 4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pull {
    /// When it is not here.
    Missing,
    /// Even if it is here.
    Always,
    /// Not at all.
    Never,
}

/// What to do where no registry answers (`images.fallback`).
#[derive(Clone, Debug)]
pub enum Fallback {
    /// Make a base.
    Bootstrap(Box<Bootstrap>),
    /// Nothing.
    Fail,
}

/// Gets an image: the local one, else the registry's, else, for one that nobody named, a base made here.
///
/// # Errors
/// [`Error::NotFound`] when it was not to be fetched; [`Error::PullFailed`] and [`Error::PullTimeout`] when it could not
/// be and nothing stands in; [`Error::BaseBuildFailed`] when what should stand in could not be made.
pub async fn ensure(runtime: &dyn ContainerRuntime, want: &Want, progress: &Progress<'_>) -> Result<Base, Error> {
    if want.pull != Pull::Always
        && let Some((image, reference)) = find(runtime, &want.image).await?
    {
        return Ok(Base { image, reference, source: Source::Local, note: None });
    }
    if want.pull == Pull::Never || want.image.as_str().starts_with("sha256:") {
        return Err(Error::NotFound(want.image.clone()));
    }
    match (fetch(runtime, want, progress).await, &want.fallback) {
        (Err(Missed::Unreachable(why)), Fallback::Bootstrap(recipe)) if stands_in(want) => {
            progress(&why.to_string());
            base::ensure(runtime, recipe, progress).await
        }
        (Err(Missed::Unreachable(err) | Missed::Refused(err)), _) => Err(err),
        (Ok(base), _) => Ok(base),
    }
}

/// Whoever names an image or wants it fresh is not served by another.
fn stands_in(want: &Want) -> bool {
    !want.explicit && want.pull == Pull::Missing
}

/// Why a fetch gave nothing: no registry could be talked to, or it was and said no.
enum Missed {
    Unreachable(Error),
    Refused(Error),
}

async fn fetch(runtime: &dyn ContainerRuntime, want: &Want, progress: &Progress<'_>) -> Result<Base, Missed> {
    let image = &want.image;
    if !want.proxy
        && let Err(why) = registry::reach(image, want.probe_timeout).await
    {
        let excerpt = Excerpt::of(why.as_bytes());
        return Err(Missed::Unreachable(Error::PullFailed { image: image.clone(), excerpt }));
    }
    progress(&format!("pulling {image}"));
    let pulled = runtime.pull_image(image, want.pull_timeout).await;
    match pulled {
        Ok(image) => Ok(Base { image, reference: want.image.clone(), source: Source::Pulled, note: None }),
        Err(EngineError::Unreadable { .. }) => Err(Missed::Refused(Error::NotFound(image.clone()))),
        Err(EngineError::TimedOut { after, .. }) => {
            Err(Missed::Unreachable(Error::PullTimeout { image: image.clone(), after }))
        }
        Err(EngineError::PullFailed { image, excerpt }) if registry::is_transport(excerpt.as_str()) => {
            Err(Missed::Unreachable(Error::PullFailed { image, excerpt }))
        }
        Err(EngineError::PullFailed { image, excerpt }) => Err(Missed::Refused(Error::PullFailed { image, excerpt })),
        Err(other) => Err(Missed::Refused(other.into())),
    }
}

#[cfg(test)]
mod tests;
