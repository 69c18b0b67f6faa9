//! The base of an image: local, pulled, or made here.

use std::time::Duration;

use coracle_runtime::ContainerRuntime;
use coracle_types::{Error as EngineError, Excerpt, ImageRef};
use serde::{Deserialize, Serialize};

use crate::base::{self, Bootstrap};
use crate::base_image::{Base, ImageOrigin, find};
use crate::error::Error;
use crate::progress::Progress;
use crate::registry;

/// For a pull by an engine on another machine, from a registry that does not answer here.
const UNPROBED_PULL_TIMEOUT: Duration = Duration::from_secs(300);

/// The image that containers are to be created from, or a recipe is to be put on.
#[derive(Clone, Copy, Debug)]
pub struct BaseRequest<'a> {
    /// Its name.
    pub image: &'a ImageRef,
    /// The caller named it, so no other image may stand in for it.
    pub explicit: bool,
    /// When to fetch it.
    pub pull: Pull,
}

/// How images are fetched.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// The engine fetches through a proxy, so asking the registry directly proves nothing.
    pub proxy: bool,
    /// For the whole fetch (`images.pull_timeout`).
    pub pull_timeout: Duration,
    /// For the registry's first answer (`images.probe_timeout`). Zero: the registry is not asked before a pull.
    pub probe_timeout: Duration,
    /// The base that stands in if no registry answers (`images.fallback`).
    pub fallback: Option<Box<Bootstrap>>,
}

/// When to fetch an image.
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

/// Gets an image: the local one, else the registry's, else, unless the caller named it, a base made here.
///
/// # Errors
/// [`Error::NotFound`] when it was not to be fetched; [`Error::PullFailed`] and [`Error::PullTimeout`] when it could not
/// be and nothing stands in; [`Error::BaseBuildFailed`] when what should stand in could not be made.
pub async fn ensure(
    runtime: &dyn ContainerRuntime,
    request: BaseRequest<'_>,
    settings: &FetchSettings,
    progress: &Progress<'_>,
) -> Result<Base, Error> {
    let BaseRequest { image, explicit, pull } = request;
    if pull != Pull::Always
        && let Some((image, reference)) = find(runtime, image).await?
    {
        return Ok(Base { image, reference, source: ImageOrigin::Local, note: None });
    }
    if pull == Pull::Never || image.as_str().starts_with("sha256:") {
        return Err(Error::NotFound(image.clone()));
    }
    // An image that was named, or is wanted fresh, is not replaced by another.
    let may_stand_in = !explicit && pull == Pull::Missing;
    match (fetch(runtime, image, settings, progress).await, &settings.fallback) {
        (Err(FetchFailure::Unreachable(why)), Some(recipe)) if may_stand_in => {
            progress(&why.to_string());
            base::ensure(runtime, recipe, progress).await
        }
        (Err(FetchFailure::Unreachable(err) | FetchFailure::Refused(err)), _) => Err(err),
        (Ok(base), _) => Ok(base),
    }
}

/// Why a fetch failed: no registry answered, or one refused.
enum FetchFailure {
    Unreachable(Error),
    Refused(Error),
}

/// The time for the pull, by whether the registry answers here: an engine tries long before it gives up.
async fn probe(
    runtime: &dyn ContainerRuntime,
    image: &ImageRef,
    settings: &FetchSettings,
) -> Result<Duration, FetchFailure> {
    if settings.proxy || settings.probe_timeout.is_zero() {
        return Ok(settings.pull_timeout);
    }
    match registry::reach(image, settings.probe_timeout).await {
        Ok(()) => Ok(settings.pull_timeout),
        Err(_) if is_elsewhere(&runtime.endpoint().address) => Ok(settings.pull_timeout.min(UNPROBED_PULL_TIMEOUT)),
        Err(why) => {
            let excerpt = Excerpt::from_bytes(why.as_bytes());
            Err(FetchFailure::Unreachable(Error::PullFailed { image: image.clone(), excerpt }))
        }
    }
}

/// Whether an engine is on another machine, which may reach a registry that does not answer here.
fn is_elsewhere(address: &str) -> bool {
    ["ssh://", "tcp://"].iter().any(|it| address.starts_with(it))
}

async fn fetch(
    runtime: &dyn ContainerRuntime,
    image: &ImageRef,
    settings: &FetchSettings,
    progress: &Progress<'_>,
) -> Result<Base, FetchFailure> {
    let within = probe(runtime, image, settings).await?;
    progress(&format!("pulling {image}"));
    match runtime.pull_image(image, within).await {
        Ok(pulled) => Ok(Base { image: pulled, reference: image.clone(), source: ImageOrigin::Pulled, note: None }),
        // The engine pulled it and lists nothing under its name. Any other answer that cannot be read is the engine's fault.
        Err(EngineError::Unreadable { verb: "pull", .. }) => Err(FetchFailure::Refused(Error::NotFound(image.clone()))),
        Err(EngineError::TimedOut { after, .. }) => {
            Err(FetchFailure::Unreachable(Error::PullTimeout { image: image.clone(), after }))
        }
        Err(EngineError::PullFailed { image, excerpt }) if registry::is_transport(excerpt.as_str()) => {
            Err(FetchFailure::Unreachable(Error::PullFailed { image, excerpt }))
        }
        Err(EngineError::PullFailed { image, excerpt }) => {
            Err(FetchFailure::Refused(Error::PullFailed { image, excerpt }))
        }
        Err(other) => Err(FetchFailure::Refused(other.into())),
    }
}

#[cfg(test)]
mod tests;
