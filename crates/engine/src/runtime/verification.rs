//! Verification of images, for a person who doubts the disk.

use coracle_types::Result;

use super::EmbeddedRuntime;
use crate::blocking::blocking;

/// What was looked at, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageVerification {
    /// Images.
    pub images: u64,
    /// Their layers.
    pub layers: u64,
    /// Everything that is wrong.
    pub damage: Vec<ImageDamage>,
}

/// A damaged layer, image or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ImageDamage {
    /// Which one.
    pub object: String,
    /// What is wrong with it.
    pub problem: String,
}

impl EmbeddedRuntime {
    /// Looks for half or damaged layers and images; `deep` reads all content.
    ///
    /// # Errors
    /// When the store cannot be read.
    pub async fn verify_images(&self, deep: bool) -> Result<ImageVerification> {
        let engine = self.engine.clone();
        let found = blocking("verify images", move || Ok(engine.store.verify(deep)?)).await?;
        let damage = found.damage.into_iter().map(|it| ImageDamage { object: it.object, problem: it.reason });
        Ok(ImageVerification { images: found.images, layers: found.layers, damage: damage.collect() })
    }
}
