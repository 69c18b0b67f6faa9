//! Images for tests: configuration, layers and manifest in memory.

use std::io::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

pub(crate) const OCI_MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const OCI_INDEX: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const OCI_LAYER: &str = "application/vnd.oci.image.layer.v1.tar+gzip";
const OCI_CONFIG: &str = "application/vnd.oci.image.config.v1+json";

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

/// An image, and what names its parts.
#[derive(Clone, Debug)]
pub(crate) struct TestImage {
    pub(crate) config: Vec<u8>,
    /// Compressed, bottom first.
    pub(crate) layers: Vec<Vec<u8>>,
    pub(crate) manifest: String,
    pub(crate) media_type: String,
}

impl TestImage {
    /// An image for this machine, with one layer for each text.
    pub(crate) fn new(texts: &[&str]) -> Self {
        Self::of_arch(arch(), texts)
    }

    pub(crate) fn of_arch(arch: &str, texts: &[&str]) -> Self {
        let tars: Vec<_> = texts.iter().map(|it| tar_of(it.as_bytes())).collect();
        Self::of_tars(arch, &tars)
    }

    pub(crate) fn of_tars(arch: &str, tars: &[Vec<u8>]) -> Self {
        let diff_ids: Vec<_> = tars.iter().map(|it| digest(it)).collect();
        let config = json!({
            "architecture": arch, "os": "linux", "config": { "Env": ["PATH=/bin"] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let config = config.to_string().into_bytes();
        let layers: Vec<_> = tars.iter().map(|it| gzip(it)).collect();
        let part =
            |kind: &str, bytes: &[u8]| json!({ "mediaType": kind, "digest": digest(bytes), "size": bytes.len() });
        let manifest = json!({
            "schemaVersion": 2, "mediaType": OCI_MANIFEST, "config": part(OCI_CONFIG, &config),
            "layers": layers.iter().map(|it| part(OCI_LAYER, it)).collect::<Vec<_>>(),
        });
        Self { config, layers, manifest: manifest.to_string(), media_type: OCI_MANIFEST.into() }
    }

    /// The id that engines give it.
    pub(crate) fn id(&self) -> String {
        digest(&self.config)
    }

    /// Its manifest with a change.
    pub(crate) fn manifest_with(&self, change: impl FnOnce(&mut Value)) -> String {
        let mut manifest: Value = serde_json::from_str(&self.manifest).unwrap();
        change(&mut manifest);
        manifest.to_string()
    }

    /// How an index names it.
    pub(crate) fn in_index(&self, arch: &str) -> Value {
        json!({
            "mediaType": self.media_type, "digest": digest(self.manifest.as_bytes()), "size": self.manifest.len(),
            "platform": { "os": "linux", "architecture": arch },
        })
    }
}

/// This machine, in OCI's words.
pub(crate) fn arch() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// An archive with one file.
pub(crate) fn tar_of(content: &[u8]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    builder.append_data(&mut header, format!("file-{}", &digest(content)[7..15]), content).unwrap();
    builder.into_inner().unwrap()
}

pub(crate) fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}
