//! Answers of engines' programs in JSON.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use crate::{Error, ImageConfig, ImageId, Result};

pub(crate) fn array<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<Vec<T>> {
    one(verb, json)
}

pub(crate) fn one<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|err| unreadable(verb, &err))
}

pub(crate) fn unreadable(verb: &'static str, err: &dyn std::fmt::Display) -> Error {
    Error::Unreadable { verb, detail: err.to_string() }
}

/// Docker prints `sha256:…`, Podman only the digits.
pub(crate) fn image_id(text: &str) -> Result<ImageId> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    ImageId::parse(format!("sha256:{digits}")).map_err(|err| unreadable("inspect", &err))
}

/// Docker answers in the kernel's words.
pub(crate) fn oci_arch(arch: &str) -> String {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
    .to_owned()
}

/// The configuration of an image, as OCI has it.
#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct ImageConfigJson {
    pub(crate) labels: Option<BTreeMap<String, String>>,
    pub(crate) env: Option<Vec<String>>,
    pub(crate) entrypoint: Option<Vec<String>>,
    pub(crate) cmd: Option<Vec<String>>,
    pub(crate) volumes: Option<BTreeMap<String, serde::de::IgnoredAny>>,
    #[serde(default)]
    pub(crate) user: String,
    #[serde(default)]
    pub(crate) working_dir: String,
}

impl From<ImageConfigJson> for ImageConfig {
    /// Normalises equivalent settings: engines cannot reset a container's settings, so its image names root and the
    /// root directory where its own image is silent.
    fn from(it: ImageConfigJson) -> Self {
        let words = |words: Option<Vec<String>>| words.filter(|it| it[..] != [""]).unwrap_or_default();
        let is_root = matches!(it.user.as_str(), "0" | "root" | "0:0" | "root:root");
        Self {
            entrypoint: words(it.entrypoint),
            cmd: words(it.cmd),
            user: if is_root { String::new() } else { it.user },
            workdir: if it.working_dir == "/" { String::new() } else { it.working_dir },
        }
    }
}
