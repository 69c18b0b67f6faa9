//! The image of a session's container: the one that is there, the registry's, or one made here.

use coracle_images::Pull;
use coracle_images::profile::Profile;
use coracle_lifecycle::{Making, Store};
use coracle_runtime::{Image, ImageAct, ImageRef};
use coracle_workspace::Role;

use super::plan::stand_in;
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::ops::create::{Dish, Kitchen, Packages, trusted_certificates};
use crate::ops::preflight::Ready;
use crate::resolve::Chosen;

/// An image, and the name it was found under.
pub(crate) struct Imaged {
    pub(crate) image: Image,
    pub(crate) reference: String,
}

/// Gets it. What is here under its name is used as it is, and no registry is asked.
pub(super) async fn imaged(cx: &Context, ready: &Ready, role: Role, image: &ImageRef) -> Result<Imaged, Failure> {
    let store = cx.store()?;
    if let Some((found, reference)) = coracle_images::find(&*ready.runtime, image).await? {
        // One that was made for another state directory is none that we know the content of.
        let made_elsewhere = role == Role::Run && store.trust_labels(ready.runtime.kind(), &found).is_err();
        if !made_elsewhere {
            return Ok(Imaged { image: found, reference: reference.to_string() });
        }
    }
    match role {
        Role::Workspace => workspace(cx, (ready, &store), image).await,
        Role::Run => kept(cx, (ready, &store), stand_in(role, &cx.config), image).await,
    }
}

/// The image of a sandbox: the one that the person names, or ours, made once.
pub(crate) async fn of_sandbox(cx: &Context, ready: &Ready, named: Option<&ImageRef>) -> Result<Imaged, Failure> {
    let store = cx.store()?;
    if let Some(image) = named {
        return fetched(cx, (ready, &store), image).await;
    }
    let ours = concat!("coracle-sandbox:", env!("CARGO_PKG_VERSION"));
    let ours = ImageRef::parse(ours).map_err(Failure::internal)?;
    if let Some((image, reference)) = coracle_images::find(&*ready.runtime, &ours).await?
        && store.trust_labels(ready.runtime.kind(), &image).is_ok()
    {
        return Ok(Imaged { image, reference: reference.to_string() });
    }
    let profile = coracle_images::profile::rooms::sandbox(cx.config.default_image.clone());
    kept(cx, (ready, &store), profile, &ours).await
}

/// The registry's; where none answers, and the image is our own default, one that has what the tools need.
async fn workspace(cx: &Context, (ready, store): (&Ready, &Store), image: &ImageRef) -> Result<Imaged, Failure> {
    let is_default = *image == crate::config::Workspace::default().image;
    match fetched(cx, (ready, store), image).await {
        Err(failure) if is_default && unreachable(&failure) => {
            cx.progress.message(format!("no registry gives {image}; making an image that stands in for it")).await;
            cooked(cx, (ready, store), stand_in(Role::Workspace, &cx.config)).await
        }
        fetched => fetched,
    }
}

/// As somebody named it: the one that is here, or the registry's.
async fn fetched(cx: &Context, (ready, store): (&Ready, &Store), image: &ImageRef) -> Result<Imaged, Failure> {
    let plain = chosen(coracle_images::profile::bare(image.clone()));
    let dish = Dish { chosen: &plain, image, named: true, pull: Pull::Missing };
    let kitchen = Kitchen::new(cx, (ready, store), dish, trusted_certificates(cx))?;
    let base = cx.unless_cancelled(kitchen.base()).await?;
    Ok(Imaged { image: base.image, reference: base.reference.to_string() })
}

/// No registry could be talked to, or gave nothing in time.
fn unreachable(failure: &Failure) -> bool {
    matches!(failure.code, Code::PullFailed | Code::PullTimeout)
}

/// Made once, and kept under its name: whoever puts another image there means that one.
async fn kept(
    cx: &Context,
    (ready, store): (&Ready, &Store),
    profile: Profile,
    image: &ImageRef,
) -> Result<Imaged, Failure> {
    let cooked = cooked(cx, (ready, store), profile).await?;
    let (id, tag) = (cooked.image.id.clone(), image.clone());
    ready.runtime.image(ImageAct::Tag { image: id, tag }).await?;
    Ok(Imaged { reference: image.to_string(), ..cooked })
}

async fn cooked(cx: &Context, (ready, store): (&Ready, &Store), profile: Profile) -> Result<Imaged, Failure> {
    let image = profile.image.clone();
    let chosen = chosen(profile);
    let dish = Dish { chosen: &chosen, image: &image, named: false, pull: Pull::Missing };
    let mut bench: Option<Making<'_>> = None;
    let kitchen = Kitchen::new(cx, (ready, store), dish, trusted_certificates(cx))?;
    let made = cx.unless_cancelled(kitchen.cached(&mut bench)).await;
    if let Some(bench) = bench {
        for err in bench.undo().await {
            tracing::warn!(%err, "a container that an image was made of stays");
        }
    }
    let made = made?;
    match made.packages {
        Packages::Told(_) => Ok(Imaged { image: made.image, reference: made.reference.to_string() }),
        Packages::Missing(why) => {
            Err(Failure::new(Code::BaseBuildFailed, format!("the image could not be made: {why}"))
                .hint("see what is missing; `preflight` says whether registries and mirrors answer"))
        }
    }
}

fn chosen(profile: Profile) -> Chosen {
    Chosen { requested: None, purpose: None, profile, cache_bust: false, tried: None, seen: None }
}
