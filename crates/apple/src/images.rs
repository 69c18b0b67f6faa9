//! Images, which the engine knows by their names alone.

use std::fs::File;
use std::time::Duration;

use async_trait::async_trait;
use coracle_engine_program::{EngineProgram, deadline, unpacked};
use coracle_runtime::{Image, ImageBuild, ImageCommit, ImageImport, ImageStore, LabelFilter, created_image};
use coracle_types::{Capability, EngineKind, Error, ImageId, ImageRef, Result};

use crate::query::{all_images, find_images, host_error, query, with_configuration};
use crate::{AppleRuntime, args as words};

#[async_trait]
impl ImageStore for AppleRuntime {
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        find_images(&self.program, &names.iter().map(ToString::to_string).collect::<Vec<_>>()).await
    }

    async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        let mut found = with_configuration(&self.program, all_images(&self.program).await?).await?;
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        match query(&self.program, "pull", words::pull(image), deadline).await {
            Ok(_) => created_image("pull", find_images(&self.program, &[image.completed().to_string()]).await?),
            Err(Error::Engine { excerpt, .. }) => Err(Error::PullFailed { image: image.clone(), excerpt }),
            Err(other) => Err(other),
        }
    }

    async fn import_image(&self, it: ImageImport) -> Result<Image> {
        let tag = it.tag.to_string();
        import(&self.program, it).await?;
        created_image("import", find_images(&self.program, &[tag]).await?)
    }

    async fn commit_image(&self, _: &ImageCommit) -> Result<Image> {
        Err(Error::Unsupported { engine: EngineKind::Container, capability: Capability::Commit })
    }

    async fn build_image(&self, _: &ImageBuild) -> Result<Image> {
        Err(Error::Unsupported { engine: EngineKind::Container, capability: Capability::Build })
    }

    /// It makes no image of a container, so there is none to be moved.
    async fn save_image(&self, _: &ImageId, _: File) -> Result<()> {
        Err(Error::Unsupported { engine: EngineKind::Container, capability: Capability::Commit })
    }

    async fn load_image(&self, _: File, _: &ImageRef) -> Result<Image> {
        Err(Error::Unsupported { engine: EngineKind::Container, capability: Capability::Commit })
    }

    async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()> {
        // It knows images by their names alone.
        let named = all_images(&self.program).await?.into_iter().find(|it| it.id == *image);
        let named = named.and_then(|it| it.tags.into_iter().next()).unwrap_or_else(|| image.to_string());
        query(&self.program, "tag", words::tag(&named, tag)?, deadline::READ).await.map(drop)
    }

    async fn remove_image(&self, id: &ImageId) -> Result<()> {
        remove_names(&self.program, |image, _| image.id == *id).await
    }

    async fn untag_image(&self, name: &ImageRef) -> Result<()> {
        let name = name.completed().to_string();
        remove_names(&self.program, |_, tag| tag == name).await
    }
}

/// There is no import: an image of one layer is built of the archive.
async fn import(program: &EngineProgram, it: ImageImport) -> Result<()> {
    let ImageImport { tar, tag, env, labels } = it;
    let mut tar = unpacked(tar)?;
    let temp = program.temp_dir("build")?;
    let (context, file) = (temp.path().to_owned(), temp.path().join("Dockerfile"));
    let text = words::dockerfile(&env);
    let prepare = move || {
        std::fs::write(context.join("Dockerfile"), text)?;
        std::io::copy(&mut tar, &mut File::create(context.join(words::ROOT_FS))?).map(drop)
    };
    let prepared = tokio::task::spawn_blocking(prepare).await.map_err(std::io::Error::other).and_then(|it| it);
    prepared.map_err(|source| host_error("cannot prepare the image", source))?;
    query(program, "import", words::build(temp.path(), &file, &tag, &labels)?, deadline::IMPORT).await.map(drop)
}

/// Removes every name of an image: the last one takes it along.
async fn remove_names(program: &EngineProgram, is_meant: impl Fn(&Image, &str) -> bool) -> Result<()> {
    let meant = async || -> Result<Vec<String>> {
        let all = all_images(program).await?;
        let names = |it: &Image| it.tags.iter().filter(|tag| is_meant(it, tag)).cloned().collect::<Vec<_>>();
        Ok(all.iter().flat_map(names).collect())
    };
    for name in meant().await? {
        match query(program, "image delete", words::delete_image(&name)?, deadline::REMOVE).await {
            Err(failure) if meant().await?.contains(&name) => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}
