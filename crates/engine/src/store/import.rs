//! Creates images of one layer from an archive of a root file system.

use coracle_archive::oci::LayerEncoding;
use coracle_runtime::{Image, ImageConfig, ImageImport};

use super::configuration::NewConfiguration;
use super::{LayerLimits, NewImage, Result, Store, StoreError};

impl Store {
    /// Creates an image of one layer from an archive of a root file system, which may be compressed with gzip or zstd.
    pub(crate) fn import(&self, import: ImageImport, limits: LayerLimits) -> Result<Image> {
        let imported = self.add_import(import, limits);
        if imported.is_err() {
            // The layer may have been complete before the failure.
            self.collect_leftovers();
        }
        imported
    }

    fn add_import(&self, import: ImageImport, limits: LayerLimits) -> Result<Image> {
        let ImageImport { tar, tag, env, labels } = import;
        let mut addition = self.begin_addition()?;
        let compression = LayerEncoding::detect(&tar).map_err(StoreError::io("cannot read the archive"))?;
        let layer = addition.add_unknown_layer(tar, compression, limits)?;
        let configuration = NewConfiguration {
            base: None,
            config: ImageConfig::default(),
            env: env.into_iter().map(|(name, value)| format!("{name}={value}")).collect(),
            labels,
            layer: &layer.diff_id,
            created: jiff::Timestamp::now().to_string(),
            comment: "imported",
        };
        let configuration = configuration.to_bytes()?;
        addition.add_image(NewImage { configuration, names: vec![tag], ..NewImage::default() })
    }
}
