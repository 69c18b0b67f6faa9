//! Images as archives that other engines load: an OCI layout with the manifest of `docker save` beside it.
//!
//! A layer is written as its canonical archive. Where that is not the archive it came by, its digest differs, and so does
//! the exported image's id.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::fd::AsFd as _;

use coracle_runtime::ImageId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::configuration::{Configuration, parse_object};
use super::file_sizes::FileSizes;
use super::layer::FILES;
use super::tree::{EntryPosition, OverlayForm, TreeSink, WalkOptions, walk};
use super::unpack::UnpackError;
use super::{DiffId, LayerLimits, LayerRefusal, Result, Store, StoreError};
use crate::archive::{Entry, EntryKind, FileTime, TarWriter};

/// A layer's canonical archive.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct CanonicalDigest {
    pub(super) digest: DiffId,
    pub(super) bytes: u64,
}

/// Writes what it visits as an archive.
#[derive(Debug)]
struct PackSink<W> {
    tar: TarWriter<W>,
    buffer: Vec<u8>,
    sizes: FileSizes,
}

/// Hashes and counts.
#[derive(Debug, Default)]
pub(super) struct HashWriter {
    hash: Sha256,
    bytes: u64,
}

impl HashWriter {
    pub(super) fn finish(self) -> CanonicalDigest {
        CanonicalDigest { digest: DiffId::finish(self.hash), bytes: self.bytes }
    }
}

impl Write for HashWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.hash.update(bytes);
        self.bytes += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<W: Write> TreeSink for PackSink<W> {
    fn take_entry(&mut self, entry: &Entry, at: EntryPosition<'_>) -> io::Result<()> {
        self.sizes.add(entry).map_err(UnpackError::from)?;
        self.tar.write_entry(entry)?;
        if !matches!(entry.kind, EntryKind::File { size: 1.., .. }) {
            return Ok(());
        }
        let mut file = at.open()?;
        loop {
            match file.read(&mut self.buffer)? {
                0 => return Ok(()),
                count => self.tar.write_content(&self.buffer[..count])?,
            }
        }
    }
}

/// A directory of which a canonical archive is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct PackSource<'a> {
    pub(super) files: &'a File,
    pub(super) overlay: OverlayForm,
    /// Bytes of all files, holes included.
    pub(super) max_bytes: u64,
}

/// Writes a directory's canonical archive.
///
/// # Errors
/// A [`LayerRefusal`] within the error of a directory that is too large.
pub(super) fn pack<W: Write>(source: PackSource<'_>, out: W) -> io::Result<W> {
    let PackSource { files, overlay, max_bytes } = source;
    let mut sink =
        PackSink { tar: TarWriter::new(out), buffer: vec![0; 256 * 1024], sizes: FileSizes::up_to(max_bytes) };
    walk(files.as_fd(), &WalkOptions::all(overlay), &mut sink)?;
    sink.tar.finish()
}

impl CanonicalDigest {
    pub(super) fn from_files(source: PackSource<'_>) -> io::Result<Self> {
        pack(source, HashWriter::default()).map(HashWriter::finish)
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
            let archive = Archive { configuration: Value::Object(configuration).to_string(), names, layers: &digests };
            let mut tar = archive.write_head(BufWriter::new(out))?;
            for (source, digest) in sources.into_iter().zip(&digests) {
                tar.write_entry(&file(blob_path(&digest.digest), digest.bytes))?;
                pack(source, ContentWriter(&mut tar))?;
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

/// Everything of the archive but the layers.
struct Archive<'a> {
    configuration: String,
    names: Vec<String>,
    layers: &'a [CanonicalDigest],
}

impl Archive<'_> {
    fn write_head<W: Write>(&self, out: W) -> io::Result<TarWriter<W>> {
        let configuration = Blob::new(self.configuration.clone());
        let layers: Vec<_> = self.layers.iter().map(layer_descriptor).collect();
        let manifest = Blob::new(
            json!({
                "schemaVersion": 2,
                "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": configuration.descriptor("application/vnd.oci.image.config.v1+json"),
                "layers": layers,
            })
            .to_string(),
        );
        let index = json!({ "schemaVersion": 2, "manifests": self.index(&manifest) }).to_string();
        let paths: Vec<_> = self.layers.iter().map(|it| blob_path(&it.digest)).collect();
        let docker = json!([{ "Config": blob_path(&configuration.digest), "RepoTags": self.names, "Layers": paths }])
            .to_string();
        let mut tar = TarWriter::new(out);
        for (path, content) in [
            ("oci-layout".to_owned(), r#"{"imageLayoutVersion":"1.0.0"}"#),
            (blob_path(&configuration.digest), &configuration.content),
            (blob_path(&manifest.digest), &manifest.content),
            ("index.json".to_owned(), &index),
            ("manifest.json".to_owned(), &docker),
        ] {
            tar.write_entry(&file(path, content.len() as u64))?;
            tar.write_content(content.as_bytes())?;
        }
        Ok(tar)
    }

    /// The manifest once for each name; once without one if the image has none.
    fn index(&self, manifest: &Blob) -> Vec<Value> {
        let plain = manifest.descriptor("application/vnd.oci.image.manifest.v1+json");
        let named = |name: &String| {
            let mut it = plain.clone();
            let tag = name.rsplit_once(':').map_or("latest", |it| it.1);
            it["annotations"] = json!({ "io.containerd.image.name": name, "org.opencontainers.image.ref.name": tag });
            it
        };
        if self.names.is_empty() { vec![plain] } else { self.names.iter().map(named).collect() }
    }
}

/// A small file of the layout, named by its digest.
struct Blob {
    content: String,
    digest: DiffId,
}

impl Blob {
    fn new(content: String) -> Self {
        let digest = DiffId::from_content(content.as_bytes());
        Self { content, digest }
    }

    fn descriptor(&self, media_type: &str) -> Value {
        json!({ "mediaType": media_type, "digest": self.digest, "size": self.content.len() })
    }
}

fn layer_descriptor(layer: &CanonicalDigest) -> Value {
    json!({ "mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer.digest, "size": layer.bytes })
}

fn blob_path(digest: &DiffId) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn file(path: String, size: u64) -> Entry {
    let kind = EntryKind::File { size, extents: None };
    Entry { path: path.into_bytes(), kind, mode: 0o644, uid: 0, gid: 0, mtime: FileTime::default(), xattrs: Vec::new() }
}

/// Writes into the present entry of an archive.
struct ContentWriter<'a, W>(&'a mut TarWriter<W>);

impl<W: Write> Write for ContentWriter<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write_content(bytes).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
