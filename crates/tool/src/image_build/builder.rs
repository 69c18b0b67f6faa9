//! The image of a `create`: found in the cache, or its base with the recipe cooked on it (containers.md 7, 8).

use std::time::Instant;

use coracle_images::cache::{Cache, Cached, Found, Wanted as WantedImage};
use coracle_images::{Base, Bootstrap, Fallback, Pull, Recipe, Source, Want};
use coracle_lifecycle::{Creation, Store};
use coracle_provision::Step;
use coracle_provision::certs::ExtraCertificates;
use coracle_runtime::{Image, ImageRef};
use serde::Serialize;

use super::build_container::{self, BuildError, BuildOutcome};
use crate::context::Context;
use crate::engines::{Backend, Ready};
use crate::failure::Failure;
use crate::requested::Requested;
use crate::resolve::{Request, ResolvedProfile};
use crate::warning::Warning;
use crate::{config, host_identity};

/// What the container is made from, and what is to be said of it.
pub(crate) struct ResolvedImage {
    pub(crate) image: Image,
    pub(crate) reference: ImageRef,
    pub(crate) source: ImageSource,
    pub(crate) step: Step,
    pub(crate) certs: Requested<ExtraCertificates>,
    pub(crate) packages: Packages,
    pub(crate) warnings: Vec<Warning>,
    /// What is cooked in the container itself, if it could not be before.
    pub(crate) recipe: Recipe,
}

/// Where an image came from (containers.md 4.5).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum ImageSource {
    Local,
    Pulled,
    Cache,
    Built,
    Bootstrap,
    Snapshot,
}

/// What became of the packages and the setup of a profile.
pub(crate) enum Packages {
    /// They are in the image, or there are none.
    Done(Step),
    /// The recipe failed, so it is tried in the container itself; why it failed.
    Missing(BuildError),
}

/// Gets it, telling what takes long.
pub(crate) async fn ensure<'a>(
    cx: &Context,
    Backend { ready, store }: Backend<'a>,
    build: &mut Option<Creation<'a>>,
    request: &Request,
) -> Result<ResolvedImage, Failure> {
    let (chosen, image) = (&request.chosen, &request.spec.image);
    let image_request =
        ImageRequest { chosen, image, named: request.image_named, pull: request.pull, stands_for: None };
    let builder = ImageBuilder::new(
        cx,
        Backend { ready, store },
        image_request,
        host_identity::certs(cx, &request.provisioning.certs),
    )?;
    if builder.wanted().is_empty() {
        let base = builder.base().await?;
        return Ok(builder.plain(base, nothing_to_install()));
    }
    builder.cached(build).await
}

