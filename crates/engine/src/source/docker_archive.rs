//! Archives of `docker save`, as Docker, Podman and builders write them.

use async_trait::async_trait;
use coracle_runtime::archive::index::TarIndex;
use coracle_runtime::archive::oci::{
    ConfigurationSummary, DOCKER_MANIFEST_FILE, MAX_CONFIG, MAX_LAYERS, MAX_MANIFEST, Platform, SavedImage, parse_json,
};

use super::error::escaped;
use super::layout::{read_limited, unblock};
use super::{ImageSource, LayerBlob, Result, Scratch, SourceError, SourceImage, SourceLayer};

/// One image of an archive. Its layers have no digests of their own: the store checks their uncompressed content.
#[derive(Clone, Debug)]
pub(crate) struct DockerArchive {
    index: TarIndex,
    configuration: Vec<u8>,
    summary: ConfigurationSummary,
    /// Paths of the layers' archives, bottom first.
    layers: Vec<String>,
}

impl DockerArchive {
    /// The image of that name, or the only one.
    ///
    /// # Errors
    /// [`SourceError::Document`], [`SourceError::NotFound`].
    pub(crate) fn open(index: TarIndex, name: Option<&str>) -> Result<Self> {
        let manifest = read_file(&index, DOCKER_MANIFEST_FILE, MAX_MANIFEST)?;
        let image = select(parse_json("manifest", &manifest)?, name)?;
        if image.layers.len() > MAX_LAYERS {
            return Err(SourceError::malformed("manifest", &format_args!("it has more than {MAX_LAYERS} layers")));
        }
        let configuration = read_file(&index, &image.config, MAX_CONFIG)?;
        let summary = ConfigurationSummary::parse(&configuration, image.layers.len())?;
        Ok(Self { index, configuration, summary, layers: image.layers })
    }
}

fn select(mut images: Vec<SavedImage>, name: Option<&str>) -> Result<SavedImage> {
    let named = |it: &SavedImage| it.repo_tags.iter().flatten().any(|it| Some(it.as_str()) == name);
    let at = match images.iter().position(named) {
        Some(at) => at,
        None if images.len() == 1 => 0,
        None => {
            let what = name.unwrap_or("single image").to_owned();
            return Err(SourceError::NotFound { place: "the archive".into(), what });
        }
    };
    Ok(images.swap_remove(at))
}

fn read_file(index: &TarIndex, path: &str, limit: u64) -> Result<Vec<u8>> {
    let file = index.find(path).ok_or_else(|| absent(path))?;
    let size = file.size();
    read_limited(file, size, path, limit)
}

fn absent(path: &str) -> SourceError {
    SourceError::NotFound { place: "the archive".into(), what: escaped(path) }
}

#[async_trait]
impl ImageSource for DockerArchive {
    async fn resolve(&self, platform: &Platform) -> Result<SourceImage> {
        platform.check(&self.summary.platform)?;
        let layers = self.summary.diff_ids.iter().cloned().map(|diff_id| SourceLayer { diff_id, blob: None }).collect();
        Ok(SourceImage { configuration: self.configuration.clone(), layers, digest: None })
    }

    async fn fetch_layer(&self, layer: &SourceLayer, scratch: &Scratch) -> Result<LayerBlob> {
        let at = self.summary.diff_ids.iter().position(|it| *it == layer.diff_id);
        let path = at.map(|at| self.layers[at].clone()).ok_or_else(|| absent(layer.diff_id.as_str()))?;
        let (index, scratch) = (self.index.clone(), scratch.clone());
        unblock(move || LayerBlob::copy(index.find(&path).ok_or_else(|| absent(&path))?, &scratch)).await
    }
}
