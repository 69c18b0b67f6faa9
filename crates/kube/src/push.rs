//! Images that were built on this machine, pushed where the nodes find them.
//!
//! **Invariant:** a layer is pushed only if it has the digest that its archive names it by.

use std::fs::File;
use std::io::{self, Read, Seek as _, Write};

use coracle_runtime::host::image_archive::{ArchiveLayer, ImageArchive};
use coracle_runtime::{Capability, Error, Image, ImageRef, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use oci_client::manifest::{IMAGE_CONFIG_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};
use sha2::{Digest as _, Sha256};

use crate::cluster::Cluster;
use crate::error::refusal;
use crate::images::{LOOK, built_name, find_image};
use crate::unsupported::unsupported;

const GZIP_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";

/// Bytes of one read.
const PART: usize = 256 << 10;

/// A layer as it is pushed.
struct PackedLayer {
    file: File,
    descriptor: OciDescriptor,
}

/// Pushes the image of an archive under a name of the configured registry.
///
/// # Errors
/// [`Error::Unsupported`] without a registry; [`Error::Engine`] when it refuses.
pub(crate) async fn push(cluster: &Cluster, archive: File, name: &ImageRef) -> Result<Image> {
    let Some(target) = built_name(&cluster.settings, name)? else { return Err(unsupported(Capability::Build)) };
    let archive = blocking(|| ImageArchive::open_saved(archive).map_err(|err| failed(&err))).await?;
    let mut layers = Vec::new();
    for layer in archive.layers() {
        let layer = layer.clone();
        let packed = blocking(move || pack(&layer)).await?;
        tracing::debug!(image = %target, layer = packed.descriptor.digest, bytes = packed.descriptor.size, "push a layer");
        cluster.registry.push_blob(&target, packed.file, &packed.descriptor).await?;
        layers.push(packed.descriptor);
    }
    let configuration = serde_json::to_vec(archive.configuration()).map_err(|err| failed(&err))?;
    let config = descriptor(IMAGE_CONFIG_MEDIA_TYPE, &Sha256::digest(&configuration), configuration.len() as u64);
    cluster.registry.push_bytes(&target, configuration, &config).await?;
    let media_type = Some(OCI_IMAGE_MEDIA_TYPE.to_owned());
    let manifest = OciImageManifest { media_type, config, layers, ..OciImageManifest::default() };
    cluster.registry.push_manifest(&target, manifest).await?;
    let pushed = find_image(cluster, &target, LOOK).await?;
    pushed.ok_or_else(|| failed(&"the registry does not have it after it was pushed"))
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> Result<T> + Send + 'static) -> Result<T> {
    tokio::task::spawn_blocking(work).await.map_err(|err| failed(&err))?
}

/// Registries and nodes are elsewhere: a layer that is not compressed is, on its way.
fn pack(layer: &ArchiveLayer) -> Result<PackedLayer> {
    let file = tempfile::tempfile().map_err(cannot_write)?;
    let mut packed = HashedFile { file, hash: Sha256::new(), size: 0 };
    let media_type = if layer.is_plain() {
        let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
        copy(layer, &mut encoder)?;
        encoder.finish().map_err(cannot_write)?;
        GZIP_LAYER
    } else {
        copy(layer, &mut packed)?;
        layer.media_type()
    };
    let HashedFile { mut file, hash, size } = packed;
    file.rewind().map_err(cannot_write)?;
    Ok(PackedLayer { file, descriptor: descriptor(media_type, &hash.finalize(), size) })
}

fn copy(layer: &ArchiveLayer, into: &mut impl Write) -> Result<()> {
    let (mut content, mut hash, mut part) = (layer.content(), Sha256::new(), vec![0; PART]);
    loop {
        match content.read(&mut part).map_err(cannot_write)? {
            0 => break,
            count => {
                hash.update(&part[..count]);
                into.write_all(&part[..count]).map_err(cannot_write)?;
            }
        }
    }
    match hex::encode(hash.finalize()) == layer.digest() {
        true => Ok(()),
        false => Err(failed(&format_args!("its layer sha256:{} is damaged", layer.digest()))),
    }
}

/// A file, and the digest of what was written to it.
struct HashedFile {
    file: File,
    hash: Sha256,
    size: u64,
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hash.update(&bytes[..count]);
        self.size += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

fn descriptor(media_type: &str, digest: &[u8], size: u64) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: format!("sha256:{}", hex::encode(digest)),
        size: i64::try_from(size).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    }
}

fn failed(why: &dyn std::fmt::Display) -> Error {
    refusal("push", &why.to_string())
}

fn cannot_write(source: io::Error) -> Error {
    Error::Host { what: "cannot prepare a layer for the registry".into(), source }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An archive of one layer, whose bytes are damaged if asked for.
    fn layer(damaged: bool) -> ArchiveLayer {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let configuration = serde_json::json!({ "architecture": "amd64", "os": "linux" });
        let image = ImageArchive::from_layer(configuration.as_object().unwrap().clone(), file.try_clone().unwrap());
        if damaged {
            std::os::unix::fs::FileExt::write_all_at(&file, b"x", 0).unwrap();
        }
        image.unwrap().layers()[0].clone()
    }

    #[test]
    fn a_layer_is_compressed_and_named_by_what_is_pushed() {
        let packed = pack(&layer(false)).unwrap();
        let mut bytes = Vec::new();
        (&packed.file).read_to_end(&mut bytes).unwrap();
        assert_eq!(packed.descriptor.size, i64::try_from(bytes.len()).unwrap());
        assert_eq!(packed.descriptor.digest, format!("sha256:{}", hex::encode(Sha256::digest(&bytes))));
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, [7; 4096]);
    }

    #[test]
    fn a_damaged_layer_is_not_pushed() {
        assert!(matches!(pack(&layer(true)), Err(Error::Engine { .. })));
    }
}
