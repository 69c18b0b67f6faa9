//! Verification of the embedded engine's images.

use serde::Serialize;

use super::{Engines, data_dir};
use crate::failure::Failure;

/// What was looked at, and what is wrong with it.
#[derive(Debug, Default, Serialize)]
pub(crate) struct ImageVerification {
    pub(crate) images: u64,
    pub(crate) layers: u64,
    pub(crate) is_sound: bool,
    pub(crate) damage: Vec<DamagedObject>,
}

/// A layer, an image or a name that is damaged.
#[derive(Debug, Serialize)]
pub(crate) struct DamagedObject {
    pub(crate) object: String,
    pub(crate) problem: String,
}

impl Engines {
    /// Looks for half or damaged images of the embedded engine; `deep` reads all content.
    ///
    /// # Errors
    /// When the store cannot be read.
    #[cfg(target_os = "linux")]
    pub(crate) async fn verify_images(&self, deep: bool) -> Result<ImageVerification, Failure> {
        let engine = super::embedded::open_engine(&self.host, &data_dir(&self.config, &self.host))?;
        let found = engine.verify_images(deep).await?;
        let damage = found.damage.into_iter().map(|it| DamagedObject { object: it.object, problem: it.problem });
        let damage: Vec<_> = damage.collect();
        Ok(ImageVerification { images: found.images, layers: found.layers, is_sound: damage.is_empty(), damage })
    }

    #[cfg(not(target_os = "linux"))]
    pub(crate) async fn verify_images(&self, _: bool) -> Result<ImageVerification, Failure> {
        let _ = data_dir(&self.config, &self.host);
        Err(Failure::new(crate::failure::Code::Unsupported, "the embedded engine runs on Linux only"))
    }
}
