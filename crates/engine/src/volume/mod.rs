//! Named volumes: a directory each, with a record beside the files.
//!
//! `volumes/NAME/volume.json` says when and with which labels it was created, `volumes/NAME/_data` holds the files. A volume
//! is made beside the others and renamed, and renamed away before it is deleted.

mod image_content;
mod record;

pub(crate) use image_content::ImageDirectory;
pub(crate) use record::VolumeRecords;
