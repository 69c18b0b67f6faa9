//! Exports images as archives that other engines load: an OCI layout, plus the manifest of `docker save`.
//!
//! A layer is written as its canonical archive. If the original archive was different, so are the layer's digest and the id
//! of the exported image.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Sink, Write};
use std::os::fd::AsFd as _;

use coracle_archive::HashingStream;
use coracle_archive::oci::{Configuration, ImageDocuments, ImageName, LayerEncoding, WrittenLayer};
use coracle_archive::tar::{EntryKind, TarEntry, Writer};
use coracle_types::ImageId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::configuration::parse_object;
use super::file_sizes::FileSizes;
use super::layer::FILES;
use super::tree::{EntryPosition, OverlayForm, TreeSink, WalkOptions, walk};
use super::unpack::UnpackError;
use super::{DiffId, LayerLimits, LayerRefusal, Result, Store, StoreError};

/// A layer's canonical archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CanonicalDigest {
    pub(super) digest: DiffId,
    pub(super) bytes: u64,
}

/// Writes the visited entries as an archive.
#[derive(Debug)]
struct PackSink<W> {
    tar: Writer<W>,
    buffer: Vec<u8>,
    sizes: FileSizes,
}

/// Hashes and counts.
pub(super) type HashWriter = HashingStream<Sink>;

impl From<HashWriter> for CanonicalDigest {
    fn from(hashed: HashWriter) -> Self {
        let (_, digest, bytes) = hashed.finish();
        Self { digest, bytes }
    }
}

impl<W: Write> TreeSink for PackSink<W> {
    fn take_entry(&mut self, entry: &TarEntry, at: EntryPosition<'_>) -> io::Result<()> {
        self.sizes.add(entry).map_err(UnpackError::from)?;
        self.tar.write_entry(entry)?;
        if !matches!(entry.kind, EntryKind::File { size: 1.., .. }) {
            return Ok(());
        }
        let mut file = at.open()?;
        loop {
            match file.read(&mut self.buffer)? {
                0 => return Ok(()),
                count => self.tar.write_all(&self.buffer[..count])?,
            }
        }
    }
}

/// A directory to write as a canonical archive.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackSource<'a> {
    pub(super) files: &'a File,
    pub(super) overlay: OverlayForm,
    /// Maximum size of all files, including holes.
    pub(super) max_bytes: u64,
}

/// Writes a directory's canonical archive.
///
/// # Errors
/// A [`LayerRefusal`] within the error if the directory is too large.
pub(super) fn pack<W: Write>(source: PackSource<'_>, out: W) -> io::Result<W> {
    let PackSource { files, overlay, max_bytes } = source;
    let mut sink = PackSink { tar: Writer::new(out), buffer: vec![0; 256 * 1024], sizes: FileSizes::up_to(max_bytes) };
    walk(files.as_fd(), &WalkOptions::all(overlay), &mut sink)?;
    sink.tar.finish()
}

impl CanonicalDigest {
    pub(super) fn from_files(source: PackSource<'_>) -> io::Result<Self> {
        pack(source, HashWriter::new(io::sink())).map(Self::from)
    }
}

impl Store {
    /// Writes an image as an archive that other engines load.
    pub(crate) fn export(&self, image: &ImageId, out: &File) -> Result<()> {
        let failed = || StoreError::io("cannot export an image");
        let held = self.hold(image)?.ok_or_else(|| StoreError::NoSuchImage(image.clone()))?;
        let missing = || StoreError::NoSuchImage(image.clone());
        let mut configuration = parse_object(&self.configuration(image)?.ok_or_else(missing)?)?;
        let names = self.image(image)?.ok_or_else(missing)?.tags;
        let layers = Configuration::parse(&self.configuration(image)?.ok_or_else(missing)?)?.rootfs.diff_ids;
        let dirs: Vec<_> = layers.iter().map(|it| self.layer_dir(it).join(FILES)).collect();
        let (overlay, max_bytes) = (self.overlay(), LayerLimits::default().bytes);
        let work = || {
            let files: Vec<_> = dirs.iter().map(File::open).collect::<io::Result<_>>()?;
            let sources: Vec<_> = files.iter().map(|files| PackSource { files, overlay, max_bytes }).collect();
            let digests: Vec<_> =
                sources.iter().map(|it| CanonicalDigest::from_files(*it)).collect::<io::Result<_>>()?;
            configuration["rootfs"]["diff_ids"] = digests.iter().map(|it| json!(it.digest)).collect();
            let layer = |it: &CanonicalDigest| WrittenLayer {
                digest: it.digest.clone(),
                size: it.bytes,
                encoding: LayerEncoding::Plain,
            };
            let layers: Vec<_> = digests.iter().map(layer).collect();
            let configuration = Value::Object(configuration).to_string().into_bytes();
            let names = names.into_iter().map(image_name).collect();
            let mut tar = Writer::new(BufWriter::new(out));
            ImageDocuments { configuration, layers: layers.clone(), names }.write(&mut tar)?;
            for (source, layer) in sources.into_iter().zip(&layers) {
                tar.write_entry(&layer.entry())?;
                pack(source, &mut tar)?;
            }
            tar.finish()?.flush()
        };
        let done = self.privileges.run_as_owner(|| match work() {
            Ok(()) => Ok(Ok(())),
            Err(err) => err.downcast::<LayerRefusal>().map(Err),
        });
        drop(held);
        done.map_err(failed())?.map_err(|refusal| StoreError::Refused { layer: "of the image".into(), refusal })
    }
}

/// Returns the name for `docker save` and the tag for OCI layouts, in which Podman and others expect only the tag.
fn image_name(name: String) -> ImageName {
    let reference = name.rsplit_once(':').map_or("latest", |(_, tag)| tag).to_owned();
    ImageName { docker: name.clone(), containerd: name, reference }
}