/// The images that are kept.
pub(crate) fn cache(cx: &Context, store: &Store) -> Result<Cache, Failure> {
    let root = cx.state()?.root();
    Ok(Cache {
        signer: store.signer().clone(),
        dir: root.join("images"),
        locks: root.join("locks"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// An image that is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ImageRequest<'c> {
    /// What is put on its base.
    pub(crate) chosen: &'c ResolvedProfile,
    /// Its base.
    pub(crate) image: &'c ImageRef,
    /// The caller named that, so nothing else will do.
    pub(crate) named: bool,
    /// Whether to fetch it.
    pub(crate) pull: Pull,
    /// The image that no registry gives and this one is made for, if that is not its base.
    pub(crate) stands_for: Option<&'c ImageRef>,
}

/// Where one image is made.
pub(crate) struct ImageBuilder<'c, 'a> {
    pub(super) cx: &'c Context,
    pub(super) ready: &'a Ready,
    pub(super) store: &'a Store,
    pub(super) image_request: ImageRequest<'c>,
    pub(super) certs: Requested<ExtraCertificates>,
    pub(super) cache: Cache,
    begun: Instant,
}

impl<'c, 'a> ImageBuilder<'c, 'a> {
    pub(crate) fn new(
        cx: &'c Context,
        Backend { ready, store }: Backend<'a>,
        image_request: ImageRequest<'c>,
        certs: Requested<ExtraCertificates>,
    ) -> Result<Self, Failure> {
        Ok(Self { cx, ready, store, image_request, certs, cache: cache(cx, store)?, begun: Instant::now() })
    }

    pub(super) fn backend(&self) -> Backend<'a> {
        Backend { ready: self.ready, store: self.store }
    }

    /// From the cache, else from its base.
    pub(crate) async fn cached(self, build: &mut Option<Creation<'a>>) -> Result<ResolvedImage, Failure> {
        let (runtime, wanted) = (&*self.ready.runtime, self.wanted());
        let bust = self.image_request.chosen.cache_bust || self.image_request.pull == Pull::Always;
        let stale = match self.cache.find(runtime, &wanted).await? {
            Found::Hit(cached) if !bust => return Ok(self.kept(cached, ImageSource::Cache, Vec::new())),
            Found::Hit(cached) | Found::Stale(cached) => Some(cached),
            Found::Miss => None,
        };
        let base = match (self.base().await, stale) {
            (Ok(base), _) => base,
            (Err(failure), Some(cached)) if !bust => return Ok(self.old(cached, &failure.message)),
            (Err(failure), _) => return Err(failure),
        };
        if wanted.recipe_on(&base).is_empty() {
            return Ok(self.plain(base, nothing_to_install()));
        }
        let progress = self.progress();
        let _alone = self.cache.lock(&wanted.key_on(&base, runtime.kind()), &progress).await?;
        // Whoever had the lock before made what we want.
        if !bust && let Found::Hit(cached) = self.cache.find_on(runtime, &wanted, &base).await? {
            return Ok(self.kept(cached, ImageSource::Cache, Vec::new()));
        }
        match build_container::build(&self, build, &base, &wanted).await? {
            BuildOutcome::Kept(cached) => {
                let source = if base.source == Source::Bootstrap { ImageSource::Bootstrap } else { ImageSource::Built };
                Ok(self.kept(*cached, source, Vec::new()))
            }
            BuildOutcome::Failed(why) => Ok(self.plain(base, Packages::Missing(why))),
        }
    }

    fn wanted(&self) -> WantedImage {
        let chosen = &self.image_request.chosen;
        let settings = &self.cx.config.images;
        WantedImage {
            purpose: chosen.purpose.clone(),
            image: chosen.profile.image.clone(),
            explicit: self.image_request.named,
            recipe: chosen.profile.recipe.clone(),
            // What a call names is never replaced, so nothing has to make something else stand in for it.
            bootstrap: if self.image_request.named { Recipe::default() } else { chosen.profile.bootstrap.clone() },
            ca: match &self.certs {
                Requested::Yes(found) => found.key(),
                Requested::No(_) => None,
            },
            tool: concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")).to_owned(),
            max_age: settings.cache_max_age.0,
            now: jiff::Timestamp::now(),
        }
    }

    /// A cached image, found or just made.
    fn kept(self, cached: Cached, source: ImageSource, mut warnings: Vec<Warning>) -> ResolvedImage {
        let (how, packages) = match source {
            ImageSource::Cache => ("was made before", "they are in the cached image"),
            _ => ("was made", "they are in the image that was made for this purpose"),
        };
        let on = match &cached.contents {
            Some(_) => format!("to stand in for {}", cached.base),
            None => format!("on {}", cached.base),
        };
        let base = cached.image.labels.get(&self.cache.signer.key("base.note"));
        let note = base.map_or_else(String::new, |note| format!("; its base was {note}"));
        let summary = cached.contents.as_ref().map(|it| it.summary(&cached.base));
        let told = summary.as_ref().map_or_else(String::new, |it| format!("; {it}"));
        let detail = format!("{} {how} {on}{note}{told}", cached.reference);
        warnings.extend(summary.map(|it| stand_in_warning(&cached.base, &it)));
        ResolvedImage {
            step: image_step(detail, self.begun),
            packages: Packages::Done(match source {
                ImageSource::Cache => Step::skipped("packages", packages),
                _ => Step::success(
                    "packages",
                    packages,
                    "each command of the recipe ended with 0, and its programs are found",
                )
                .took(self.begun.elapsed()),
            }),
            reference: cached.reference,
            image: cached.image,
            source,
            certs: self.certs,
            warnings,
            recipe: Recipe::default(),
        }
    }

    /// A cached image that should have been made anew.
    fn old(self, cached: Cached, why: &str) -> ResolvedImage {
        let warning = format!("{} is of {:.0}, and could not be rebuilt: {why}", cached.reference, cached.created);
        self.kept(cached, ImageSource::Cache, vec![Warning::new("old_cache", warning)])
    }

    /// A base as it is.
    fn plain(self, base: Base, packages: Packages) -> ResolvedImage {
        let (how, source) = match base.source {
            Source::Local => ("was here", ImageSource::Local),
            Source::Pulled => ("was pulled", ImageSource::Pulled),
            Source::Bootstrap => ("was made on this machine, since no registry answers", ImageSource::Bootstrap),
        };
        let note = base.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        let recipe = if base.source == Source::Bootstrap {
            let profile = &self.image_request.chosen.profile;
            profile.recipe.clone().after(&profile.bootstrap)
        } else {
            self.image_request.chosen.profile.recipe.clone()
        };
        ResolvedImage {
            step: image_step(format!("{} {how}{note}", base.reference), self.begun),
            warnings: self.stands_in(&base),
            image: base.image,
            reference: base.reference,
            source,
            certs: self.certs,
            packages,
            recipe,
        }
    }

    fn stands_in(&self, base: &Base) -> Vec<Warning> {
        if base.source != Source::Bootstrap {
            return Vec::new();
        }
        let note = base.note.clone().unwrap_or_else(|| format!("it is {}", base.reference));
        vec![stand_in_warning(&self.image_request.chosen.profile.image, &note)]
    }

    pub(crate) async fn base(&self) -> Result<Base, Failure> {
        let (cx, settings) = (self.cx, &self.cx.config.images);
        let fallback = match settings.fallback {
            config::Fallback::Bootstrap => Fallback::Bootstrap(Box::new(bootstrap(cx, self.store)?)),
            config::Fallback::Fail => Fallback::Fail,
        };
        let want = |pull| Want {
            image: self.image_request.image.clone(),
            explicit: self.image_request.named,
            pull,
            proxy: ["HTTPS_PROXY", "https_proxy"].iter().any(|it| cx.host.env.contains_key(*it)),
            pull_timeout: settings.pull_timeout.0,
            probe_timeout: settings.probe_timeout.0,
            fallback: fallback.clone(),
        };
        let (runtime, progress) = (&*self.ready.runtime, self.progress());
        if self.image_request.chosen.cache_bust && self.image_request.pull == Pull::Missing {
            // A base that cannot be fetched again is the one that is here.
            if let Ok(base) = coracle_images::ensure(runtime, &want(Pull::Always), &progress).await {
                return Ok(base);
            }
        }
        Ok(coracle_images::ensure(runtime, &want(self.image_request.pull), &progress).await?)
    }

    /// News from where nothing can wait.
    pub(super) fn progress(&self) -> impl Fn(&str) + Send + Sync + use<> {
        let progress = self.cx.call.progress.clone();
        move |text: &str| progress.note(text)
    }
}

fn nothing_to_install() -> Packages {
    Packages::Done(Step::skipped("packages", "none were given"))
}

fn stand_in_warning(image: &ImageRef, what: &str) -> Warning {
    let message = format!("no registry gives {image}; an image that was made on this machine stands in for it: {what}");
    Warning::new("bootstrap_image", message)
}

fn image_step(detail: String, begun: Instant) -> Step {
    Step::success("image", detail, "the engine has the image under the id that the container is made from")
        .took(begun.elapsed())
}

fn bootstrap(cx: &Context, store: &Store) -> Result<Bootstrap, Failure> {
    let (settings, state) = (&cx.config.images, cx.state()?);
    Ok(Bootstrap {
        root: "/".into(),
        mirror: settings.debian_mirror.clone(),
        suite: settings.debian_suite.clone(),
        build_timeout: settings.build_timeout.0,
        lock_file: state.root().join("locks/common-base"),
        temp_dir: state.scratch(),
        signer: store.signer().clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().to_string(),
    })
}
