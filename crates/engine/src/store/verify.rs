//! Finds damaged and incomplete layers and images.

use std::io;
use std::os::fd::AsFd as _;
use std::path::Path;

use coracle_archive::oci::Configuration;
use coracle_types::ImageId;

use super::configuration::image_id;
use super::export::{CanonicalDigest, PackSource};
use super::layer::{FILES, LayerRecord};
use super::tree::{ContentDigests, DigestSink, OverlayForm, WalkOptions, walk};
use super::{DiffId, Result, Store, StoreError};

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct DamageReport {
    pub(crate) layers: u64,
    pub(crate) images: u64,
    pub(crate) damage: Vec<Damage>,
}

/// A damaged layer, image or name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Damage {
    /// Its kind and id.
    pub(crate) object: String,
    pub(crate) reason: String,
}

impl Store {
    /// Compares layers and images with their records: the files' metadata, and with `deep` also their content.
    pub(crate) fn verify(&self, deep: bool) -> Result<DamageReport> {
        let failed = || StoreError::io("cannot verify the image store");
        let mut report = DamageReport::default();
        // Holds prevent removals meanwhile, which would look like damage.
        let mut hold = self.new_hold()?;
        let lock = self.lock()?;
        let (images, layers) = (self.image_ids().map_err(failed())?, self.layer_ids().map_err(failed())?);
        for id in images.iter().map(ImageId::as_str).chain(layers.iter().map(DiffId::as_str)) {
            hold.add(id).map_err(failed())?;
        }
        for (image, names) in self.all_names().map_err(failed())? {
            if !images.contains(&image) {
                let names: Vec<_> = names.iter().map(ToString::to_string).collect();
                report.add(format!("name {}", names.join(", ")), format!("there is no image {image}"));
            }
        }
        drop(lock);
        for id in &images {
            report.images += 1;
            if let Err(reason) = self.verify_image(id) {
                report.add(format!("image {id}"), reason);
            }
        }
        for id in &layers {
            report.layers += 1;
            if let Err(reason) = self.verify_layer(id, deep) {
                report.add(format!("layer {id}"), reason);
            }
        }
        Ok(report)
    }

    /// The ids of all layers.
    pub(super) fn layer_ids(&self) -> io::Result<Vec<DiffId>> {
        let mut ids = Vec::new();
        for entry in std::fs::read_dir(self.layers())? {
            let name = entry?.file_name();
            ids.extend(name.to_str().and_then(|it| DiffId::parse(&format!("sha256:{it}"))));
        }
        ids.sort();
        Ok(ids)
    }

    fn verify_image(&self, id: &ImageId) -> Result<(), String> {
        let text = |err: StoreError| err.to_string();
        let bytes = self.configuration(id).map_err(text)?.ok_or("its configuration is missing")?;
        let found = image_id(&bytes);
        if found != *id {
            return Err(format!("its configuration has the digest {found}"));
        }
        self.image_record(id).map_err(|err| err.to_string())?.ok_or("its record is missing")?;
        for layer in Configuration::parse(&bytes).map_err(|err| text(err.into()))?.rootfs.diff_ids {
            if !self.layer_dir(&layer).join(FILES).is_dir() {
                return Err(format!("its layer {layer} is missing"));
            }
        }
        Ok(())
    }

    fn verify_layer(&self, id: &DiffId, deep: bool) -> Result<(), String> {
        let record = self.layer(id).map_err(|err| err.to_string())?.ok_or("its record is missing")?;
        if record.diff_id != *id {
            return Err(format!("its record is that of {}", record.diff_id));
        }
        let (files, overlay) = (self.layer_dir(id).join(FILES), self.overlay());
        let difference = self.privileges.run_as_owner(|| difference(&record, &files, overlay, deep));
        match difference.map_err(|err| format!("its files cannot be read: {err}"))? {
            None => Ok(()),
            Some(reason) => Err(reason),
        }
    }
}

/// Returns how files differ from their record. Runs as their owner.
fn difference(record: &LayerRecord, files: &Path, overlay: OverlayForm, deep: bool) -> io::Result<Option<String>> {
    let root = std::fs::File::open(files)?;
    let known = &record.digests;
    let contents = if deep && known.content.is_some() { ContentDigests::Read } else { ContentDigests::None };
    let mut sink = DigestSink::new(contents);
    walk(root.as_fd(), &WalkOptions::all(overlay), &mut sink)?;
    let found = sink.finish();
    if found.entries != known.entries || found.size_bytes != known.size_bytes {
        let (entries, bytes) = (found.entries, found.size_bytes);
        return Ok(Some(format!(
            "it has {entries} entries and {bytes} bytes instead of {} and {}",
            known.entries, known.size_bytes
        )));
    }
    if found.metadata != known.metadata {
        return Ok(Some("its files' names, owners, modes, times or attributes were changed".into()));
    }
    let is_same = match (deep, &known.content) {
        (false, _) => true,
        (true, Some(content)) => found.content.as_ref() == Some(content),
        // The digest of a layer that was created here is that of its canonical archive.
        (true, None) => {
            // The size needs no limit: it was compared with the record above.
            let source = PackSource { files: &root, overlay, max_bytes: u64::MAX };
            CanonicalDigest::from_files(source)?.digest == record.diff_id
        }
    };
    Ok((!is_same).then(|| "its files' content was changed".into()))
}

impl DamageReport {
    fn add(&mut self, object: String, reason: String) {
        self.damage.push(Damage { object, reason });
    }
}
