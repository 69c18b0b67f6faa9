//! `images load` and `images save`: images of the embedded engine, from other stores and to them.

use std::fs::File;

use coracle_context::context::Context;
use coracle_context::document::{Document, Render};
use coracle_context::engines::CopySource;
use coracle_context::failure::{Code, Failure};
use coracle_context::humanize::bytes;
use coracle_context::new_file::NewFile;
use coracle_runtime::Image;
use coracle_types::ImageRef;
use jiff::Timestamp;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::verify_images::require_embedded;
use crate::dispatch::{Effect, Operation};

/// Copy an image of Docker or Podman, or of a file, to the embedded engine.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct LoadImage {
    /// Its name, such as `python:3.12`.
    image: String,
    /// `docker`, `podman`, an archive of `docker save`, or an OCI layout as an archive or a directory.
    from: String,
}

/// Write an image of the embedded engine to an archive that `docker load` and `podman load` read.
#[derive(Debug, Deserialize, JsonSchema)]
pub(super) struct SaveImage {
    /// Its name or id.
    image: String,
    /// The archive; there is no file of that name yet.
    file: String,
}

/// An image that was copied.
#[derive(Debug, Serialize)]
pub(crate) struct CopiedImage {
    image: String,
    id: String,
    /// The archive, where it was copied to one.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    size_bytes: u64,
}

impl CopiedImage {
    fn new(name: &ImageRef, image: &Image, path: Option<String>) -> Self {
        Self { image: name.to_string(), id: image.id.to_string(), path, size_bytes: image.size_bytes }
    }
}

impl Operation for LoadImage {
    const NAME: &'static str = "images load";
    const EFFECT: Effect = Effect::Mutating;
    type Response = CopiedImage;

    async fn run(self, cx: &Context) -> Result<CopiedImage, Failure> {
        require_embedded(cx).await?;
        let name = image_name(&self.image)?;
        let from = source(cx, &self.from)?;
        cx.call.progress.message(&format!("copying {name}")).await;
        let image = cx.engines().load_image(&name, from).await?;
        Ok(CopiedImage::new(&name, &image, None))
    }
}

impl Operation for SaveImage {
    const NAME: &'static str = "images save";
    const EFFECT: Effect = Effect::Mutating;
    type Response = CopiedImage;

    async fn run(self, cx: &Context) -> Result<CopiedImage, Failure> {
        require_embedded(cx).await?;
        let name = image_name(&self.image)?;
        let archive = NewFile::create(cx, &self.file)?;
        cx.call.progress.message(&format!("writing {name}")).await;
        let image = cx.engines().save_image(&name, archive.open()?).await?.ok_or_else(|| {
            Failure::new(Code::ImageNotFound, format!("the embedded engine has no image `{name}`"))
                .detail("image", &name)
        })?;
        Ok(CopiedImage::new(&name, &image, Some(archive.finish()?)))
    }
}

fn image_name(text: &str) -> Result<ImageRef, Failure> {
    ImageRef::parse(text).map_err(|err| Failure::new(Code::InvalidInput, err.to_string()).detail("image", text))
}

/// A path has a `/`, or is there.
fn source(cx: &Context, from: &str) -> Result<CopySource, Failure> {
    let path = cx.host.path(from.as_ref());
    match from {
        "docker" => return Ok(CopySource::Docker),
        "podman" => return Ok(CopySource::Podman),
        _ if path.is_dir() => return Ok(CopySource::Layout(path)),
        _ => {}
    }
    let unreadable = |err: std::io::Error| {
        Failure::new(Code::PathNotFound, format!("cannot read `{}`: {err}", path.display()))
            .detail("path", path.display().to_string())
            .hint("`from` is `docker`, `podman`, an archive or the directory of an OCI layout")
    };
    File::open(&path).map(CopySource::Archive).map_err(unreadable)
}

impl Render for CopiedImage {
    fn render(&self, _: Timestamp) -> Document {
        let Self { image, path, size_bytes, .. } = self;
        let size = bytes(*size_bytes);
        Document::line(match path {
            Some(path) => format!("{image} is in {path}"),
            None => format!("the embedded engine has {image}, {size}"),
        })
    }
}
