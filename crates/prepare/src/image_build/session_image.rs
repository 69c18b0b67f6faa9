//! The image of a session's container: a local one, one from a registry, or one that is built.

use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::engines::{Backend, Ready};
use coracle_context::failure::{Code, Failure};
use coracle_context::host_identity::trusted_certificates;
use coracle_context::requested::Requested;
use coracle_context::strict;
use coracle_images::ImageRequest;
use coracle_images::pin::Pins;
use coracle_images::profile::{self, Profile, session_images};
use coracle_runtime::{Image, PolicyRefusal, Problem};
use coracle_types::{ImageId, ImageRef};
use coracle_workspace::SlotRole;
use jiff::Timestamp;
use serde::Serialize;

use super::builder::{self, Builder, build, cache};
use super::elsewhere;
use crate::coding_agents;
use crate::preflight::ensure_ready;

/// An image, and the name it was found under.
#[derive(Debug)]
pub struct NamedImage {
    pub image: Image,
    pub reference: String,
}

/// Finds or builds the image. A local image of that name is used without asking a registry.
pub async fn resolve_image(
    cx: &Context,
    ready: &Ready,
    role: SlotRole,
    image: &ImageRef,
) -> Result<NamedImage, Failure> {
    let store = cx.store()?;
    let backend = Backend { ready, store: &store };
    if role != SlotRole::Run {
        return match coracle_images::find(&*ready.runtime, image).await? {
            Some((image, reference)) => Ok(NamedImage { image, reference: reference.to_string() }),
            None => workspace(cx, backend, image).await,
        };
    }
    let profile = session_images::snippets(cx.config.default_image.clone());
    let (named, built) = build_named(cx, backend, image, profile).await?;
    if built {
        pins(cx, ready)?.pin(image, &named.image.id)?;
    } else {
        // Checked before its id is pinned, so that a refused image leaves no record.
        if cx.config.is_strict() {
            strict::check_made_here(&store, ready.runtime.kind(), image, &named.image)?;
        }
        pins(cx, ready)?.check(image, &named.image.id)?;
    }
    Ok(named)
}

/// The image for snippets is pinned to the id that was used first: otherwise a caller who can tag images could choose
/// what all sessions run their snippets in.
fn pins(cx: &Context, ready: &Ready) -> Result<Pins, Failure> {
    let (engine, endpoint) = (ready.runtime.kind(), ready.runtime.endpoint().address);
    Ok(Pins { dir: cx.state()?.root().join("pins"), engine, endpoint })
}

/// Fails if the name is that of the image for snippets: no tool of an agent may replace that image.
pub fn not_for_snippets(cx: &Context, name: &ImageRef) -> Result<(), Failure> {
    let image = &cx.config.run_code.image;
    if local(name) != local(image) {
        return Ok(());
    }
    let problem = Problem {
        rule: "image.run_code",
        setting: Some("run_code.image"),
        value: name.to_string(),
        message: format!("all sessions run their snippets in `{image}`, so no other image may get this name"),
    };
    Err(PolicyRefusal { problems: vec![problem] }.into())
}

/// Returns the name that engines use for an image from no registry.
fn local(image: &ImageRef) -> String {
    let whole = image.completed().to_string();
    let bare = ["docker.io/library/", "localhost/"].iter().find_map(|it| whole.strip_prefix(it).map(str::to_owned));
    bare.unwrap_or(whole)
}

/// An image whose name is now pinned to an id.
#[derive(Debug, Serialize)]
pub struct TrustedImage {
    pub image: ImageRef,
    pub id: ImageId,
    pub before: Option<ImageId>,
}

impl Render for TrustedImage {
    fn render(&self, _: Timestamp) -> Document {
        let Self { image, id, before } = self;
        Document::line(match before {
            Some(before) if before == id => format!("{image} is {id}, as before"),
            Some(before) => format!("{image} is {id} from now on; it was {before}"),
            None => format!("{image} is {id} from now on"),
        })
    }
}

