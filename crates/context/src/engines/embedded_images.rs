//! Images of the embedded engine: verifies, loads and saves them.

use std::fs::File;

use coracle_runtime::Image;
use coracle_types::ImageRef;
use jiff::Timestamp;
use serde::Serialize;

use super::{Engines, data_dir};
use crate::document::{Document, Render};
use crate::failure::Failure;
use crate::humanize::count;

/// The result of a verification.
#[derive(Debug, Default, Serialize)]
pub struct ImageVerification {
    pub images: u64,
    pub layers: u64,
    pub is_sound: bool,
    pub damage: Vec<DamagedObject>,
}

/// A layer, an image or a name that is damaged.
#[derive(Debug, Serialize)]
pub struct DamagedObject {
    pub object: String,
    pub problem: String,
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

/// The source of an image to load.
#[derive(Debug)]
pub enum CopySource {
    Docker,
    Podman,
    /// An archive.
    Archive(File),
    /// An OCI layout.
    Layout(std::path::PathBuf),
}

impl Engines {
    /// Finds incomplete or damaged images of the embedded engine; `deep` reads all content.
    ///
    /// # Errors
    /// If the store cannot be read.
    #[cfg(target_os = "linux")]
    pub async fn verify_images(&self, deep: bool) -> Result<ImageVerification, Failure> {
        let engine = super::embedded::open_engine(&self.host, &data_dir(&self.config, &self.host))?;
        let found = engine.verify_images(deep).await?;
        let damage = found.damage.into_iter().map(|it| DamagedObject { object: it.object, problem: it.problem });
        let damage: Vec<_> = damage.collect();
        Ok(ImageVerification { images: found.images, layers: found.layers, is_sound: damage.is_empty(), damage })
    }

    /// Copies an image into the embedded engine's store.
    ///
    /// # Errors
    /// If it cannot be read, or is refused.
    #[cfg(target_os = "linux")]
    pub async fn load_image(&self, name: &ImageRef, from: CopySource) -> Result<Image, Failure> {
        use coracle_engine::ImageOrigin;
        use coracle_types::Error;

        use crate::failure::Code;

        let engine = super::embedded::open_engine(&self.host, &data_dir(&self.config, &self.host))?;
        let origin = match from {
            CopySource::Docker => ImageOrigin::Docker,
            CopySource::Podman => ImageOrigin::Podman,
            CopySource::Archive(file) => ImageOrigin::Archive(file),
            CopySource::Layout(dir) => ImageOrigin::Layout(dir),
        };
        engine.copy_image(origin, name, self.config.images.pull_timeout.0).await.map_err(|err| match err {
            Error::PullFailed { excerpt, .. } => {
                Failure::new(Code::CopyFailed, format!("`{name}` cannot be loaded: {excerpt}"))
                    .detail("image", name)
                    .hint("an image of that name in Docker or Podman, an archive of `docker save`, or an OCI layout can be loaded")
            }
            other => other.into(),
        })
    }

    /// Saves an image of the embedded engine; `None` if it does not exist.
    ///
    /// # Errors
    /// If it cannot be read or written.
    #[cfg(target_os = "linux")]
    pub async fn save_image(&self, name: &ImageRef, into: File) -> Result<Option<Image>, Failure> {
        use coracle_runtime::ImageStore as _;

        let engine = super::embedded::open_engine(&self.host, &data_dir(&self.config, &self.host))?;
        let Some(image) = engine.find_images(std::slice::from_ref(name)).await?.pop() else { return Ok(None) };
        engine.export_image(&image.id, into).await?;
        Ok(Some(image))
    }
}

/// On other systems than Linux there is no embedded engine, so these are never called.
#[cfg(not(target_os = "linux"))]
impl Engines {
    pub async fn verify_images(&self, _: bool) -> Result<ImageVerification, Failure> {
        Err(self.only_on_linux())
    }

    pub async fn load_image(&self, _: &ImageRef, _: CopySource) -> Result<Image, Failure> {
        Err(self.only_on_linux())
    }

    pub async fn save_image(&self, _: &ImageRef, _: File) -> Result<Option<Image>, Failure> {
        Err(self.only_on_linux())
    }

    fn only_on_linux(&self) -> Failure {
        let _ = data_dir(&self.config, &self.host);
        Failure::new(crate::failure::Code::Unsupported, "the embedded engine runs on Linux only")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::document::rendered;

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
}
