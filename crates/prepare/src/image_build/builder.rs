//! Gives `images` what it needs from the configuration and the host to build an image.

use coracle_context::config;
use coracle_context::context::Context;
use coracle_context::engines::Backend;
use coracle_context::failure::{Code, Failure};
use coracle_context::requested::Requested;
use coracle_images::cache::Cache;
use coracle_images::profile::Profile;
use coracle_images::{Bootstrap, BuildFailure, FetchSettings, ImageBuilder, ImageRequest, Recipe};
use coracle_lifecycle::Store;
use coracle_provision::certs::ExtraCertificates;

use super::build_containers::LifecycleContainers;
use super::{NamedImage, elsewhere};

/// The settings of one build.
pub(super) struct Builder<'c, 'a> {
    cx: &'c Context,
    backend: Backend<'a>,
    pub(super) cache: Cache,
    fetch: FetchSettings,
    progress: Box<dyn Fn(&str) + Send + Sync>,
}

impl<'c, 'a> Builder<'c, 'a> {
    pub(super) fn new(cx: &'c Context, backend: Backend<'a>) -> Result<Self, Failure> {
        let fetch = FetchSettings {
            fallback: match cx.config.images.fallback {
                config::Fallback::Bootstrap => Some(Box::new(bootstrap(cx, backend.store)?)),
                config::Fallback::Fail => None,
            },
            ..fetch_settings(cx)
        };
        let progress = cx.call.progress.clone();
        let progress = Box::new(move |text: &str| progress.note(text));
        Ok(Self { cx, backend, cache: cache(cx, backend.store)?, fetch, progress })
    }

    pub(super) fn images(&self) -> ImageBuilder<'_> {
        let settings = &self.cx.config.images;
        ImageBuilder {
            runtime: &*self.backend.ready.runtime,
            cache: &self.cache,
            fetch: &self.fetch,
            timeout: settings.build_timeout.0,
            max_bytes: settings.cache_max_bytes,
            cancel: self.cx.call.cancel.clone(),
            progress: &*self.progress,
        }
    }
}

/// Opens the cache of images.
pub fn cache(cx: &Context, store: &Store) -> Result<Cache, Failure> {
    let root = cx.state()?.root();
    Ok(Cache {
        signer: store.signer().clone(),
        dir: root.join("images"),
        locks: root.join("locks"),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    })
}

/// Returns the settings for fetching images that must not be replaced by a local build.
pub fn fetch_settings(cx: &Context) -> FetchSettings {
    let settings = &cx.config.images;
    FetchSettings {
        proxy: ["HTTPS_PROXY", "https_proxy"].iter().any(|it| cx.host.env.contains_key(*it)),
        pull_timeout: settings.pull_timeout.0,
        probe_timeout: settings.probe_timeout.0,
        fallback: None,
    }
}

/// Returns the request for a profile's image without options of a caller.
pub(super) fn request(cx: &Context, profile: &Profile, certs: &Requested<ExtraCertificates>) -> ImageRequest {
    ImageRequest {
        purpose: None,
        image: profile.image.clone(),
        explicit: false,
        pull: cx.config.images.pull_missing(),
        rebuild: false,
        stands_in: false,
        recipe: profile.recipe.clone(),
        bootstrap: profile.bootstrap.clone(),
        ca: match certs {
            Requested::Yes(found) => found.key(),
            Requested::No(_) => None,
        },
        tool: concat!(env!("CARGO_PKG_VERSION_MAJOR"), ".", env!("CARGO_PKG_VERSION_MINOR")).to_owned(),
        max_age: cx.config.images.cache_max_age.0,
        now: jiff::Timestamp::now(),
    }
}

/// Marks the image of a request as chosen by the caller, so that no local build replaces it.
pub(super) fn explicit(request: ImageRequest) -> ImageRequest {
    ImageRequest { explicit: true, bootstrap: Recipe::default(), ..request }
}

/// Builds an image outside of `create`. Fails if the recipe fails.
pub(super) async fn build(
    cx: &Context,
    backend: Backend<'_>,
    request: &ImageRequest,
    certs: &Requested<ExtraCertificates>,
) -> Result<NamedImage, Failure> {
    let built = if elsewhere::is_needed(backend.ready) {
        Box::pin(elsewhere::build(cx, backend, request, certs)).await
    } else {
        let (builder, mut creation) = (Builder::new(cx, backend)?, None);
        let mut containers = LifecycleContainers { cx, backend, certs, volumes: Vec::new(), creation: &mut creation };
        let built = cx.unless_cancelled(Box::pin(builder.images().build(request, &mut containers))).await;
        containers.remove().await;
        built
    };
    match built?.into_image() {
        Ok((image, reference)) => Ok(NamedImage { image, reference: reference.to_string() }),
        Err(BuildFailure { why, log }) => {
            Err(Failure::new(Code::BaseImageBuildFailed, format!("the image could not be built: {why}"))
                .detail("log", log)
                .hint("see `details.log`; `preflight` checks whether registries and mirrors answer"))
        }
    }
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
