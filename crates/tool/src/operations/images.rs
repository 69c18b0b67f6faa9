//! `images`: lists cached images.

use coracle_context::context::Context;
use coracle_context::document::{Column, Document, Render, optional};
use coracle_context::failure::Failure;
use coracle_context::humanize::{ago, bytes};
use coracle_images::cache::CachedImageInfo as CachedImage;
use coracle_images::profile::Purpose;
use coracle_prepare::image_build::cache;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;
use crate::shapes::ImageShape;

/// List cached images of purposes, and of bases, with size, age and use.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Images {
    /// What the container is for: `python`, `node`, `bun`, `rust`, `go`, `general`, `browser`, `desktop`, `clean`,
    /// `amplifier`, `try-repo`, or a configured purpose. It decides image, packages and setup, which are cached as an
    /// image.
    #[schemars(with = "Option<String>")]
    purpose: Option<Purpose>,
}

/// The answer of `images`.
#[derive(Debug, JsonSchema, Serialize)]
pub(crate) struct ImagesResponse {
    #[schemars(with = "Vec<ImageShape>")]
    images: Vec<CachedImage>,
    count: usize,
}

impl Operation for Images {
    const NAME: &'static str = "images";
    const EFFECT: Effect = Effect::ReadOnly;
    const RESULT: fn() -> Value = result_schema::<ImagesResponse>;
    type Response = ImagesResponse;

    async fn run(self, cx: &Context) -> Result<ImagesResponse, Failure> {
        let runtime = cx.runtime().await?;
        let mut images = cache(cx, &cx.store()?)?.list(&*runtime).await?;
        images.retain(|it| self.purpose.is_none() || it.purpose == self.purpose);
        Ok(ImagesResponse { count: images.len(), images })
    }
}

const COLUMNS: [Column; 6] = [
    Column::flexible("IMAGE"),
    Column::fixed("PURPOSE").or_left_out(2),
    Column::flexible("BASE").or_left_out(1),
    Column::fixed("SIZE"),
    Column::fixed("CREATED").or_left_out(3),
    Column::fixed("IN USE").or_left_out(4),
];

impl Render for ImagesResponse {
    fn render(&self, now: Timestamp) -> Document {
        let row = |it: &CachedImage| {
            let (purpose, base) = (optional(it.purpose.as_ref()), optional(it.base.as_ref()));
            let (size, created) = (bytes(it.size_bytes), ago(&it.created, now));
            let in_use = if it.in_use { "yes" } else { "no" };
            // With the registry, the column would show nothing else on a narrow terminal.
            let name = it.image.as_str().rsplit('/').next().unwrap_or_default().to_owned();
            vec![name.into(), purpose.into(), base.into(), size.into(), created.into(), in_use.into()]
        };
        Document::rows(&COLUMNS, &self.images, row, "no cached images; `coracle create --purpose python` makes one")
    }
}

#[cfg(test)]
mod tests {
    use coracle_context::document::rendered;
    use coracle_types::{ImageId, ImageRef};
    use insta::assert_snapshot;

    use super::*;

    #[test]
    fn cached_images_are_a_table() {
        let image = |image: &str, size_bytes, created: &str| CachedImage {
            image: ImageRef::parse(image).unwrap(),
            image_id: ImageId::parse(format!("sha256:{}", "0".repeat(64))).unwrap(),
            purpose: None,
            key: None,
            base: None,
            size_bytes,
            created: created.into(),
            in_use: false,
        };
        let python = CachedImage {
            purpose: Some(Purpose::parse("python").unwrap()),
            base: Some(ImageRef::parse("python:3.12-slim").unwrap()),
            in_use: true,
            ..image("coracle-cache:python-0123456789abcdef", 512_000_000, "2026-11-21T10:00:00Z")
        };
        let base = image("coracle-base:debian-bookworm-amd64", 251_000_000, "2026-11-20T12:30:00Z");
        let cached = ImagesResponse { images: vec![python, base], count: 2 };
        assert_snapshot!(rendered(&cached, "2026-11-21T12:30:00Z"), @r"
        IMAGE                                  PURPOSE  BASE              SIZE       CREATED   IN USE
        coracle-cache:python-0123456789abcdef  python   python:3.12-slim  488.3 MiB  2 h ago   yes
        coracle-base:debian-bookworm-amd64                                239.4 MiB  24 h ago  no
        ");
    }
}
