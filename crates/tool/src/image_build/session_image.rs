//! The image of a session's container: the one that is there, the registry's, or one made here.

use coracle_images::Pull;
use coracle_images::pin::Pins;
use coracle_images::profile::{Profile, rooms};
use coracle_lifecycle::{Creation, Store};
use coracle_runtime::{Image, ImageId, ImageRef, Problem, Refused};
use coracle_workspace::SlotRole;
use serde::Serialize;

use crate::config::Config;
use crate::context::Context;
use crate::engines::{Backend, Ready};
use crate::failure::{Code, Failure};
use crate::host_identity::trusted_certificates;
use crate::image_build::{BuildError, ImageBuilder, ImageRequest, Packages};
use crate::preflight::ensure_ready;
use crate::requested::Requested;
use crate::resolve::ResolvedProfile;
use crate::strict;

/// An image, and the name it was found under.
pub(crate) struct NamedImage {
    pub(crate) image: Image,
    pub(crate) reference: String,
}

/// Gets it. What is here under its name is used as it is, and no registry is asked.
pub(crate) async fn resolve_image(
    cx: &Context,
    ready: &Ready,
    role: SlotRole,
    image: &ImageRef,
) -> Result<NamedImage, Failure> {
    let store = cx.store()?;
    if let Some((found, reference)) = coracle_images::find(&*ready.runtime, image).await? {
        // One that was made for another state directory is none that we know the content of, and is not used.
        let made_elsewhere = role == SlotRole::Run && store.trust_labels(ready.runtime.kind(), &found).is_err();
        let outdated = role == SlotRole::Run && is_outdated(&store, &found, &stand_in(role, &cx.config, image));
        if !made_elsewhere && !outdated {
            if role == SlotRole::Run {
                // Before it is held to its id: what is refused leaves no trace.
                if cx.config.is_strict() {
                    strict::check_made_here(&store, ready.runtime.kind(), image, &found)?;
                }
                pins(cx, ready)?.check(image, &found.id)?;
            }
            return Ok(NamedImage { image: found, reference: reference.to_string() });
        }
    }
    match role {
        SlotRole::Run => {
            let backend = Backend { ready, store: &store };
            let made = build_named(cx, backend, stand_in(role, &cx.config, image), image).await?;
            pins(cx, ready)?.pin(image, &made.image.id)?;
            Ok(made)
        }
        _ => workspace(cx, Backend { ready, store: &store }, image).await,
    }
}

/// What stands in when nobody has the image.
fn stand_in(role: SlotRole, config: &Config, image: &ImageRef) -> Profile {
    match role {
        SlotRole::Run => rooms::snippets(config.default_image.clone()),
        _ => rooms::workspace(config.default_image.clone(), image),
    }
}

/// The image of snippets is the one that it was at first: whoever can name images could else choose what all sessions
/// run their snippets in.
fn pins(cx: &Context, ready: &Ready) -> Result<Pins, Failure> {
    let (engine, endpoint) = (ready.runtime.kind(), ready.runtime.endpoint().address);
    Ok(Pins { dir: cx.state()?.root().join("pins"), engine, endpoint })
}

/// Refuses to give another image the name of that one: no tool of an agent decides what snippets run in.
pub(crate) fn not_for_snippets(cx: &Context, name: &ImageRef) -> Result<(), Failure> {
    let image = &cx.config.run_code.image;
    if local(name) != local(image) {
        return Ok(());
    }
    let problem = Problem {
        rule: "image.run_code",
        setting: Some("run_code.image"),
        value: name.to_string(),
        message: format!("`{image}` is what the snippets of all sessions run in, and nothing else gets its name"),
    };
    Err(Refused { problems: vec![problem] }.into())
}

/// A name as engines keep it that have it from no registry.
fn local(image: &ImageRef) -> String {
    let whole = image.completed().to_string();
    let bare = ["docker.io/library/", "localhost/"].iter().find_map(|it| whole.strip_prefix(it).map(str::to_owned));
    bare.unwrap_or(whole)
}

/// An image whose name stands for one id from now on.
#[derive(Debug, Serialize)]
pub(crate) struct TrustedImage {
    pub(crate) image: ImageRef,
    pub(crate) id: ImageId,
    pub(crate) before: Option<ImageId>,
}

