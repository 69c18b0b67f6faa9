//! The image of a `create`, with its part of the report.

use std::time::Instant;

use coracle_context::context::Context;
use coracle_context::engines::Backend;
use coracle_context::failure::Failure;
use coracle_context::host_identity;
use coracle_context::humanize::image_label;
use coracle_context::requested::Requested;
use coracle_context::warning::Warning;
use coracle_images::cache::CachedImage;
use coracle_images::{Base, BuildFailure, BuildOutcome, ImageOrigin, ImageRequest, Recipe};
use coracle_lifecycle::Creation;
use coracle_provision::StepReport;
use coracle_provision::certs::ExtraCertificates;
use coracle_runtime::Image;
use coracle_runtime::labels::Signer;
use coracle_types::ImageRef;
use serde::{Deserialize, Serialize};

use super::build_containers::LifecycleContainers;
use super::builder::{self, Builder};
use super::elsewhere;
use crate::resolve::Request;

/// The image of a container, with its part of the report.
#[derive(Debug)]
pub struct ResolvedImage {
    pub image: Image,
    pub reference: ImageRef,
    pub source: ImageSource,
    pub step: StepReport,
    pub certs: Requested<ExtraCertificates>,
    pub packages: Packages,
    /// To run in the container itself, if no image could be built.
    pub recipe: Recipe,
}

/// Where an image came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ImageSource {
    Local,
    Pulled,
    Cache,
    Built,
    Bootstrap,
    Snapshot,
}

/// Whether the packages and the setup of a profile are in the image.
#[derive(Debug)]
pub enum Packages {
    /// They are in the image, or there are none.
    Done(StepReport),
    /// The recipe failed, so it runs again in the container itself.
    Missing(BuildFailure),
}

/// Finds or builds the image. `creation` holds the build container while one exists.
pub async fn ensure<'a>(
    cx: &Context,
    backend: Backend<'a>,
    creation: &mut Option<Creation<'a>>,
    request: &Request,
) -> Result<ResolvedImage, Failure> {
    let (begun, chosen) = (Instant::now(), &request.chosen);
    let certs = host_identity::certs(cx, &request.provisioning.certs);
    let mut image = ImageRequest {
        purpose: chosen.purpose.clone(),
        pull: request.pull,
        rebuild: chosen.cache_bust,
        ..builder::request(cx, &chosen.profile, &certs)
    };
    if request.image_named {
        image = builder::explicit(image);
    }
    let builder = Builder::new(cx, backend)?;
    let outcome = if elsewhere::is_needed(backend.ready) {
        Box::pin(elsewhere::build(cx, backend, &image, &certs)).await?
    } else {
        let mut containers = LifecycleContainers { cx, backend, certs: &certs, volumes: Vec::new(), creation };
        let outcome = builder.images().build(&image, &mut containers).await?;
        containers.remove().await;
        outcome
    };
    let resolution = Resolution { cx, request: &image, signer: &builder.cache.signer, certs, begun };
    Ok(match outcome {
        BuildOutcome::Base(base) => {
            resolution.plain(base, Packages::Done(StepReport::skipped("packages", "none were given")))
        }
        BuildOutcome::Cached(it) => resolution.cached(it, ImageSource::Cache),
        BuildOutcome::Stale(it, why) => resolution.old(it, &Failure::from(why).message),
        BuildOutcome::Built(it, ImageOrigin::Bootstrap) => resolution.cached(it, ImageSource::Bootstrap),
        BuildOutcome::Built(it, _) => resolution.cached(it, ImageSource::Built),
        BuildOutcome::Failed(base, failure) => resolution.plain(base, Packages::Missing(failure)),
    })
}

/// The report on an image.
struct Resolution<'a> {
    cx: &'a Context,
    request: &'a ImageRequest,
    signer: &'a Signer,
    certs: Requested<ExtraCertificates>,
    begun: Instant,
}

impl Resolution<'_> {
    /// Reports a cached image, found or just built.
    fn cached(self, cached: CachedImage, source: ImageSource) -> ResolvedImage {
        let (how, packages) = match source {
            ImageSource::Cache => ("made before", "they are in the cached image"),
            _ => ("made now", "they are in the image that was made for this purpose"),
        };
        let what = match &cached.contents {
            Some(contents) => format!("{} (stand-in for {})", contents.label(&cached.base), cached.base),
            None => {
                let purpose = self.request.purpose.as_ref().map(coracle_images::profile::Purpose::as_str);
                format!("{} on {}", image_label(cached.reference.as_str(), purpose), cached.base)
            }
        };
        let base = cached.image.labels.get(&self.signer.key("base.note"));
        let note = base.map_or_else(String::new, |note| format!("; its base was {note}"));
        let detail = format!("{what}, {how}{note}");
        let summary = cached.contents.as_ref().map(|contents| contents.summary(&cached.base));
        self.cx.warn(summary.map(|summary| stand_in_warning(&cached.base, &summary)));
        ResolvedImage {
            step: image_step(detail, self.begun),
            packages: Packages::Done(match source {
                ImageSource::Cache => StepReport::skipped("packages", packages),
                _ => StepReport::success(
                    "packages",
                    packages,
                    "each command of the recipe ended with 0, and its programs are found",
                ),
            }),
            reference: cached.reference,
            image: cached.image,
            source,
            certs: self.certs,
            recipe: Recipe::default(),
        }
    }

    /// Reports a cached image that is too old and could not be rebuilt.
    fn old(self, cached: CachedImage, why: &str) -> ResolvedImage {
        let warning =
            format!("{} was built at {:.0} and could not be rebuilt: {why}", cached.reference, cached.created);
        self.cx.warn([Warning::new("old_cache", warning)]);
        self.cached(cached, ImageSource::Cache)
    }

    /// Reports a base without a recipe.
    fn plain(self, base: Base, packages: Packages) -> ResolvedImage {
        let (how, source) = match base.source {
            ImageOrigin::Local => ("was here", ImageSource::Local),
            ImageOrigin::Pulled => ("was pulled", ImageSource::Pulled),
            ImageOrigin::Bootstrap => ("was built on this host because no registry answers", ImageSource::Bootstrap),
        };
        let note = base.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        let stands_in = || {
            let note = base.note.clone().unwrap_or_else(|| format!("it is {}", base.reference));
            stand_in_warning(&self.request.image, &note)
        };
        self.cx.warn((base.source == ImageOrigin::Bootstrap).then(stands_in));
        let recipe = self.request.recipe_on(&base);
        ResolvedImage {
            step: image_step(format!("{} {how}{note}", base.reference), self.begun),
            image: base.image,
            reference: base.reference,
            source,
            certs: self.certs,
            packages,
            recipe,
        }
    }
}

fn stand_in_warning(image: &ImageRef, what: &str) -> Warning {
    let message = format!("no registry provides {image}; an image built on this host replaces it: {what}");
    Warning::new("bootstrap_image", message)
}

fn image_step(detail: String, begun: Instant) -> StepReport {
    StepReport::success("image", detail, "the engine has the image under the id that the container is made from")
        .with_duration(begun.elapsed())
}
