//! Images of Docker and Podman.

use std::fs::File;
use std::time::Duration;

use async_trait::async_trait;

use super::args;
use super::dialect::Dialect;
use super::{CliRuntime, deadline, read};
use crate::host::process::Stdin;
use crate::images::created_image;
use crate::program::unpack::unpacked;
use crate::{Error, Image, ImageBuild, ImageCommit, ImageId, ImageImport, ImageRef, ImageStore, LabelFilter, Result};

/// Bytes of a saved image.
const MAX_SAVED: u64 = 128 << 30;

#[async_trait]
impl ImageStore for CliRuntime {
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        self.lookup.find_images(&names.iter().map(ToString::to_string).collect::<Vec<_>>()).await
    }

    async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        self.lookup.list_images(filter).await
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        match self.client.query("pull", args::pull(image), deadline).await {
            Ok(_) => created_image("pull", self.lookup.find_images(&[image.completed().to_string()]).await?),
            Err(Error::Engine { excerpt, .. }) => Err(Error::PullFailed { image: image.clone(), excerpt }),
            Err(other) => Err(other),
        }
    }

    async fn import_image(&self, import: ImageImport) -> Result<Image> {
        let words = args::import(self.dialect, &import.tag, &import.env, &import.labels);
        let tar = unpacked(import.tar)?;
        let ended = self.client.feed("import", words, Stdin::File(tar), deadline::IMPORT).await?;
        // By its id: another user of this engine may have given the name to another image by now.
        let id = read::committed(&ended.stdout.bytes())?;
        created_image("import", self.lookup.find_images(&[id.to_string()]).await?)
    }

    async fn commit_image(&self, commit: &ImageCommit) -> Result<Image> {
        let ended = self.client.query("commit", args::commit(self.dialect, self.facts, commit), deadline::COMMIT).await;
        let id = match ended {
            Ok(ended) => read::committed(&ended.stdout.bytes())?,
            Err(failure) => return Err(self.diagnose(&commit.container, failure).await),
        };
        created_image("commit", self.lookup.find_images(&[id.to_string()]).await?)
    }

    async fn build_image(&self, build: &ImageBuild) -> Result<Image> {
        // The classic builder is never interactive, and takes neither mounts nor privileges.
        let classic = ("DOCKER_BUILDKIT".to_owned(), "0".into());
        let env = if self.dialect == Dialect::Docker { vec![classic] } else { Vec::new() };
        let invocation = self.client.with_env(args::build(self.dialect, self.facts, build), env);
        self.client.finish("build", &invocation, Stdin::Empty, build.deadline).await?;
        created_image("build", self.lookup.find_images(&[build.tag.to_string()]).await?)
    }

    async fn save_image(&self, image: &ImageId, into: File) -> Result<()> {
        let words = args::save_image(self.dialect, image);
        self.client.store("image save", words, into, MAX_SAVED, deadline::ARCHIVE).await
    }

    async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image> {
        let archive = unpacked(archive)?;
        // Podman copies what it reads into a temporary file first.
        self.client.feed_swept("image load", args::load_image(), Stdin::File(archive), deadline::ARCHIVE).await?;
        created_image("image load", self.lookup.find_images(&[name.to_string()]).await?)
    }

    async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()> {
        self.client.query("tag", args::tag(image, tag), deadline::READ).await.map(drop)
    }

    async fn remove_image(&self, image: &ImageId) -> Result<()> {
        self.remove_image_named(&image.clone().into()).await
    }

    async fn untag_image(&self, name: &ImageRef) -> Result<()> {
        self.remove_image_named(name).await
    }
}

impl CliRuntime {
    /// By id, or by one of several names.
    async fn remove_image_named(&self, image: &ImageRef) -> Result<()> {
        let removed = self.client.query("image rm", args::on("image rm", [image.as_str()]), deadline::REMOVE).await;
        match removed {
            Err(failure) if !self.lookup.find_images(&[image.to_string()]).await?.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LabelFilter;
    use crate::cli::scripted::podman;

    #[tokio::test]
    async fn an_imported_image_is_that_one_whoever_has_its_name_by_now() {
        let (ours, other) = ("1".repeat(64), "2".repeat(64));
        let script = format!(
            "case \"$*\" in\n\
             *import*) cat >/dev/null; echo {ours} ;;\n\
             *'image inspect'*{ours}*) id={ours} ;;\n\
             *) id={other} ;;\n\
             esac\n\
             [ -z \"$id\" ] || printf '[{{\"Id\":\"%s\",\"Architecture\":\"amd64\",\"Created\":\"\",\"Config\":{{}}}}]' $id"
        );
        let (engine, _temp) = podman(&script);
        let mut tar = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut tar, &[0; 1024]).unwrap();
        let tag = ImageRef::parse("base:1").unwrap();
        let act = ImageImport { tar, tag, env: Vec::new(), labels: Vec::new() };
        let made = engine.import_image(act).await.unwrap();
        assert_eq!(made.id.to_string(), format!("sha256:{ours}"));
    }

    #[tokio::test]
    async fn images_are_told_while_another_is_removed() {
        let id = "1".repeat(64);
        let image =
            format!(r#"[{{"Id":"{id}","Architecture":"amd64","Created":"2026-01-01T00:00:00Z","Config":{{}}}}]"#);
        // The other goes while it is first asked for, and is missing from then on.
        let script = format!(
            "case \"$*\" in\n\
             *reference=none*) ;;\n\
             *'image ls'*) printf '{id}\\n2222\\n' ;;\n\
             *'image inspect'*) [ -e \"$TMPDIR/gone\" ] && echo '{image}'; touch \"$TMPDIR/gone\"; exit 125 ;;\n\
             *) exit 1 ;;\n\
             esac"
        );
        let named = ["one:1", "other:1"].map(|it| ImageRef::parse(it).unwrap());
        for is_list in [true, false] {
            let (engine, _temp) = podman(&script);
            let found = match is_list {
                true => engine.list_images(&LabelFilter::default()).await,
                false => engine.find_images(&named).await,
            };
            let found = found.unwrap();
            assert_eq!(found.iter().map(|it| it.id.to_string()).collect::<Vec<_>>(), [format!("sha256:{id}")]);
        }
    }
}
