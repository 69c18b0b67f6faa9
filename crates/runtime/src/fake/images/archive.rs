//! Images of the fake engine as archives. It has images of one layer only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Seek as _;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use coracle_archive::image::ImageArchive;
use coracle_archive::oci::{Configuration, ImageError};
use coracle_archive::tar::Writer;
use coracle_types::Result;
use serde_json::{Map, Value, json};

use super::super::{Verb, arch, refused};
use super::{StoredImage, image, keep};
use crate::ImageConfig;

/// Writes an image under the first of its names.
pub(super) fn save(stored: &StoredImage, into: &File) -> Result<()> {
    let failed = |err: ImageError| refused(Verb::SaveImage, err.to_string());
    let layer = match &stored.layer {
        Some(layer) => layer.try_clone().map_err(|err| failed(err.into()))?,
        None => empty_tar().map_err(|err| failed(err.into()))?,
    };
    let archive = ImageArchive::from_layer(configuration(stored), layer).map_err(failed)?;
    let name = stored.image.tags.first().map_or("fake:latest", String::as_str);
    archive.write(name, into, &AtomicBool::new(false)).map_err(failed)
}

fn empty_tar() -> std::io::Result<File> {
    Writer::new(tempfile::tempfile()?).finish()
}

fn configuration(stored: &StoredImage) -> Map<String, Value> {
    let ImageConfig { entrypoint, cmd, user, workdir } = &stored.image.config;
    let volumes: BTreeMap<_, _> = stored.image.volumes.iter().map(|it| (it.as_str(), json!({}))).collect();
    let config = json!({
        "Env": stored.image.env,
        "Labels": stored.image.labels,
        "Entrypoint": entrypoint,
        "Cmd": cmd,
        "User": user,
        "WorkingDir": workdir,
        "Volumes": volumes,
    });
    let fields = [("architecture", json!(arch())), ("os", json!("linux")), ("config", config)];
    fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect()
}

/// Reads an image that gets the name `tag`.
pub(super) fn load(archive: File, tag: String) -> Result<StoredImage> {
    let failed = |err: &dyn std::fmt::Display| refused(Verb::LoadImage, err.to_string());
    let read = ImageArchive::open(archive).map_err(|err| failed(&err))?;
    let mut content = read.only_layer().ok_or_else(|| failed(&"it has not one uncompressed layer"))?;
    let mut tar = tempfile::tempfile().map_err(|err| failed(&err))?;
    std::io::copy(&mut content, &mut tar).and_then(|_| tar.rewind()).map_err(|err| failed(&err))?;
    let (layer, size) = keep(tar)?;
    let configuration = Value::Object(read.configuration().clone());
    let read: Configuration = serde_json::from_value(configuration).map_err(|err| failed(&err))?;
    let mut image = image(Some(tag), read.config.env.clone(), size);
    image.labels = read.config.labels.clone();
    image.volumes = read.config.volumes.keys().cloned().collect();
    image.config = read.config.into();
    Ok(StoredImage { image, layer: Some(Arc::new(layer)) })
}
