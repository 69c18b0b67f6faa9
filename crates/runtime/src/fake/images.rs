//! Images of the fake engine and the registry it can reach.

mod archive;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Seek;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_archive::tar::Reader;
use coracle_types::{Capability, EngineKind, Error, Excerpt, ImageId, ImageRef, Result};
use tokio::time::{Instant, sleep_until};

use super::{EngineState, FakeRuntime, Verb, arch, now, off_thread, random_id, refused};
use crate::{Image, ImageBuild, ImageCommit, ImageConfig, ImageImport, ImageStore, LabelFilter};

/// The image that a fresh fake engine holds; `busybox` finds it too.
pub const LOCAL_IMAGE: &str = "docker.io/library/busybox:latest";

/// An image, and the tar it was imported from. One without a tar has the files of [`LOCAL_IMAGE`].
#[derive(Clone, Debug)]
pub(super) struct StoredImage {
    pub(super) image: Image,
    pub(super) layer: Option<Arc<File>>,
}

pub(super) fn local() -> StoredImage {
    let env = vec!["PATH=/usr/local/bin:/usr/bin:/bin".to_owned()];
    StoredImage { image: image(Some(LOCAL_IMAGE.to_owned()), env, 0), layer: None }
}

fn image(tag: Option<String>, env: Vec<String>, size_bytes: u64) -> Image {
    Image {
        id: ImageId::parse(format!("sha256:{}", random_id())).expect("64 hex digits are an id"),
        tags: tag.into_iter().collect(),
        digest: None,
        labels: Default::default(),
        env,
        config: ImageConfig::default(),
        volumes: Vec::new(),
        arch: arch().into(),
        size_bytes,
        created: now(),
    }
}

impl FakeRuntime {
    /// A registry has this image from now on, so a pull of it succeeds.
    pub fn registry_has(&self, image: &ImageRef) {
        self.with(|state| state.registry.insert(image.completed().to_string()));
    }

    /// Sets the duration of a pull, successful or not. It uses tokio's clock, so paused time makes it free.
    pub fn pulls_take(&self, duration: Duration) {
        self.with(|state| state.pull_takes = duration);
    }
}

#[async_trait]
impl ImageStore for FakeRuntime {
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        self.enter(Verb::FindImage).await?;
        Ok(self.with(|state| names.iter().filter_map(|it| state.image(it)).cloned().collect()))
    }

    async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        self.enter(Verb::ListImages).await?;
        Ok(self.with(|state| {
            state.images.iter().map(|it| &it.image).filter(|it| filter.admits(&it.labels)).cloned().collect()
        }))
    }

    async fn pull_image(&self, name: &ImageRef, deadline: Duration) -> Result<Image> {
        self.enter(Verb::Pull).await?;
        let begun = Instant::now();
        let takes = self.with(|state| state.pull_takes);
        sleep_until(begun + takes.min(deadline)).await;
        if takes > deadline {
            return Err(Error::TimedOut { verb: Verb::Pull.as_str(), after: deadline });
        }
        let completed = name.completed();
        if !self.with(|state| state.registry.contains(completed.as_str())) {
            let excerpt = Excerpt::from_bytes(format!("{completed}: not found in the fake's registry").as_bytes());
            return Err(Error::PullFailed { image: name.clone(), excerpt });
        }
        let stored = StoredImage {
            image: Image {
                digest: Some(format!("sha256:{}", random_id())),
                ..image(Some(completed.to_string()), vec![], 0)
            },
            layer: None,
        };
        Ok(self.with(|state| state.add_image(stored)))
    }

    async fn import_image(&self, import: ImageImport) -> Result<Image> {
        self.enter(Verb::Import).await?;
        let ImageImport { tar, tag, env, labels } = import;
        let (layer, size) = off_thread(move || keep(tar)).await?;
        let env = env.into_iter().map(|(name, value)| format!("{name}={value}")).collect();
        let mut image = image(Some(tag.completed().to_string()), env, size);
        image.labels = labels.into_iter().collect();
        Ok(self.with(|state| state.add_image(StoredImage { image, layer: Some(Arc::new(layer)) })))
    }

    /// The files lie in one layer, those of the container's own image among them.
    async fn commit_image(&self, commit: &ImageCommit) -> Result<Image> {
        self.enter(Verb::Commit).await?;
        let ImageCommit { container, tag, labels, config } = commit.clone();
        let (files, seen) =
            self.with(|state| state.machine(&container).map(|it| (it.files.clone(), it.seen.clone())))?;
        let (layer, size) = off_thread(move || files.layer()).await?;
        let mut image = Image { config, ..image(tag.map(|it| it.completed().to_string()), seen.env, size) };
        image.labels = seen.labels.into_iter().chain(labels).collect();
        Ok(self.with(|state| state.add_image(StoredImage { image, layer: Some(Arc::new(layer)) })))
    }

    async fn build_image(&self, _: &ImageBuild) -> Result<Image> {
        self.enter(Verb::Build).await?;
        Err(Error::Unsupported { engine: EngineKind::Fake, capability: Capability::Build })
    }

    async fn save_image(&self, image: &ImageId, into: File) -> Result<()> {
        self.enter(Verb::SaveImage).await?;
        let stored = self.with(|state| state.images.iter().find(|it| it.image.id == *image).cloned());
        let stored = stored.ok_or_else(|| refused(Verb::SaveImage, "no such image"))?;
        off_thread(move || archive::save(&stored, &into)).await
    }

    async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image> {
        self.enter(Verb::LoadImage).await?;
        let tag = name.completed().to_string();
        let stored = off_thread(move || archive::load(archive, tag)).await?;
        Ok(self.with(|state| state.add_image(stored)))
    }

    async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()> {
        self.enter(Verb::TagImage).await?;
        self.with(|state| state.tag(image, tag.completed().as_str()));
        Ok(())
    }

    async fn remove_image(&self, image: &ImageId) -> Result<()> {
        self.enter(Verb::RemoveImage).await?;
        self.with(|state| state.remove_image(image))
    }

    async fn untag_image(&self, name: &ImageRef) -> Result<()> {
        self.enter(Verb::RemoveImage).await?;
        self.with(|state| state.untag(name.completed().as_str()))
    }
}

