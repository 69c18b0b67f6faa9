//! `images verify`: whether the images of the embedded engine are whole.

use coracle_context::context::Context;
use coracle_context::engines::ImageVerification;
use coracle_context::failure::{Code, Failure};
use coracle_types::EngineKind;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::dispatch::{Effect, Operation};

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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_engine_with_a_store_of_its_own_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let failure = VerifyImages { deep: None }.run(&Context::for_tests(dir.path())).await.unwrap_err();
        assert_eq!((failure.code, &failure.details["engine"]), (Code::Unsupported, &"fake".into()));
    }
}
