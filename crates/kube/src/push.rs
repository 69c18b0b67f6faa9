//! Pushes images that were built on this host to the registry of the nodes.
//!
//! **Invariant:** a layer is pushed only if it has the digest in its archive.

use std::fs::File;
use std::io::{self, Seek as _};

use coracle_archive::image::{ArchiveLayer, ImageArchive};
use coracle_archive::oci::{ImageError, LayerEncoding};
use coracle_archive::{HashingStream, Sha256Digest};
use coracle_runtime::Image;
use coracle_types::{Capability, Error, ImageRef, Result};
use flate2::Compression;
use flate2::write::GzEncoder;
use oci_client::manifest::{IMAGE_CONFIG_MEDIA_TYPE, OCI_IMAGE_MEDIA_TYPE, OciDescriptor, OciImageManifest};

use crate::cluster::Cluster;
use crate::error::refusal;
use crate::images::{LOOK, built_name, find_image};
use crate::unsupported::unsupported;

/// A layer as it is pushed.
struct PackedLayer {
    file: File,
    descriptor: OciDescriptor,
}

/// Pushes the image of an archive with a name in the configured registry.
///
/// # Errors
/// [`Error::Unsupported`] without a registry; [`Error::Engine`] if it refuses.
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
    let config =
        descriptor(IMAGE_CONFIG_MEDIA_TYPE, &Sha256Digest::from_content(&configuration), configuration.len() as u64);
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

/// Compresses a layer, since registries and nodes are reached over a network.
fn pack(layer: &ArchiveLayer) -> Result<PackedLayer> {
    let mut packed = HashingStream::new(tempfile::tempfile().map_err(cannot_write)?);
    let encoding = match layer.encoding() {
        LayerEncoding::Plain => {
            let mut encoder = GzEncoder::new(&mut packed, Compression::fast());
            layer.copy_to(&mut encoder).map_err(cannot_copy)?;
            encoder.finish().map_err(cannot_write)?;
            LayerEncoding::Gzip
        }
        encoding => {
            layer.copy_to(&mut packed).map_err(cannot_copy)?;
            encoding
        }
    };
    let (mut file, digest, size) = packed.finish();
    file.rewind().map_err(cannot_write)?;
    Ok(PackedLayer { file, descriptor: descriptor(encoding.media_type(), &digest, size) })
}

fn descriptor(media_type: &str, digest: &Sha256Digest, size: u64) -> OciDescriptor {
    OciDescriptor {
        media_type: media_type.to_owned(),
        digest: digest.to_string(),
        size: i64::try_from(size).unwrap_or(i64::MAX),
        ..OciDescriptor::default()
    }
}

fn cannot_copy(err: ImageError) -> Error {
    match err {
        ImageError::Io(source) => cannot_write(source),
        other => failed(&other),
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
    use std::io::{Read as _, Write as _};

    use super::*;

    /// An archive of one layer, optionally with damaged bytes.
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
    fn a_layer_is_compressed_and_its_digest_is_that_of_the_pushed_bytes() {
        let packed = pack(&layer(false)).unwrap();
        let mut bytes = Vec::new();
        (&packed.file).read_to_end(&mut bytes).unwrap();
        assert_eq!(packed.descriptor.size, i64::try_from(bytes.len()).unwrap());
        assert_eq!(packed.descriptor.digest, Sha256Digest::from_content(&bytes).to_string());
        let mut plain = Vec::new();
        flate2::read::GzDecoder::new(&bytes[..]).read_to_end(&mut plain).unwrap();
        assert_eq!(plain, [7; 4096]);
    }

    #[test]
    fn a_damaged_layer_is_not_pushed() {
        assert!(matches!(pack(&layer(true)), Err(Error::Engine { .. })));
    }
}
