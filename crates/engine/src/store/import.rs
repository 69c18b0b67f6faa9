//! Images of one layer, from an archive of a root file system.

use std::fs::File;
use std::os::unix::fs::FileExt as _;

use coracle_runtime::{Image, ImageConfig, ImageImport};

use super::addition::Compression;
use super::configuration::NewConfiguration;
use super::{NewImage, Result, Store, StoreError};

impl Store {
    /// Makes an image of one layer of a root file system's archive, which may be compressed by gzip or zstd.
    pub(crate) fn import(&self, import: ImageImport) -> Result<Image> {
        let ImageImport { tar, tag, env, labels } = import;
        let mut addition = self.begin_addition()?;
        let compression = Compression::detect(&tar).map_err(StoreError::io("cannot read the archive"))?;
        let layer = addition.add_unknown_layer(tar, compression)?;
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

impl Compression {
    /// The compression of a file, by its first bytes at the present position.
    pub(crate) fn detect(mut file: &File) -> std::io::Result<Self> {
        let at = std::io::Seek::stream_position(&mut file)?;
        let mut magic = [0; 4];
        let count = file.read_at(&mut magic, at)?;
        Ok(match &magic[..count] {
            [0x1f, 0x8b, ..] => Self::Gzip,
            [0x28, 0xb5, 0x2f, 0xfd] => Self::Zstd,
            // Frames that are skipped: 0x184D2A50 to 0x184D2A5F.
            [0x50..=0x5f, 0x2a, 0x4d, 0x18] => Self::Zstd,
            _ => Self::None,
        })
    }
}
