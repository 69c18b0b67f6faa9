//! Verifies images, to find damage by a faulty disk.

use coracle_types::Result;

use super::EmbeddedRuntime;
use crate::blocking::blocking;

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageVerification {
    /// The number of images.
    pub images: u64,
    /// The number of layers.
    pub layers: u64,
    /// All damage that was found.
    pub damage: Vec<ImageDamage>,
}

/// A damaged layer, image or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDamage {
    /// The name of the object.
    pub object: String,
    /// What is wrong with it.
    pub problem: String,
}

impl EmbeddedRuntime {
    /// Finds incomplete or damaged layers and images. With `deep`, reads all content.
    ///
    /// # Errors
    /// If the store cannot be read.
    pub async fn verify_images(&self, deep: bool) -> Result<ImageVerification> {
        let engine = self.engine.clone();
        let found = blocking("verify images", move || Ok(engine.store.verify(deep)?)).await?;
        let damage = found.damage.into_iter().map(|it| ImageDamage { object: it.object, problem: it.reason });
        Ok(ImageVerification { images: found.images, layers: found.layers, damage: damage.collect() })
    }
}
