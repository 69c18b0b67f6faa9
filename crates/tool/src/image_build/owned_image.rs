//! Images whose directories belong to the user of `strict`: root gives them away while an image is built, and nowhere else.

use std::path::Path;

use coracle_images::{Owned, Pull, profile};
use coracle_runtime::{Ids, Image, ImageRef};

use super::session_image::{NamedImage, build};
use crate::context::Context;
use crate::engines::{Backend, Ready};
use crate::failure::{Code, Failure};
use crate::strict::USER;

/// The same image under the same name, where these directories are the user's, and the user is known.
pub(crate) async fn owned(
    cx: &Context,
    ready: &Ready,
    imaged: &NamedImage,
    places: &[&str],
) -> Result<NamedImage, Failure> {
    // What is done to a volume of an image is not in the image that is made of it.
    if let Some(volume) = imaged.image.volumes.iter().find(|it| covers(it, places)) {
        let what =
            format!("`{}` has a volume at `{volume}`, so that nothing there can be given to a user", imaged.reference);
        return Err(Failure::new(Code::Unsupported, what)
            .detail("capability", "image_volume")
            .detail("image", &imaged.reference)
            .detail("setting", "policy")
            .hint("name an image without that `VOLUME`"));
    }
    let mut profile = profile::bare(ImageRef::parse(&imaged.reference)?);
    let Ids { uid, gid } = USER;
    profile.recipe.owned = places.iter().map(|path| Owned { uid, gid, path: (*path).to_owned() }).collect();
    let store = cx.store()?;
    let made = build(cx, Backend { ready, store: &store }, profile, Pull::Never).await?;
    // It was looked up by its name, which may lead to another one by now.
    let base = made.image.labels.get(&store.signer().key("cache.base_digest"));
    if !made_of(base.map(String::as_str), &imaged.image) {
        let what = format!("`{}` was exchanged while an image was made of it", imaged.reference);
        return Err(Failure::new(Code::BaseImageBuildFailed, what).hint("say it again"));
    }
    Ok(NamedImage { image: made.image, reference: imaged.reference.clone() })
}

/// Whether a volume of an image lies on one of these, above or below it.
fn covers(volume: &str, places: &[&str]) -> bool {
    let volume = Path::new(volume.trim_end_matches('/'));
    places.iter().map(Path::new).any(|it| it.starts_with(volume) || volume.starts_with(it))
}

/// By the registry's digest, or the id of one that no registry gave.
fn made_of(base: Option<&str>, image: &Image) -> bool {
    base == Some(image.digest.as_deref().unwrap_or(image.id.as_str()))
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_volume_of_an_image_that_lies_on_a_place_of_ours_is_seen() {
        for (volume, expected) in [
            ("/workspace", true),
            ("/workspace/", true),
            ("/workspace/x", true),
            ("/", true),
            ("/work", false),
            ("/data", false),
        ] {
            assert_eq!(covers(volume, &["/workspace"]), expected, "{volume}");
        }
    }
}