impl EngineState {
    /// Finds it by id or by name; short names are completed as everywhere.
    pub(super) fn image(&self, name: &ImageRef) -> Option<&Image> {
        let completed = name.completed();
        let found = self.images.iter().map(|it| &it.image);
        found
            .into_iter()
            .find(|it| it.id.as_str() == name.as_str() || it.tags.iter().any(|tag| tag == completed.as_str()))
    }

    /// A name belongs to one image: an older one of that name loses it and stays.
    pub(super) fn add_image(&mut self, new: StoredImage) -> Image {
        for old in &mut self.images {
            old.image.tags.retain(|tag| !new.image.tags.contains(tag));
        }
        self.images.push(new.clone());
        new.image
    }

    fn tag(&mut self, id: &ImageId, tag: &str) {
        for it in &mut self.images {
            it.image.tags.retain(|it| it != tag);
            if it.image.id == *id {
                it.image.tags.push(tag.to_owned());
            }
        }
    }

    fn remove_image(&mut self, id: &ImageId) -> Result<()> {
        if self.containers.values().any(|it| it.seen.image == *id) {
            return Err(refused(Verb::RemoveImage, "image is being used by a container"));
        }
        if self.images.iter().any(|it| it.image.id == *id && is_in_several_repositories(&it.image)) {
            return Err(refused(Verb::RemoveImage, "image is referenced in multiple repositories"));
        }
        self.images.retain(|it| it.image.id != *id);
        Ok(())
    }

    fn untag(&mut self, tag: &str) -> Result<()> {
        let Some(stored) = self.images.iter_mut().find(|it| it.image.tags.iter().any(|it| it == tag)) else {
            return Ok(());
        };
        if stored.image.tags.len() > 1 {
            stored.image.tags.retain(|it| it != tag);
            return Ok(());
        }
        let id = stored.image.id.clone();
        self.remove_image(&id)
    }
}

fn is_in_several_repositories(image: &Image) -> bool {
    let repository = |tag: &str| tag.rsplit_once(':').map_or(tag, |it| it.0).to_owned();
    let repositories: BTreeSet<String> = image.tags.iter().map(|it| repository(it)).collect();
    repositories.len() > 1
}

/// Copies a tar for later containers, and reads every entry: an engine refuses an invalid tar.
fn keep(mut tar: File) -> Result<(File, u64)> {
    let mut copied = || -> std::io::Result<(File, u64)> {
        let mut copy = tempfile::tempfile()?;
        let size = std::io::copy(&mut tar, &mut copy)?;
        copy.rewind()?;
        let mut reader = Reader::open(copy.try_clone()?)?;
        while reader.next_entry()?.is_some() {}
        Ok((copy, size))
    };
    copied().map_err(|err| refused(Verb::Import, format!("cannot read the tar: {err}")))
}
