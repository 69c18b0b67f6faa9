//! Configurations of images, as far as they are read here.

use std::collections::BTreeMap;

use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer};

use super::{ImageError, Platform, Result, parse_json};
use crate::Sha256Digest;

/// The parts of a configuration that are used. Other fields are ignored.
#[derive(Clone, Debug, Deserialize)]
pub struct Configuration {
    /// The platform of the image.
    #[serde(flatten)]
    pub platform: Platform,
    /// RFC 3339; empty if missing.
    #[serde(default, deserialize_with = "or_default")]
    pub created: String,
    /// How its containers start.
    #[serde(default, deserialize_with = "or_default")]
    pub config: StartConfiguration,
    /// Its layers.
    pub rootfs: RootFs,
}

/// How containers of an image start.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "PascalCase")]
pub struct StartConfiguration {
    /// Variables, `NAME=value`.
    #[serde(deserialize_with = "or_default")]
    pub env: Vec<String>,
    /// Words before the command.
    #[serde(deserialize_with = "or_default")]
    pub entrypoint: Vec<String>,
    /// The command.
    #[serde(deserialize_with = "or_default")]
    pub cmd: Vec<String>,
    /// The user, in the image's notation.
    #[serde(deserialize_with = "or_default")]
    pub user: String,
    /// The directory that commands start in.
    #[serde(deserialize_with = "or_default")]
    pub working_dir: String,
    /// Labels.
    #[serde(deserialize_with = "or_default")]
    pub labels: BTreeMap<String, String>,
    /// Paths of volumes.
    #[serde(deserialize_with = "or_default")]
    pub volumes: BTreeMap<String, IgnoredAny>,
}

/// The layers of an image.
#[derive(Clone, Debug, Deserialize)]
pub struct RootFs {
    /// The digests of the uncompressed layers, lowest first.
    #[serde(deserialize_with = "or_default")]
    pub diff_ids: Vec<Sha256Digest>,
}

/// Accepts `null`, which other tools write for empty values.
pub(super) fn or_default<'de, D: Deserializer<'de>, T: Deserialize<'de> + Default>(
    value: D,
) -> std::result::Result<T, D::Error> {
    Ok(Option::deserialize(value)?.unwrap_or_default())
}

impl Configuration {
    /// Reads a configuration.
    ///
    /// # Errors
    /// [`ImageError::Malformed`].
    pub fn parse(bytes: &[u8]) -> Result<Self> {
        parse_json("configuration", bytes)
    }

    /// Fails for an image without layers, or with another number of layers than its manifest.
    ///
    /// # Errors
    /// [`ImageError::Malformed`].
    pub fn check_layers(&self, count: usize) -> Result<()> {
        let named = self.rootfs.diff_ids.len();
        if named == count && count > 0 {
            return Ok(());
        }
        let why = format_args!("it names {named} layers, and its manifest {count}");
        Err(ImageError::malformed("configuration", &why))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_with_nulls_is_parsed() {
        let text = r#"{"architecture":"amd64","os":"linux","config":{"Env":null,"Cmd":["sh"],"Labels":null,"Volumes":{"/v":{}}},
            "variant":null,"rootfs":{"type":"layers","diff_ids":null}}"#;
        let it = Configuration::parse(text.as_bytes()).unwrap();
        assert_eq!((it.config.cmd, it.config.env, it.rootfs.diff_ids), (vec!["sh".to_owned()], vec![], vec![]));
        assert!(it.config.volumes.contains_key("/v") && it.platform.to_string() == "linux/amd64");
        let null = r#"{"config":null,"rootfs":{"diff_ids":[]}}"#;
        assert_eq!(Configuration::parse(null.as_bytes()).unwrap().config.user, "");
    }

    #[test]
    fn other_documents_are_refused() {
        for text in
            ["", "[]", "{}", r#"{"rootfs":{"diff_ids":["sha256:zz"]}}"#, r#"{"rootfs":{"diff_ids":["md5:aa"]}}"#]
        {
            assert!(matches!(Configuration::parse(text.as_bytes()), Err(ImageError::Malformed { .. })), "{text}");
        }
    }

    #[test]
    fn a_configuration_names_as_many_layers_as_its_manifest() {
        let config = |layers: usize| {
            let diff_ids = vec![Sha256Digest::from_content(b"").as_str().to_owned(); layers];
            let rootfs = serde_json::json!({ "rootfs": { "diff_ids": diff_ids } });
            Configuration::parse(rootfs.to_string().as_bytes()).unwrap()
        };
        assert!(config(2).check_layers(2).is_ok());
        for (layers, count) in [(1, 2), (0, 0)] {
            assert!(matches!(config(layers).check_layers(count), Err(ImageError::Malformed { .. })), "{layers}");
        }
    }
}
