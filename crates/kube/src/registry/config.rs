//! The configuration of an image, as registries serve it.

use std::collections::BTreeMap;

use coracle_runtime::{Image, ImageConfig, ImageId};
use serde::Deserialize;
use serde::de::IgnoredAny;

/// What a registry tells of one image of one architecture.
#[derive(Clone, Debug)]
pub(crate) struct RegistryImage {
    /// Digest of the manifest.
    pub(crate) digest: String,
    /// Digest of the list that the manifest is in, if it is in one.
    pub(crate) list_digest: Option<String>,
    /// The configuration, as JSON.
    pub(crate) config: String,
    /// Bytes of its layers.
    pub(crate) size_bytes: u64,
}

#[derive(Deserialize)]
struct ConfigFile {
    #[serde(default)]
    architecture: String,
    #[serde(default)]
    created: Option<String>,
    #[serde(default)]
    config: Option<RunConfig>,
}

#[derive(Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
struct RunConfig {
    user: Option<String>,
    env: Option<Vec<String>>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    working_dir: Option<String>,
    labels: Option<BTreeMap<String, String>>,
    volumes: Option<BTreeMap<String, IgnoredAny>>,
}

impl RegistryImage {
    /// The image under the name that led to it. Its id is the digest of its manifest, by which nodes fetch it.
    pub(crate) fn image(self, name: String) -> Result<Image, String> {
        let file: ConfigFile = serde_json::from_str(&self.config).map_err(|err| err.to_string())?;
        let run = file.config.unwrap_or_default();
        Ok(Image {
            id: ImageId::parse(&self.digest).map_err(|err| err.to_string())?,
            tags: vec![name],
            digest: Some(self.list_digest.unwrap_or(self.digest)),
            labels: run.labels.unwrap_or_default(),
            env: run.env.unwrap_or_default(),
            config: ImageConfig {
                entrypoint: run.entrypoint.unwrap_or_default(),
                cmd: run.cmd.unwrap_or_default(),
                user: run.user.unwrap_or_default(),
                workdir: run.working_dir.unwrap_or_default(),
            },
            volumes: run.volumes.unwrap_or_default().into_keys().collect(),
            arch: file.architecture,
            size_bytes: self.size_bytes,
            created: file.created.unwrap_or_default(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_the_digest_of_its_manifest() {
        let digest = format!("sha256:{}", "a".repeat(64));
        let config =
            r#"{"architecture":"arm64","config":{"Env":["PATH=/bin"],"Labels":null,"User":"app","Cmd":["sh"]}}"#;
        let seen = RegistryImage { digest: digest.clone(), list_digest: None, config: config.into(), size_bytes: 7 };
        let image = seen.image("registry:5000/x:1".into()).unwrap();
        assert_eq!((image.id.as_str(), image.arch.as_str(), image.config.user.as_str()), (&*digest, "arm64", "app"));
        assert_eq!((image.env, image.digest), (vec!["PATH=/bin".to_owned()], Some(digest)));
    }
}
