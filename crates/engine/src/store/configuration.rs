//! The OCI configuration of an image, and how it is extended for images that are created here.
//!
//! It is handled as JSON, not with the types of `oci-spec`: those drop what Docker adds (`Healthcheck`, `Shell`), and an
//! image's id is the digest of the exact bytes.

use std::collections::BTreeMap;

use coracle_archive::oci::Platform;
use coracle_runtime::ImageConfig;
use coracle_types::ImageId;
use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};

use super::{DiffId, Result, StoreError};

/// The id of the image with that configuration.
pub(crate) fn image_id(configuration: &[u8]) -> ImageId {
    let id = format!("sha256:{}", hex::encode(Sha256::digest(configuration)));
    ImageId::parse(id).expect("a SHA-256 digest is an image id")
}

/// A configuration to create.
#[derive(Clone, Debug)]
pub(crate) struct NewConfiguration<'a> {
    /// The configuration of the base image.
    pub(crate) base: Option<&'a [u8]>,
    pub(crate) config: ImageConfig,
    pub(crate) env: Vec<String>,
    pub(crate) labels: Vec<(String, String)>,
    /// The layer on top of the base image.
    pub(crate) layer: &'a DiffId,
    /// RFC 3339.
    pub(crate) created: String,
    /// What created the layer, for the history.
    pub(crate) comment: &'static str,
}

impl NewConfiguration<'_> {
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut image = match self.base {
            Some(base) => parse_object(base)?,
            None => Map::from_iter([
                ("architecture".to_owned(), json!(Platform::of_this_machine().architecture)),
                ("os".to_owned(), json!("linux")),
            ]),
        };
        // Docker's records of how the base was built.
        for stale in ["container", "container_config", "docker_version", "id", "parent"] {
            image.remove(stale);
        }
        image.insert("created".into(), json!(self.created));
        self.set_start(object(&mut image, "config")?);
        let rootfs = object(&mut image, "rootfs")?;
        rootfs.insert("type".into(), json!("layers"));
        array(rootfs, "diff_ids")?.push(json!(self.layer));
        let step = json!({ "created": self.created, "created_by": "coracle", "comment": self.comment });
        array(&mut image, "history")?.push(step);
        Ok(Value::Object(image).to_string().into_bytes())
    }

    fn set_start(&self, start: &mut Map<String, Value>) {
        let ImageConfig { entrypoint, cmd, user, workdir } = &self.config;
        let labels: BTreeMap<_, _> = self.labels.iter().cloned().collect();
        let fields = [
            ("Entrypoint", (!entrypoint.is_empty()).then(|| json!(entrypoint))),
            ("Cmd", (!cmd.is_empty()).then(|| json!(cmd))),
            ("User", (!user.is_empty()).then(|| json!(user))),
            ("WorkingDir", (!workdir.is_empty()).then(|| json!(workdir))),
            ("Env", (!self.env.is_empty()).then(|| json!(self.env))),
            ("Labels", (!labels.is_empty()).then(|| json!(labels))),
        ];
        for (key, value) in fields {
            match value {
                Some(value) => start.insert(key.into(), value),
                None => start.remove(key),
            };
        }
    }
}

/// A configuration as JSON.
pub(crate) fn parse_object(bytes: &[u8]) -> Result<Map<String, Value>> {
    serde_json::from_slice(bytes).map_err(|err| StoreError::Configuration(err.to_string()))
}

fn object<'a>(within: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Map<String, Value>> {
    let value = within.entry(key).or_insert_with(|| json!({}));
    if value.is_null() {
        *value = json!({});
    }
    value.as_object_mut().ok_or_else(|| StoreError::Configuration(format!("its `{key}` is no object")))
}

fn array<'a>(within: &'a mut Map<String, Value>, key: &str) -> Result<&'a mut Vec<Value>> {
    let value = within.entry(key).or_insert_with(|| json!([]));
    if value.is_null() {
        *value = json!([]);
    }
    value.as_array_mut().ok_or_else(|| StoreError::Configuration(format!("its `{key}` is no list")))
}

#[cfg(test)]
mod tests {
    use coracle_archive::oci::Configuration;

    use super::*;

    fn diff_id(digit: &str) -> DiffId {
        DiffId::parse(&format!("sha256:{}", digit.repeat(64))).unwrap()
    }

    #[test]
    fn a_derived_configuration_keeps_what_the_engine_does_not_read() {
        let base = json!({
            "architecture": "arm64", "os": "linux", "container": "c", "variant": "v8",
            "config": { "Healthcheck": { "Test": ["CMD", "true"] }, "Cmd": ["old"], "User": "old", "Volumes": { "/v": {} } },
            "rootfs": { "type": "layers", "diff_ids": [diff_id("a")] },
            "history": [{ "created_by": "base" }],
        });
        let base = base.to_string().into_bytes();
        let (layer, config) = (diff_id("b"), ImageConfig { cmd: vec!["new".into()], ..ImageConfig::default() });
        let new = NewConfiguration {
            base: Some(&base),
            config,
            env: vec!["A=b".into()],
            labels: vec![("l".into(), "1".into())],
            layer: &layer,
            created: "2030-01-01T00:00:00Z".into(),
            comment: "commit",
        };
        let bytes = new.to_bytes().unwrap();
        let (it, raw) = (Configuration::parse(&bytes).unwrap(), parse_object(&bytes).unwrap());
        assert_eq!(it.rootfs.diff_ids, [diff_id("a"), diff_id("b")]);
        assert_eq!((it.config.cmd, it.config.user), (vec!["new".to_owned()], String::new()));
        assert_eq!(raw["config"]["Healthcheck"]["Test"], json!(["CMD", "true"]));
        assert_eq!((raw["variant"].as_str(), raw["history"].as_array().unwrap().len()), (Some("v8"), 2));
        assert!(!raw.contains_key("container"));
    }
}
