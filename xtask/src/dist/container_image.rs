//! The container image: the program and its licences, as an archive in the OCI layout that Docker reads too.

use anyhow::Result;
use serde_json::{Value, json};

use super::Release;
use super::checksums::sha256;
use crate::archive::{ArchiveFile, gzip, tar};
use crate::sh::sh;

/// Where the program is. There is no `PATH` to search.
const PROGRAM: &str = "usr/bin/coracle";

/// Name and content of the archive.
pub(super) fn archive(release: &Release) -> Result<ArchiveFile> {
    let mut files = vec![ArchiveFile::program(PROGRAM, release.program.clone())];
    let licences = release.notices.iter();
    files.extend(licences.map(|it| ArchiveFile::new(format!("usr/share/doc/coracle/{}", it.path), it.content.clone())));
    let layer = tar("", &files, release.time)?;
    let diff_id = sha256(&layer);
    let layer = Blob::new("application/vnd.oci.image.layer.v1.tar+gzip", gzip(&layer)?);
    let config = Blob::json("application/vnd.oci.image.config.v1+json", &config(release, &diff_id)?);
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": config.descriptor(),
        "layers": [layer.descriptor()],
    });
    let manifest = Blob::json("application/vnd.oci.image.manifest.v1+json", &manifest);
    let name = format!("coracle:{}", release.version);
    let mut entry = manifest.descriptor();
    // The whole name: the image store of containerd keeps it as it stands, and Docker looks for the whole name there.
    entry["annotations"] = json!({
        "org.opencontainers.image.ref.name": release.version,
        "io.containerd.image.name": format!("docker.io/library/{name}"),
    });
    let index = json!({ "schemaVersion": 2, "manifests": [entry] });
    // What `docker load` of any version reads.
    let docker = json!([{ "Config": config.path(), "RepoTags": [name], "Layers": [layer.path()] }]);
    let mut files = vec![
        ArchiveFile::new("oci-layout", json!({ "imageLayoutVersion": "1.0.0" }).to_string()),
        ArchiveFile::new("index.json", index.to_string()),
        ArchiveFile::new("manifest.json", docker.to_string()),
    ];
    files.extend([layer, config, manifest].map(|it| ArchiveFile::new(it.path(), it.content)));
    let name = format!("coracle-{}-{}.oci.tar", release.version, release.platform.triple);
    Ok(ArchiveFile::new(name, tar("", &files, release.time)?))
}

fn config(release: &Release, diff_id: &str) -> Result<Value> {
    let at = format!("--date=@{}", release.time);
    let created = sh("date", ["--utc", &at, "+%Y-%m-%dT%H:%M:%SZ"]).read()?;
    Ok(json!({
        "created": created,
        "architecture": release.platform.debian, // the same words
        "os": "linux",
        // No file names a user, and the program keeps its state below a home.
        "config": { "Entrypoint": [format!("/{PROGRAM}")], "Env": ["HOME=/root"], "WorkingDir": "/root", "Labels": {
            "org.opencontainers.image.title": "coracle",
            "org.opencontainers.image.version": release.version,
            "org.opencontainers.image.licenses": "MIT OR Apache-2.0",
        } },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{diff_id}")] },
        "history": [{ "created": created, "created_by": "cargo xtask dist" }],
    }))
}

struct Blob {
    media_type: &'static str,
    content: Vec<u8>,
}

impl Blob {
    fn new(media_type: &'static str, content: Vec<u8>) -> Self {
        Self { media_type, content }
    }

    fn json(media_type: &'static str, value: &Value) -> Self {
        Self::new(media_type, value.to_string().into_bytes())
    }

    fn path(&self) -> String {
        format!("blobs/sha256/{}", sha256(&self.content))
    }

    fn descriptor(&self) -> Value {
        let digest = format!("sha256:{}", sha256(&self.content));
        json!({ "mediaType": self.media_type, "digest": digest, "size": self.content.len() })
    }
}
