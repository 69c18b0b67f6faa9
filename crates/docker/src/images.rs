//! Images of Docker and Podman.

use std::fs::{File, Permissions};
use std::io::Write as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::time::Duration;

use async_trait::async_trait;
use coracle_engine_program::unpacked;
use coracle_host::process::{ProgramOutput, Stdin};
use coracle_runtime::{
    ContainerRuntime, Image, ImageBuild, ImageCommit, ImageImport, ImageStore, LabelFilter, created_image,
};
use coracle_types::{ContainerId, ContainerStatus, Error, ImageId, ImageRef, Result};
use tempfile::TempDir;

use super::dialect::Dialect;
use super::{CliRuntime, args, deadline, read};

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
        match self.pull_with_logins(image, deadline).await {
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
        let may_stay_paused = self.is_paused_by_commit(&commit.container).await;
        let ended = self.client.query("commit", args::commit(self.dialect, self.facts, commit), deadline::COMMIT).await;
        let id = match ended {
            Ok(ended) => read::committed(&ended.stdout.bytes())?,
            Err(failure) => {
                if may_stay_paused {
                    self.unpause_after_commit(&commit.container).await;
                }
                return Err(self.diagnose(&commit.container, failure).await);
            }
        };
        created_image("commit", self.lookup.find_images(&[id.to_string()]).await?)
    }

    async fn build_image(&self, build: &ImageBuild) -> Result<Image> {
        // The classic builder is never interactive, and supports neither mounts nor privileges.
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
    /// Docker gets the user's logins in a directory that lasts as long as the call: none of its other calls has them.
    /// Podman finds them by itself.
    async fn pull_with_logins(&self, image: &ImageRef, deadline: Duration) -> Result<ProgramOutput> {
        let logins = self.docker_logins()?;
        let env = logins.iter().flat_map(|dir| {
            let config = ("DOCKER_CONFIG".to_owned(), dir.path().into());
            self.logins.helper_env().into_iter().chain([config])
        });
        let invocation = self.client.with_env(args::pull(image), env.collect());
        self.client.finish("pull", &invocation, Stdin::Empty, deadline).await
    }

    /// A configuration of Docker with the user's logins alone, in a directory that only the user can read.
    fn docker_logins(&self) -> Result<Option<TempDir>> {
        if self.dialect != Dialect::Docker {
            return Ok(None);
        }
        let config = self.logins.docker_config().unwrap_or_else(|err| {
            // As Docker does: most images need no login.
            tracing::warn!("an image is pulled without your logins: {err}");
            None
        });
        let Some(config) = config else { return Ok(None) };
        let dir = self.client.temp_dir("pull")?;
        let path = dir.path().join("config.json");
        let written = std::fs::set_permissions(dir.path(), Permissions::from_mode(0o700))
            .and_then(|()| File::options().write(true).create_new(true).mode(0o600).open(&path))
            .and_then(|mut file| file.write_all(&config));
        let what = || format!("cannot write `{}`", path.display());
        written.map_err(|source| Error::Host { what: what(), source })?;
        Ok(Some(dir))
    }

    /// Whether the engine's program itself pauses this container for a commit, as Podman's does: if it is ended at its
    /// deadline, the container stays paused. A service continues and unpauses it.
    async fn is_paused_by_commit(&self, id: &ContainerId) -> bool {
        let by_program = self.dialect == Dialect::Podman && self.client.endpoint() == "local" && self.facts.pauses;
        by_program && self.inspect(&id.into()).await.is_ok_and(|it| it.status != ContainerStatus::Paused)
    }

    async fn unpause_after_commit(&self, id: &ContainerId) {
        if !self.inspect(&id.into()).await.is_ok_and(|it| it.status == ContainerStatus::Paused) {
            return;
        }
        let unpaused = self.client.query("unpause", args::on("unpause", [id.as_str()]), deadline::MAKE).await;
        self.lookup.note_changed(id);
        match unpaused {
            Ok(_) => tracing::warn!("the commit that failed had paused the container {id}; its processes go on now"),
            Err(err) => {
                tracing::warn!(
                    "a commit that failed left the container {id} paused: {err}; `coracle start` unpauses it"
                );
            }
        }
    }

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
    use std::collections::BTreeMap;
    use std::ffi::OsString;

    use super::*;
    use crate::scripted::{docker_with_logins, podman};
    use coracle_host::registry_login::{LoginFiles, LoginOptions};
    use coracle_runtime::ImageConfig;

    #[tokio::test]
    async fn an_imported_image_is_returned_even_if_another_has_its_name_by_now() {
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
        tar.write_all(&[0; 1024]).unwrap();
        let tag = ImageRef::parse("base:1").unwrap();
        let act = ImageImport { tar, tag, env: Vec::new(), labels: Vec::new() };
        let made = engine.import_image(act).await.unwrap();
        assert_eq!(made.id.to_string(), format!("sha256:{ours}"));
    }

    /// What the engine's program found in its configuration during a call.
    const SHOW_CONFIG: &str = "case \"$*\" in\n\
        *'image inspect'*) echo '[]'; exit 1 ;;\n\
        *pull*|*tag*) exec >\"$TMPDIR/seen\" 2>&1; ls -ld \"$DOCKER_CONFIG\"; echo \"$PATH $HELPER\"\n\
          cat \"$DOCKER_CONFIG/config.json\" || true ;;\n\
        esac";

    #[tokio::test]
    async fn a_pull_by_docker_has_the_users_logins_and_no_other_call_has_them() {
        let person = tempfile::tempdir().unwrap();
        let config = r#"{"auths":{"ghcr.io":{"auth":"dTpw"}},"proxies":{"default":{"httpProxy":"http://p"}}}"#;
        std::fs::write(person.path().join("config.json"), config).unwrap();
        let program_env = BTreeMap::from([("HELPER".to_owned(), OsString::from("of the user"))]);
        let options =
            LoginOptions { docker_config: Some(person.path().into()), program_env, ..LoginOptions::default() };
        let (engine, temp) = docker_with_logins(SHOW_CONFIG, LoginFiles::new("/h".as_ref(), options));
        let seen = || std::fs::read_to_string(temp.path().join("seen")).unwrap();
        let image = ImageRef::parse("ghcr.io/me/private:1").unwrap();
        let _ = engine.pull_image(&image, Duration::from_secs(30)).await;
        let seen_words = seen();
        assert!(seen_words.starts_with("drwx------"), "{seen_words}");
        assert!(seen_words.contains(r#"{"auths":{"ghcr.io":{"auth":"dTpw"}},"credHelpers":{}}"#), "{seen_words}");
        assert!(seen_words.contains("/opt/homebrew/bin:") && seen_words.contains("of the user"), "{seen_words}");
        assert!(!seen_words.contains("httpProxy"), "{seen_words}");
        let mut left = std::fs::read_dir(temp.path()).unwrap().flatten();
        assert!(!left.any(|it| it.file_name().to_string_lossy().starts_with("coracle-pull-")));
        let _ = engine.tag_image(&ImageId::parse(format!("sha256:{}", "1".repeat(64))).unwrap(), &image).await;
        assert!(!seen().contains("dTpw"), "{}", seen());
    }

    #[tokio::test]
    async fn a_container_that_a_failed_commit_left_paused_goes_on() {
        let id = "a".repeat(64);
        let inspected = format!(
            r#"[{{"Id":"{id}","Name":"c","Image":"{}","Created":"2026-01-01T00:00:00Z","State":{{"Status":"STATUS"}},
            "Config":{{}},"HostConfig":{{}}}}]"#,
            "b".repeat(64)
        );
        // It is paused by the commit, or was before.
        for before in ["running", "paused"] {
            let script = format!(
                "status={before}; [ ! -e \"$TMPDIR/commits\" ] || status=paused\n\
                 [ ! -e \"$TMPDIR/unpaused\" ] || status=running\n\
                 case \"$*\" in\n\
                 *unpause*) touch \"$TMPDIR/unpaused\" ;;\n\
                 *commit*) touch \"$TMPDIR/commits\"; exit 125 ;;\n\
                 *inspect*) echo '{inspected}' | sed \"s/STATUS/$status/\" ;;\n\
                 *) echo {id} ;;\n\
                 esac"
            );
            let (mut engine, temp) = podman(&script);
            engine.facts.pauses = true;
            let container = ContainerId::parse(&id).unwrap();
            let commit = ImageCommit { container, tag: None, labels: Vec::new(), config: ImageConfig::default() };
            assert!(matches!(engine.commit_image(&commit).await, Err(Error::Engine { verb: "commit", .. })));
            assert_eq!(temp.path().join("unpaused").exists(), before == "running", "{before}");
        }
    }

    #[tokio::test]
    async fn images_are_listed_while_another_is_removed() {
        let id = "1".repeat(64);
        let image =
            format!(r#"[{{"Id":"{id}","Architecture":"amd64","Created":"2026-01-01T00:00:00Z","Config":{{}}}}]"#);
        // The other is removed while it is first looked up, and is missing from then on.
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
