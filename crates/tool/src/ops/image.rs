//! The image of a `create`.

use coracle_images::{Base, Fallback, Recipe, Want};
use coracle_runtime::ContainerRuntime;

use crate::config;
use crate::context::Context;
use crate::failure::Failure;
use crate::resolve::Request;

/// Gets it, telling what takes long.
pub(crate) async fn ensure(cx: &Context, runtime: &dyn ContainerRuntime, request: &Request) -> Result<Base, Failure> {
    let settings = &cx.config.images;
    let fallback = match settings.fallback {
        config::Fallback::Bootstrap => Fallback::Bootstrap(Box::new(recipe(cx)?)),
        config::Fallback::Fail => Fallback::Fail,
    };
    let want = Want {
        image: request.spec.image.clone(),
        explicit: request.image_named,
        pull: request.pull,
        proxy: ["HTTPS_PROXY", "https_proxy"].iter().any(|it| cx.host.env.contains_key(*it)),
        pull_timeout: settings.pull_timeout.0,
        probe_timeout: settings.probe_timeout.0,
        fallback,
    };
    let progress = |text: &str| {
        let (progress, text) = (cx.progress.clone(), text.to_owned());
        tokio::spawn(async move { progress.message(text).await });
    };
    Ok(coracle_images::ensure(runtime, &want, &progress).await?)
}

fn recipe(cx: &Context) -> Result<Recipe, Failure> {
    let (settings, state) = (&cx.config.images, cx.state()?);
    Ok(Recipe {
        root: "/".into(),
        mirror: settings.debian_mirror.clone(),
        suite: settings.debian_suite.clone(),
        build_timeout: std::time::Duration::from_secs(30 * 60),
        lock_file: state.root().join("locks/common-base"),
        temp_dir: state.scratch(),
        signer: cx.store()?.signer().clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        created: jiff::Timestamp::now().to_string(),
    })
}
