//! From the documents of an archive to its image.

use std::collections::HashSet;
use std::io::Read as _;

use serde::Deserialize;
use serde_json::{Map, Value};

use super::{ArchiveLayer, ImageArchive, ImageArchiveError, Result};
use crate::index::TarIndex;
use crate::oci::{
    ConfigurationSummary, DOCKER_MANIFEST_FILE, Descriptor, LAYOUT_INDEX, LAYOUT_MARKER, LayerEncoding, MAX_CONFIG,
    MAX_LAYERS, ManifestDocument, OCI_INDEX, Platform, SavedImage, blob_path, parse_json,
};
use crate::tar::FileSpan;

/// Indexes within indexes.
const MAX_DEPTH: usize = 3;

/// Fields of the image specification. Docker adds what its container was made with, labels among it.
const CONFIGURATION_FIELDS: [&str; 10] =
    ["created", "author", "architecture", "os", "os.version", "os.features", "variant", "config", "rootfs", "history"];

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LayoutMarker {
    image_layout_version: String,
}

impl ImageArchive {
    pub(super) fn from_layout(index: &TarIndex) -> Result<Self> {
        let not_oci = |why: &str| ImageArchiveError::NotOci(why.into());
        let marker = index.find(LAYOUT_MARKER).ok_or_else(|| not_oci("it has no `oci-layout`"))?;
        let marker: LayoutMarker = parse_json("oci-layout", &document(marker)?)?;
        if marker.image_layout_version != "1.0.0" {
            return Err(not_oci("its layout has another version than 1.0.0"));
        }
        let root = index.find(LAYOUT_INDEX).ok_or_else(|| not_oci("it has no `index.json`"))?;
        let chosen = choose(index, manifests_of(&document(root)?, OCI_INDEX)?)?;
        let manifest = blob_document(index, &chosen)?;
        let ManifestDocument::Manifest(manifest) = ManifestDocument::parse(&manifest, &chosen.media_type)? else {
            return Err(ImageArchiveError::malformed("index", "it has too many levels"));
        };
        let configuration = blob_document(index, &manifest.config)?;
        let layer = |it: &Descriptor| -> Result<ArchiveLayer> {
            let encoding = LayerEncoding::from_media_type(&it.media_type).expect("the manifest was checked");
            Ok(ArchiveLayer { content: blob(index, it)?, digest: it.digest.clone(), encoding })
        };
        Self::checked(&configuration, |_| manifest.layers.iter().map(layer).collect())
    }

    /// The one image of an archive without a layout. The digest of a layer is that of its uncompressed tar.
    pub(super) fn from_saved(index: &TarIndex) -> Result<Self> {
        let manifest = index.find(DOCKER_MANIFEST_FILE);
        let manifest = manifest.ok_or_else(|| ImageArchiveError::NotOci("it has no manifest".into()))?;
        let images: Vec<SavedImage> = parse_json("manifest", &document(manifest)?)?;
        let [image] = images.as_slice() else { return Err(ImageArchiveError::Several(images.len())) };
        let find = |path: &str| {
            let missing = || ImageArchiveError::malformed("manifest", format_args!("no `{}`", path.escape_debug()));
            index.find(path).ok_or_else(missing)
        };
        Self::checked(&document(find(&image.config)?)?, |summary| {
            summary.check_layers(image.layers.len())?;
            let layers = image.layers.iter().zip(&summary.diff_ids);
            let layer = |(path, digest): (&String, &crate::Sha256Digest)| {
                Ok(ArchiveLayer { content: find(path)?, digest: digest.clone(), encoding: LayerEncoding::Plain })
            };
            layers.map(layer).collect()
        })
    }

    fn checked(
        configuration: &[u8],
        layers: impl FnOnce(&ConfigurationSummary) -> Result<Vec<ArchiveLayer>>,
    ) -> Result<Self> {
        let summary: ConfigurationSummary = parse_json("configuration", configuration)?;
        Platform::of_this_machine().check(&summary.platform)?;
        let layers = layers(&summary)?;
        if layers.len() > MAX_LAYERS {
            return Err(ImageArchiveError::malformed("manifest", format_args!("more than {MAX_LAYERS} layers")));
        }
        summary.check_layers(layers.len())?;
        let mut configuration: Map<String, Value> = parse_json("configuration", configuration)?;
        configuration.retain(|name, _| CONFIGURATION_FIELDS.contains(&name.as_str()));
        Ok(Self { configuration, layers })
    }
}

fn manifests_of(bytes: &[u8], media_type: &str) -> Result<Vec<Descriptor>> {
    match ManifestDocument::parse(bytes, media_type)? {
        ManifestDocument::Index(manifests) => Ok(manifests),
        ManifestDocument::Manifest(_) => Err(ImageArchiveError::malformed("index", "it is a manifest")),
    }
}

/// The one image for this machine. Manifests that say no platform may be.
fn choose(index: &TarIndex, root: Vec<Descriptor>) -> Result<Descriptor> {
    let (mut all, mut level) = (Vec::new(), root);
    for _ in 0..MAX_DEPTH {
        let (indexes, manifests): (Vec<_>, Vec<_>) = level.into_iter().partition(Descriptor::is_index);
        all.extend(manifests);
        level = Vec::new();
        for it in indexes {
            level.extend(manifests_of(&blob_document(index, &it)?, &it.media_type)?);
        }
    }
    // An image has an entry for each of its names.
    let mut seen = HashSet::new();
    all.retain(|it| seen.insert(it.digest.clone()));
    let own = Platform::of_this_machine();
    let fits = |it: &&Descriptor| it.platform.as_ref().is_none_or(|platform| own.check(platform).is_ok());
    let fitting: Vec<_> = all.iter().filter(fits).collect();
    match fitting.as_slice() {
        [one] => Ok((*one).clone()),
        [] if all.is_empty() => Err(ImageArchiveError::malformed("index", "it names no image")),
        [] => Err(own.unavailable(&all).into()),
        several => Err(ImageArchiveError::Several(several.len())),
    }
}

/// A blob of the length that its descriptor says.
fn blob(index: &TarIndex, it: &Descriptor) -> Result<FileSpan> {
    let missing = || ImageArchiveError::malformed("manifest", format_args!("no blob {}", it.digest));
    let span = index.find(&blob_path(&it.digest)).ok_or_else(missing)?;
    if span.size() == it.size { Ok(span) } else { Err(ImageArchiveError::Damaged(it.digest.hex().to_owned())) }
}

/// A blob that is a document, whose content has to be what it is named by.
fn blob_document(index: &TarIndex, it: &Descriptor) -> Result<Vec<u8>> {
    let bytes = document(blob(index, it)?)?;
    it.check("document", &bytes)?;
    Ok(bytes)
}

fn document(mut span: FileSpan) -> Result<Vec<u8>> {
    if span.size() > MAX_CONFIG {
        let why = format_args!("a document of more than {MAX_CONFIG} bytes");
        return Err(ImageArchiveError::malformed("manifest", why));
    }
    let mut bytes = Vec::new();
    span.read_to_end(&mut bytes)?;
    Ok(bytes)
}
