//! Named volumes: one directory each, with a record and the files.
//!
//! `volumes/NAME/volume.json` has the time of creation and the labels, `volumes/NAME/_data` the files. A volume is created
//! under a temporary name and then renamed. It is moved to the trash before it is deleted.

mod image_content;
mod record;

pub(crate) use image_content::ImageDirectory;
pub(crate) use record::VolumeRecords;
