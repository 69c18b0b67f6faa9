//! Answers of engines' programs in JSON.

use coracle_archive::oci::StartConfiguration;
use coracle_runtime::ImageConfig;
use coracle_types::{Error, ImageId, Result};
use serde::de::DeserializeOwned;

pub fn array<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<Vec<T>> {
    one(verb, json)
}

pub fn one<T: DeserializeOwned>(verb: &'static str, json: &[u8]) -> Result<T> {
    serde_json::from_slice(json).map_err(|err| unreadable(verb, &err))
}

pub fn unreadable(verb: &'static str, err: &dyn std::fmt::Display) -> Error {
    Error::Unreadable { verb, detail: err.to_string() }
}

/// Docker prints `sha256:…`, Podman only the digits.
pub fn image_id(text: &str) -> Result<ImageId> {
    let digits = text.strip_prefix("sha256:").unwrap_or(text);
    ImageId::parse(format!("sha256:{digits}")).map_err(|err| unreadable("inspect", &err))
}

/// Docker answers in the kernel's words.
pub fn oci_arch(arch: &str) -> String {
    match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
    .to_owned()
}

/// Normalises equivalent settings: engines cannot reset a container's settings, so its image names root and the root
/// directory where its own image is silent.
pub fn normalized(config: StartConfiguration) -> ImageConfig {
    let words = |words: Vec<String>| if words[..] == [""] { Vec::new() } else { words };
    let is_root = matches!(config.user.as_str(), "0" | "root" | "0:0" | "root:root");
    ImageConfig {
        entrypoint: words(config.entrypoint),
        cmd: words(config.cmd),
        user: if is_root { String::new() } else { config.user },
        workdir: if config.working_dir == "/" { String::new() } else { config.working_dir },
    }
}
