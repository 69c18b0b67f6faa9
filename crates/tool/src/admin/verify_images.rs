//! `images verify`: whether the images of the embedded engine are whole.

use coracle_runtime::EngineKind;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::context::Context;
use crate::dispatch::{Effect, Operation};
use crate::document::{Document, Render};
use crate::engines::ImageVerification;
use crate::failure::{Code, Failure};
use crate::humanize::count;

/// Check that the images of the embedded engine are whole, and as they were stored.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct VerifyImages {
    /// Read all content as well, which takes as long as reading it from the disk.
    #[schemars(extend("default" = false))]
    deep: Option<bool>,
}

impl Operation for VerifyImages {
    const NAME: &'static str = "images verify";
    const EFFECT: Effect = Effect::ReadOnly;
    type Response = ImageVerification;

    async fn run(self, cx: &Context) -> Result<ImageVerification, Failure> {
        require_embedded(cx).await?;
        cx.engines().verify_images(self.deep.unwrap_or(false)).await
    }
}

/// Other engines have stores of their own, and programs for them.
pub(super) async fn require_embedded(cx: &Context) -> Result<(), Failure> {
    match cx.runtime().await?.kind() {
        EngineKind::Embedded => Ok(()),
        other => Err(Failure::new(Code::Unsupported, format!("the images of {other} are in a store of its own"))
            .detail("engine", other)
            .hint("`coracle --engine embedded images` with this verb works on those of the embedded engine")),
    }
}

impl Render for ImageVerification {
    fn render(&self, _: Timestamp) -> Document {
        let (images, layers) = (count(self.images, "image", "images"), count(self.layers, "layer", "layers"));
        let damaged = self.damage.iter().map(|it| format!("{}: {}", it.object, it.problem).into());
        let summary = match self.damage.len() as u64 {
            0 => format!("{images} and {layers} are as they were stored"),
            damaged => format!("{} of {images} and {layers}", count(damaged, "fault", "faults")),
        };
        Document {
            exit_code: u8::from(!self.is_sound),
            ..Document::default().and_lines(damaged).and_lines([summary.into()])
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::rendered;
    use crate::engines::DamagedObject;

    #[test]
    fn damage_is_listed_and_is_no_success() {
        let sound = ImageVerification { images: 2, layers: 5, is_sound: true, damage: Vec::new() };
        assert_eq!(rendered(&sound, "2026-11-21T12:30:00Z"), "2 images and 5 layers are as they were stored");
        let object = || DamagedObject { object: "layer sha256:ab".into(), problem: "its directory is missing".into() };
        let damaged = ImageVerification { is_sound: false, damage: vec![object()], ..sound };
        assert_eq!(damaged.render(Timestamp::UNIX_EPOCH).exit_code, 1);
        insta::assert_snapshot!(rendered(&damaged, "2026-11-21T12:30:00Z"), @r"
        layer sha256:ab: its directory is missing
        1 fault of 2 images and 5 layers
        ");
    }

    #[tokio::test]
    async fn an_engine_with_a_store_of_its_own_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let failure = VerifyImages { deep: None }.run(&Context::for_tests(dir.path())).await.unwrap_err();
        assert_eq!((failure.code, &failure.details["engine"]), (Code::Unsupported, &"fake".into()));
    }
}
