//! Images that an engine builds from a Dockerfile, cached by a key of their whole input.
//!
//! **Invariant:** a built image is used again only under the id that this host recorded, since anybody may tag an
//! image.

use std::fs::{self, File};
use std::path::PathBuf;

use coracle_host::fs::replace;
use coracle_runtime::{ContainerRuntime, Image, ImageBuild};
use coracle_types::ImageRef;
use serde_json::{Value, json};

use crate::digest::hashed;
use crate::key::SCHEMA;
use crate::lock::{lock, make_private_dir};
use crate::{Error, Progress, find};

/// The directories of build records. All values from configuration and host are passed in.
#[derive(Clone, Debug)]
pub struct DockerfileImages {
    /// Stores the id of each built image under its name.
    pub dir: PathBuf,
    /// The directory of locks.
    pub locks: PathBuf,
}

/// A build that is locked, with the name of its image.
#[derive(Debug)]
pub struct DockerfileBuild {
    /// The name of the image.
    pub tag: ImageRef,
    record: PathBuf,
    _lock: File,
}

impl DockerfileImages {
    /// Returns the image of that content and its name; if it does not exist, its name, locked for the build.
    ///
    /// # Errors
    /// [`Error::State`], [`Error::Engine`].
    pub async fn find_or_lock(
        &self,
        runtime: &dyn ContainerRuntime,
        content: &Value,
        progress: &Progress<'_>,
    ) -> Result<Result<(Image, ImageRef), DockerfileBuild>, Error> {
        let key = hashed(&json!({ "schema": SCHEMA, "engine": runtime.kind(), "parts": content }));
        let tag = ImageRef::parse(format!("coracle-devcontainer:{}", key.short()));
        let tag = tag.expect("hex digits are fit for a name");
        let path = self.locks.join(format!("devcontainer-{}", key.short()));
        let lock = lock(&path, crate::lock::SAME_IMAGE, progress).await?;
        let found = self.find(runtime, &tag).await?;
        Ok(found.ok_or_else(|| DockerfileBuild { record: self.record(&tag), tag, _lock: lock }))
    }

    /// Returns the local image of a name, if it is the one that was built here.
    ///
    /// # Errors
    /// [`Error::Engine`].
    pub async fn find(
        &self,
        runtime: &dyn ContainerRuntime,
        reference: &ImageRef,
    ) -> Result<Option<(Image, ImageRef)>, Error> {
        let recorded = fs::read_to_string(self.record(reference)).unwrap_or_default();
        Ok(find(runtime, reference).await?.filter(|(image, _)| image.id.as_str() == recorded))
    }

    /// Returns the same path for a name as given and as an engine completes it.
    fn record(&self, reference: &ImageRef) -> PathBuf {
        let name = reference.as_str().rsplit('/').next().unwrap_or_default();
        self.dir.join(name.replace(':', "-"))
    }
}

impl DockerfileBuild {
    /// Builds the image and records its id.
    ///
    /// # Errors
    /// [`Error::Engine`] with the engine's output; [`Error::State`].
    pub async fn run(self, runtime: &dyn ContainerRuntime, build: &ImageBuild) -> Result<(Image, ImageRef), Error> {
        let image = runtime.build_image(build).await?;
        let dir = self.record.parent().unwrap_or(&self.record);
        let recorded = make_private_dir(dir).and_then(|()| replace(&self.record, image.id.as_str().as_bytes()));
        recorded.map_err(|source| Error::State { what: format!("write `{}`", self.record.display()), source })?;
        let found = find(runtime, &self.tag).await?;
        Ok((image, found.map_or(self.tag, |it| it.1)))
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::{FakeRuntime, ImageStore as _};

    use super::*;

    #[tokio::test]
    async fn an_image_is_found_by_its_key_and_under_the_recorded_id_only() {
        let (fake, state) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let (dir, locks) = (state.path().join("devcontainers"), state.path().join("locks"));
        let images = DockerfileImages { dir: dir.clone(), locks };
        let content = json!({ "parts": { "dockerfile": "FROM x" }, "offline": false });
        let find = async || images.find_or_lock(&fake, &content, &|_| {}).await.unwrap();
        // Images of earlier versions have this name, too.
        let tag = ImageRef::parse("coracle-devcontainer:2087c0c13368fe69").unwrap();
        assert_eq!(find().await.unwrap_err().tag, tag);
        let (image, _) = crate::find(&fake, &ImageRef::parse("busybox").unwrap()).await.unwrap().unwrap();
        fake.tag_image(&image.id, &tag).await.unwrap();
        assert!(find().await.is_err(), "anybody may tag an image");
        let record = |id: &str| {
            fs::create_dir_all(&dir).unwrap();
            fs::write(dir.join("coracle-devcontainer-2087c0c13368fe69"), id).unwrap();
        };
        record("sha256:0");
        assert!(find().await.is_err());
        record(image.id.as_str());
        let (found, reference) = find().await.unwrap();
        assert_eq!(found.id, image.id);
        assert!(images.find(&fake, &reference).await.unwrap().is_some(), "{reference}");
    }
}