/// Accepts the image that has the name now.
pub(crate) async fn trust(cx: &Context, name: &str) -> Result<TrustedImage, Failure> {
    let (image, named) = (&cx.config.run_code.image, ImageRef::parse(name)?);
    if named.completed() != image.completed() {
        let hint = format!("`{image}` is the one whose id is kept; `run_code.image` says so");
        return Err(Failure::not_found("image that is held to its id", name, &[]).hint(hint));
    }
    let ready = ensure_ready(cx).await?;
    let Some((found, reference)) = coracle_images::find(&*ready.runtime, image).await? else {
        let missing = coracle_images::Error::NotFound(image.clone());
        return Err(
            Failure::from(missing).hint("there is nothing to trust: `run_code` makes it when it is first needed")
        );
    };
    let pins = pins(cx, &ready)?;
    // What is damaged says nothing, and is written anew.
    let before = pins.pinned(image).ok().flatten();
    pins.pin(image, &found.id)?;
    Ok(TrustedImage { image: reference, id: found.id, before })
}

/// The image of a sandbox: the one that the person names, or ours, made once.
pub(crate) async fn of_sandbox(cx: &Context, ready: &Ready, named: Option<&ImageRef>) -> Result<NamedImage, Failure> {
    let store = cx.store()?;
    if let Some(image) = named {
        return fetched(cx, Backend { ready, store: &store }, image).await;
    }
    let ours = concat!("coracle-sandbox:", env!("CARGO_PKG_VERSION"));
    let ours = ImageRef::parse(ours).map_err(Failure::internal)?;
    let profile = coracle_images::profile::rooms::sandbox(cx.config.default_image.clone());
    if let Some((image, reference)) = coracle_images::find(&*ready.runtime, &ours).await?
        && store.trust_labels(ready.runtime.kind(), &image).is_ok()
        && !is_outdated(&store, &image, &profile)
    {
        return Ok(NamedImage { image, reference: reference.to_string() });
    }
    build_named(cx, Backend { ready, store: &store }, profile, &ours).await
}

/// An image that we made under its name by another recipe than that of today. What a person made of one of ours inherits
/// its labels and has no name of our cache: that stays.
fn is_outdated(store: &Store, image: &Image, profile: &Profile) -> bool {
    let signer = store.signer();
    let cache = format!("{}-cache:", signer.namespace());
    let recipe = image.labels.get(&signer.key("cache.recipe"));
    recipe.is_some_and(|it| *it != profile.recipe.sum().to_string()) && image.tags.iter().any(|it| it.contains(&cache))
}

/// The registry's; where none answers, and the image is our own default, one that has what the tools need.
async fn workspace(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    image: &ImageRef,
) -> Result<NamedImage, Failure> {
    let is_default = *image == crate::config::Workspace::default().image;
    match fetched(cx, Backend { ready, store }, image).await {
        Err(failure) if is_default && unreachable(&failure) => {
            cx.call.progress.message(format!("no registry gives {image}; making an image that stands in for it")).await;
            let profile = stand_in(SlotRole::Workspace, &cx.config, image);
            let base = profile.image.clone();
            let chosen = chosen(profile);
            let image_request = ImageRequest {
                chosen: &chosen,
                image: &base,
                named: false,
                pull: Pull::Missing,
                stands_for: Some(image),
            };
            build_requested(cx, Backend { ready, store }, image_request).await
        }
        fetched => fetched,
    }
}

/// As somebody named it: the one that is here, or the registry's.
async fn fetched(cx: &Context, Backend { ready, store }: Backend<'_>, image: &ImageRef) -> Result<NamedImage, Failure> {
    let plain = chosen(coracle_images::profile::bare(image.clone()));
    let image_request = ImageRequest { chosen: &plain, image, named: true, pull: Pull::Missing, stands_for: None };
    let builder = ImageBuilder::new(cx, Backend { ready, store }, image_request, trusted_certificates(cx))?;
    let base = cx.unless_cancelled(builder.base()).await?;
    Ok(NamedImage { image: base.image, reference: base.reference.to_string() })
}

/// No registry could be talked to, or gave nothing in time.
fn unreachable(failure: &Failure) -> bool {
    matches!(failure.code, Code::PullFailed | Code::PullTimeout)
}

/// Made once, and kept under its name.
async fn build_named(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    profile: Profile,
    image: &ImageRef,
) -> Result<NamedImage, Failure> {
    let built = build_missing(cx, Backend { ready, store }, profile).await?;
    ready.runtime.tag_image(&built.image.id, image).await?;
    Ok(NamedImage { reference: image.to_string(), ..built })
}

