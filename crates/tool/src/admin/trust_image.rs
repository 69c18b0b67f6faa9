//! `images trust`: a changed image is accepted under its name.

use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::failure::Failure;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::Deserialize;

use crate::dispatch::{Effect, Operation};
use crate::image_build::{TrustedImage, trust};

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
