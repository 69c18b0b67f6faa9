//! Images in which directories belong to the user of `strict`. Root changes the owner while the image is built, never
//! later.

use std::path::Path;

use coracle_context::context::Context;
use coracle_context::engines::{Backend, Ready};
use coracle_context::failure::{Code, Failure};
use coracle_context::requested::Requested;
use coracle_context::strict::USER;
use coracle_images::{ImageRequest, OwnedDirectory, Pull, digest_of, profile};
use coracle_types::{Ids, ImageRef};

use super::NamedImage;
use super::builder::{self, build};

/// Builds the image under the same name, with these directories owned by the user, who is added to its accounts.
pub async fn owned(cx: &Context, ready: &Ready, imaged: &NamedImage, places: &[&str]) -> Result<NamedImage, Failure> {
    // A build does not save changes to the volumes of its image.
    if let Some(volume) = imaged.image.volumes.iter().find(|it| covers(it, places)) {
        let what = format!(
            "`{}` has a volume at `{volume}`, so directories below it cannot change their owner",
            imaged.reference
        );
        return Err(Failure::new(Code::Unsupported, what)
            .detail("capability", "image_volume")
            .detail("image", &imaged.reference)
            .detail("setting", "policy")
            .hint("name an image without that `VOLUME`"));
    }
    let mut profile = profile::bare(ImageRef::parse(&imaged.reference)?);
    let Ids { uid, gid } = USER;
    profile.recipe.owned = places.iter().map(|path| OwnedDirectory { uid, gid, path: (*path).to_owned() }).collect();
    let store = cx.store()?;
    let certs = Requested::No("the base has them".into());
    let request = ImageRequest { pull: Pull::Never, ..builder::request(cx, &profile, &certs) };
    let made = build(cx, Backend { ready, store: &store }, &request, &certs).await?;
    // The base was found by its name, which may refer to another image by now.
    let base = made.image.labels.get(&store.signer().key("cache.base_digest"));
    if base.is_none_or(|it| it != digest_of(&imaged.image)) {
        let what = format!("`{}` changed while an image was built from it", imaged.reference);
        return Err(Failure::new(Code::BaseImageBuildFailed, what).hint("run the command again"));
    }
    Ok(NamedImage { image: made.image, reference: imaged.reference.clone() })
}

/// Whether a volume of an image contains one of these paths, or lies below one.
fn covers(volume: &str, places: &[&str]) -> bool {
    let volume = Path::new(volume.trim_end_matches('/'));
    places.iter().map(Path::new).any(|it| it.starts_with(volume) || volume.starts_with(it))
}

#[cfg(test)]
mod tests {
    use super::covers;

    #[test]
    fn a_volume_that_overlaps_a_given_path_is_found() {
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
