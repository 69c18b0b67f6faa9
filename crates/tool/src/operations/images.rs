//! `images`: what is kept for the next containers (containers.md 8.9).

use coracle_images::cache::Listed;
use coracle_images::profile::Purpose;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::context::Context;
use crate::dispatch::Operation;
use crate::failure::Failure;
use crate::image_build::cache;

/// List the images that are kept for purposes, and the bases that were made here, with size, age and use.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Images {
    /// What it is for: `python`, `node`, `bun`, `rust`, `go`, `general`, `clean`, `amplifier`, `try-repo`, or one that the
    /// person configured. It decides image, packages and setup, which are kept as an image for the next time.
    #[schemars(with = "Option<String>")]
    purpose: Option<Purpose>,
}

/// The answer of `images`.
#[derive(Debug, Serialize)]
pub(crate) struct Kept {
    images: Vec<Listed>,
    count: usize,
}

impl Operation for Images {
    const NAME: &'static str = "images";
    const ACTS: bool = false;
    type Answer = Kept;

    async fn run(self, cx: &Context) -> Result<Kept, Failure> {
        let runtime = cx.runtime().await?;
        let mut images = cache(cx, &cx.store()?)?.list(&*runtime).await?;
        images.retain(|it| self.purpose.is_none() || it.purpose == self.purpose);
        Ok(Kept { count: images.len(), images })
    }
}
