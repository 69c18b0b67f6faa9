//! Images of Docker and Podman.

use std::time::Duration;

use super::args;
use super::dialect::Dialect;
use super::{CliRuntime, deadline, read};
use crate::host::process::Stdin;
use crate::program::unpack::unpacked;
use crate::{Error, Image, ImageAct, ImageRef, Result};

impl CliRuntime {
    pub(super) async fn images(&self, act: ImageAct) -> Result<Vec<Image>> {
        match act {
            ImageAct::Find(names) => {
                self.lookup.find_images(&names.iter().map(ToString::to_string).collect::<Vec<_>>()).await
            }
            ImageAct::Pull { image, deadline } => self.pull(image, deadline).await,
            ImageAct::Import { tar, tag, env, labels } => {
                let tar = unpacked(tar)?;
                let words = args::import(self.dialect, &tag, &env, &labels);
                let ended = self.client.feed("import", words, Stdin::File(tar), deadline::IMPORT).await?;
                // By its id: another user of this engine may have given the name to another image by now.
                self.lookup.find_images(&[read::committed(&ended.stdout.bytes())?.to_string()]).await
            }
            ImageAct::Commit { container, tag, labels, config } => {
                let words = args::commit((self.dialect, self.facts), &container, tag.as_ref(), (&labels, &config));
                let id = match self.client.ask("commit", words, deadline::COMMIT).await {
                    Ok(ended) => read::committed(&ended.stdout.bytes())?,
                    Err(failure) => return Err(self.blame(&container, failure).await),
                };
                self.lookup.find_images(&[id.to_string()]).await
            }
            ImageAct::Build(build) => {
                // The builder that asks nobody, and takes neither mounts nor privileges.
                let plain = ("DOCKER_BUILDKIT".to_owned(), "0".into());
                let env = if self.dialect == Dialect::Docker { vec![plain] } else { Vec::new() };
                let invocation = self.client.with_env(args::build(self.dialect, self.facts, &build), env);
                self.client.finish("build", &invocation, Stdin::Empty, build.deadline).await?;
                self.lookup.find_images(&[build.tag.to_string()]).await
            }
            ImageAct::List(filter) => self.lookup.list_images(&filter).await,
            ImageAct::Tag { image, tag } => {
                let words = args::tag(&image, &tag);
                self.client.ask("tag", words, deadline::READ).await?;
                Ok(Vec::new())
            }
            ImageAct::Remove(id) => self.remove_image(&id.clone().into()).await.map(|()| Vec::new()),
            ImageAct::Untag(name) => self.remove_image(&name).await.map(|()| Vec::new()),
        }
    }

    async fn pull(&self, image: ImageRef, within: Duration) -> Result<Vec<Image>> {
        match self.client.ask("pull", args::pull(&image), within).await {
            Ok(_) => self.lookup.find_images(&[image.completed().to_string()]).await,
            Err(Error::Engine { excerpt, .. }) => Err(Error::PullFailed { image, excerpt }),
            Err(other) => Err(other),
        }
    }

    /// By id, or a name of an image that may have others.
    async fn remove_image(&self, image: &ImageRef) -> Result<()> {
        let removed = self.client.ask("image rm", args::on("image rm", [image.as_str()]), deadline::REMOVE).await;
        match removed {
            Err(failure) if !self.lookup.find_images(&[image.to_string()]).await?.is_empty() => Err(failure),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::scripted::podman;
    use crate::{ContainerRuntime, LabelFilter};

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
        let act = ImageAct::Import { tar, tag, env: Vec::new(), labels: Vec::new() };
        let made = engine.image(act).await.unwrap();
        assert_eq!(made.iter().map(|it| it.id.to_string()).collect::<Vec<_>>(), [format!("sha256:{ours}")]);
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
        for act in [ImageAct::List(LabelFilter::default()), ImageAct::Find(named.into())] {
            let (engine, _temp) = podman(&script);
            let found = engine.image(act).await.unwrap();
            assert_eq!(found.iter().map(|it| it.id.to_string()).collect::<Vec<_>>(), [format!("sha256:{id}")]);
        }
    }
}
