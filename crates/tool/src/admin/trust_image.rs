//! `images trust`: a changed image is accepted under its name.

use coracle_context::context::Context;
use coracle_context::failure::Failure;
use coracle_prepare::image_build::{TrustedImage, trust};
use schemars::JsonSchema;
use serde::Deserialize;

use crate::dispatch::{Effect, Operation};

/// Accept the image that a name stands for now, after it changed.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct TrustImage {
    /// Its name, such as `bun-runner-base`.
    image: String,
}

impl Operation for TrustImage {
    const NAME: &'static str = "images trust";
    const EFFECT: Effect = Effect::Mutating;
    type Response = TrustedImage;

    async fn run(self, cx: &Context) -> Result<TrustedImage, Failure> {
        trust(cx, &self.image).await
    }
}
