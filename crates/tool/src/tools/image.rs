//! The image of a session's container: the one that is there, the registry's, or one made here.

use coracle_images::Pull;
use coracle_lifecycle::{Making, RoomRole, Store};
use coracle_runtime::{Image, ImageAct, ImageRef};

use super::plan::stand_in;
use crate::context::Context;
use crate::failure::{Code, Failure};
use crate::ops::create::{Dish, Kitchen, Packages, trusted_certificates};
use crate::ops::preflight::Ready;
use crate::resolve::Chosen;

/// An image, and the name it was found under.
pub(super) struct Imaged {
    pub(super) image: Image,
    pub(super) reference: String,
}

/// Gets it. What is here under its name is used as it is, and no registry is asked.
pub(super) async fn imaged(cx: &Context, ready: &Ready, role: RoomRole, image: &ImageRef) -> Result<Imaged, Failure> {
    let store = cx.store()?;
    if let Some((found, reference)) = coracle_images::find(&*ready.runtime, image).await? {
        // One that was made for another state directory is none that we know the content of.
        let made_elsewhere = role == RoomRole::Run && store.trust_labels(ready.runtime.kind(), &found).is_err();
        if !made_elsewhere {
            return Ok(Imaged { image: found, reference: reference.to_string() });
        }
    }
    match role {
        RoomRole::Workspace => workspace(cx, (ready, &store), image).await,
        RoomRole::Run => snippets(cx, (ready, &store), image).await,
    }
}

/// The registry's; where none answers, and the image is our own default, one that has what the tools need.
async fn workspace(cx: &Context, (ready, store): (&Ready, &Store), image: &ImageRef) -> Result<Imaged, Failure> {
    let is_default = *image == crate::config::Workspace::default().image;
    let profile = coracle_images::profile::bare(image.clone());
    let plain = chosen(profile);
    let dish = Dish { chosen: &plain, image, named: true, pull: Pull::Missing };
    let certs = trusted_certificates(cx);
    let kitchen = Kitchen::new(cx, (ready, store), dish, certs)?;
    match cx.unless_cancelled(kitchen.base()).await {
        Ok(base) => Ok(Imaged { image: base.image, reference: base.reference.to_string() }),
        Err(failure) if is_default && unreachable(&failure) => {
            cx.progress.message(format!("no registry gives {image}; making an image that stands in for it")).await;
            cooked(cx, (ready, store), RoomRole::Workspace).await
        }
        Err(failure) => Err(failure),
    }
}

/// No registry could be talked to, or gave nothing in time.
fn unreachable(failure: &Failure) -> bool {
    matches!(failure.code, Code::PullFailed | Code::PullTimeout)
}

/// Made once, and kept under its name: whoever puts another image there means that one.
async fn snippets(cx: &Context, (ready, store): (&Ready, &Store), image: &ImageRef) -> Result<Imaged, Failure> {
    let cooked = cooked(cx, (ready, store), RoomRole::Run).await?;
    let (id, tag) = (cooked.image.id.clone(), image.clone());
    ready.runtime.image(ImageAct::Tag { image: id, tag }).await?;
    Ok(Imaged { reference: image.to_string(), ..cooked })
}

async fn cooked(cx: &Context, (ready, store): (&Ready, &Store), role: RoomRole) -> Result<Imaged, Failure> {
    let profile = stand_in(role, &cx.config);
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

fn chosen(profile: coracle_images::profile::Profile) -> Chosen {
    Chosen { requested: None, purpose: None, profile, cache_bust: false, tried: None, seen: None }
}