async fn build_missing(cx: &Context, on: Backend<'_>, profile: Profile) -> Result<NamedImage, Failure> {
    build(cx, on, profile, Pull::Missing).await
}

/// Puts a recipe on its base, once. Who never pulls has the base, and the host's certificates with it.
pub(crate) async fn build(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    profile: Profile,
    pull: Pull,
) -> Result<NamedImage, Failure> {
    let image = profile.image.clone();
    let chosen = chosen(profile);
    build_requested(
        cx,
        Backend { ready, store },
        ImageRequest { chosen: &chosen, image: &image, named: false, pull, stands_for: None },
    )
    .await
}

async fn build_requested(
    cx: &Context,
    Backend { ready, store }: Backend<'_>,
    image_request: ImageRequest<'_>,
) -> Result<NamedImage, Failure> {
    let mut bench: Option<Creation<'_>> = None;
    let certs = match image_request.pull {
        Pull::Never => Requested::No("the base has them".into()),
        Pull::Missing | Pull::Always => trusted_certificates(cx),
    };
    let builder = ImageBuilder::new(cx, Backend { ready, store }, image_request, certs)?;
    let made = cx.unless_cancelled(Box::pin(builder.cached(&mut bench))).await;
    if let Some(bench) = bench {
        for err in bench.undo().await {
            tracing::warn!(%err, "a container that an image was made of stays");
        }
    }
    let made = made?;
    match made.packages {
        Packages::Done(_) => Ok(NamedImage { image: made.image, reference: made.reference.to_string() }),
        Packages::Missing(BuildError { why, log }) => {
            Err(Failure::new(Code::BaseImageBuildFailed, format!("the image could not be made: {why}"))
                .detail("log", log)
                .hint("`details.log` says what failed; `preflight` says whether registries and mirrors answer"))
        }
    }
}

fn chosen(profile: Profile) -> ResolvedProfile {
    ResolvedProfile { requested: None, purpose: None, profile, cache_bust: false, tried: None, seen: None }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use coracle_images::profile::rooms;
    use coracle_runtime::{Image, ImageConfig, ImageId, ImageRef};

    use super::{is_outdated, not_for_snippets};
    use crate::context::Context;

    #[test]
    fn an_image_of_another_recipe_is_made_anew_unless_a_person_made_it() {
        let dir = tempfile::tempdir().unwrap();
        let store = Context::for_tests(dir.path()).store().unwrap();
        let profile = rooms::snippets(ImageRef::parse("ubuntu:24.04").unwrap());
        let outdated = |recipe: Option<&str>, tags: &[&str]| {
            let label = recipe.map(|it| (store.signer().key("cache.recipe"), it.to_owned()));
            let image = Image {
                id: ImageId::parse(format!("sha256:{}", "a".repeat(64))).unwrap(),
                tags: tags.iter().map(|it| (*it).to_owned()).collect(),
                digest: None,
                labels: BTreeMap::from_iter(label),
                env: Vec::new(),
                config: ImageConfig::default(),
                volumes: Vec::new(),
                arch: "amd64".into(),
                size_bytes: 0,
                created: String::new(),
            };
            is_outdated(&store, &image, &profile)
        };
        let (ours, current) = (["bun-runner-base:latest", "coracle-cache:custom-1"], profile.recipe.sum().to_string());
        assert!(outdated(Some("another"), &ours));
        assert!(!outdated(Some(&current), &ours));
        assert!(!outdated(None, &ours), "a stranger's");
        assert!(!outdated(Some("another"), &ours[..1]), "made of one of ours by a person");
    }

    #[test]
    fn r04_no_tool_gives_another_image_the_name_of_that_of_snippets() {
        let dir = tempfile::tempdir().unwrap();
        let cx = Context::for_tests(dir.path());
        let refused = |name: &str| not_for_snippets(&cx, &ImageRef::parse(name).unwrap()).is_err();
        for name in [
            "bun-runner-base",
            "bun-runner-base:latest",
            "localhost/bun-runner-base",
            "docker.io/library/bun-runner-base",
        ] {
            assert!(refused(name), "{name}");
        }
        for name in
            ["bun-runner-base:2", "bun-runner-base-2", "ghcr.io/x/bun-runner-base", "coracle-snapshot:bun-runner-base"]
        {
            assert!(!refused(name), "{name}");
        }
    }
}
