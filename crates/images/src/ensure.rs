//! Gets the base of an image: local, pulled, or built on this host.

use std::time::Duration;

use coracle_runtime::ContainerRuntime;
use coracle_types::{Error as EngineError, Excerpt, ImageRef};
use serde::{Deserialize, Serialize};

use crate::base::{self, Bootstrap};
use crate::base_image::{Base, ImageOrigin, find};
use crate::error::Error;
use crate::progress::Progress;
use crate::registry;

/// Timeout of a pull by an engine on another host, from a registry that does not answer here.
const UNPROBED_PULL_TIMEOUT: Duration = Duration::from_secs(300);

/// The base to get.
#[derive(Clone, Copy, Debug)]
pub struct BaseRequest<'a> {
    /// Its name.
    pub image: &'a ImageRef,
    /// The caller chose it, so no other image may replace it.
    pub explicit: bool,
    /// When to pull it.
    pub pull: Pull,
}

/// How images are fetched.
#[derive(Clone, Debug)]
pub struct FetchSettings {
    /// The engine uses a proxy, so a direct probe of the registry proves nothing.
    pub proxy: bool,
    /// Timeout of the whole pull (`images.pull_timeout`).
    pub pull_timeout: Duration,
    /// Timeout of the registry's first answer (`images.probe_timeout`). Zero skips the probe before a pull.
    pub probe_timeout: Duration,
    /// How to build a base if no registry answers (`images.fallback`).
    pub fallback: Option<Box<Bootstrap>>,
}

/// When to pull an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pull {
    /// If it is not local.
    Missing,
    /// Even if it is local.
    Always,
    /// Never.
    Never,
}

/// Returns the local image, else the registry's, else, unless the caller chose the image, a base built here.
///
/// # Errors
/// [`Error::NotFound`] if it was not to be pulled; [`Error::PullFailed`] and [`Error::PullTimeout`] if the pull failed
/// without a replacement; [`Error::BaseBuildFailed`] if the replacement could not be built.
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
    // An explicit image, or one that has to be fresh, is not replaced by another.
    let stand_in = settings.fallback.as_deref().filter(|_| !explicit && pull == Pull::Missing);
    if let Some(recipe) = stand_in
        && registry::was_silent(image)
    {
        return base::ensure(runtime, recipe, progress).await;
    }
    match (fetch(runtime, image, settings, progress).await, stand_in) {
        (Err(FetchFailure::Unreachable(why)), Some(recipe)) => {
            registry::note_silence(image);
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

/// Returns the timeout of the pull. It depends on whether the registry answers here, since an engine tries for a long
/// time.
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

/// Whether an engine is on another host, which may reach a registry that does not answer here.
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
        // The engine pulled it, but lists no image of its name. Any other unreadable answer is the engine's fault.
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
