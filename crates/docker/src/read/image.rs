//! Images in the JSON of Docker and Podman.

use coracle_archive::oci::StartConfiguration;
use coracle_engine_program::json::normalized;
use coracle_runtime::Image;
use coracle_types::Result;
use serde::Deserialize;

use super::{array, image_id};

pub(crate) fn images(json: &[u8]) -> Result<Vec<Image>> {
    array::<ImageJson>("image inspect", json)?.into_iter().map(ImageJson::read).collect()
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ImageJson {
    id: String,
    repo_tags: Option<Vec<String>>,
    repo_digests: Option<Vec<String>>,
    #[serde(default)]
    config: Option<StartConfiguration>,
    architecture: String,
    #[serde(default)]
    size: u64,
    /// Missing (Docker) or null (Podman) where the image's configuration has none.
    #[serde(default)]
    created: Option<String>,
}

impl ImageJson {
    fn read(self) -> Result<Image> {
        let mut config = self.config.unwrap_or_default();
        Ok(Image {
            id: image_id(&self.id)?,
            tags: self.repo_tags.unwrap_or_default(),
            digest: self.repo_digests.unwrap_or_default().first().and_then(|it| Some(it.split_once('@')?.1.to_owned())),
            labels: std::mem::take(&mut config.labels),
            env: config.env.iter().filter(|it| *it != "HOSTNAME=").cloned().collect(),
            volumes: config.volumes.keys().cloned().collect(),
            config: normalized(config),
            arch: self.architecture,
            size_bytes: self.size,
            created: self.created.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coracle_runtime::ImageConfig;

    #[test]
    fn both_engines_tell_the_same_image_that_was_committed() {
        let image = |id: &str, config: &str| {
            let json = format!(
                r#"[{{"Id":"{id}","RepoTags":["x:1"],"RepoDigests":[],"Config":{config},"Architecture":"amd64","Size":7,
                "Created":"2026-01-01T00:00:00Z"}}]"#
            );
            images(json.as_bytes()).unwrap().remove(0)
        };
        let docker = image(
            &format!("sha256:{}", "b".repeat(64)),
            r#"{"User":"0:0","Env":["A=b"],"Entrypoint":[""],"Cmd":["x"],"WorkingDir":"/","Volumes":null,"Labels":null}"#,
        );
        let podman = image(&"b".repeat(64), r#"{"User":"root","Env":["A=b","HOSTNAME="],"Cmd":["x"]}"#);
        assert_eq!(docker, podman);
        assert_eq!(docker.config, ImageConfig { cmd: vec!["x".into()], ..ImageConfig::default() });
        assert_eq!(image(&"b".repeat(64), r#"{"Volumes":{"/data":{}}}"#).volumes, ["/data"]);
    }

    #[test]
    fn an_image_without_a_time_of_creation_is_read() {
        for created in ["", r#","Created":null"#] {
            let id = "b".repeat(64);
            let json = format!(r#"[{{"Id":"sha256:{id}","Architecture":"amd64","Config":{{}}{created}}}]"#);
            assert_eq!(images(json.as_bytes()).unwrap()[0].created, "");
        }
    }
}