/// Pins the name to the id of the image that has it now.
pub async fn trust(cx: &Context, name: &str) -> Result<TrustedImage, Failure> {
    let (image, named) = (&cx.config.run_code.image, ImageRef::parse(name)?);
    if named.completed() != image.completed() {
        let hint = format!("`{image}` is the pinned image, by the setting `run_code.image`");
        return Err(Failure::not_found("pinned image", name, &[]).hint(hint));
    }
    let ready = ensure_ready(cx).await?;
    let Some((found, reference)) = coracle_images::find(&*ready.runtime, image).await? else {
        let missing = coracle_images::Error::NotFound(image.clone());
        return Err(Failure::from(missing).hint("`run_code` creates the image when it first needs it"));
    };
    let pins = pins(cx, &ready)?;
    // An unreadable record is replaced.
    let before = pins.pinned(image).ok().flatten();
    pins.pin(image, &found.id)?;
    Ok(TrustedImage { image: reference, id: found.id, before })
}

/// Returns the image of a sandbox: the configured one, Coracle's default, or that of a coding agent. The last two are
/// built once.
pub async fn of_sandbox(cx: &Context, ready: &Ready, named: Option<&ImageRef>) -> Result<NamedImage, Failure> {
    let store = cx.store()?;
    let backend = Backend { ready, store: &store };
    if let Some(agent) = named.and_then(coding_agents::of_image) {
        let base = cx.config.default_image.clone();
        let profile = session_images::agent(base, agent.program, agent.below_root, agent.packages);
        return Ok(build_named(cx, backend, &agent.image(), profile).await?.0);
    }
    if let Some(image) = named {
        return fetched(cx, backend, image).await;
    }
    let ours = ImageRef::parse(concat!("coracle-sandbox:", env!("CARGO_PKG_VERSION"))).map_err(Failure::internal)?;
    let profile = session_images::sandbox(cx.config.default_image.clone());
    Ok(build_named(cx, backend, &ours, profile).await?.0)
}

/// Returns the registry's image. If no registry answers and it is the default image, builds one with what the tools
/// need.
async fn workspace(cx: &Context, backend: Backend<'_>, image: &ImageRef) -> Result<NamedImage, Failure> {
    let is_default = *image == coracle_context::config::Workspace::default().image;
    let failure = match fetched(cx, backend, image).await {
        Err(failure) if is_default && matches!(failure.code, Code::PullFailed | Code::PullTimeout) => failure,
        fetched => return fetched,
    };
    tracing::debug!("{}", failure.message);
    cx.call.progress.message(format!("no registry provides {image}; building a replacement")).await;
    let profile = session_images::workspace(cx.config.default_image.clone(), image);
    let certs = trusted_certificates(cx);
    let request = ImageRequest { stands_in: true, ..builder::request(cx, &profile, &certs) };
    build(cx, backend, &request, &certs).await
}

/// Returns the image that the caller or the configuration names: the local one, or the registry's.
async fn fetched(cx: &Context, backend: Backend<'_>, image: &ImageRef) -> Result<NamedImage, Failure> {
    let certs = Requested::No("nothing is installed".into());
    let request = builder::explicit(builder::request(cx, &profile::bare(image.clone()), &certs));
    let builder = Builder::new(cx, backend)?;
    let base = cx.unless_cancelled(async { Ok(builder.images().base(&request).await?) }).await?;
    Ok(NamedImage { image: base.image, reference: base.reference.to_string() })
}

/// Returns the local image of that name if it was built from today's recipe; else builds it. The second value tells
/// whether it was built.
async fn build_named(
    cx: &Context,
    backend: Backend<'_>,
    name: &ImageRef,
    profile: Profile,
) -> Result<(NamedImage, bool), Failure> {
    let runtime = &*backend.ready.runtime;
    if let Some((image, reference)) = cache(cx, backend.store)?.find_named(runtime, name, &profile.recipe).await? {
        return Ok((NamedImage { image, reference: reference.to_string() }, false));
    }
    let certs = trusted_certificates(cx);
    let built = build(cx, backend, &builder::request(cx, &profile, &certs), &certs).await?;
    if elsewhere::is_needed(backend.ready) {
        // There the image has the name of its recipe.
        return Ok((built, true));
    }
    runtime.tag_image(&built.image.id, name).await?;
    Ok((NamedImage { reference: name.to_string(), ..built }, true))
}

#[cfg(test)]
mod tests {
    use coracle_context::context::Context;
    use coracle_types::ImageRef;

    use super::not_for_snippets;

    #[test]
    fn r04_no_tool_renames_another_image_to_that_of_snippets() {
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
