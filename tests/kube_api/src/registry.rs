//! A registry with the images of the engine: manifests and configurations, without layers.

use std::sync::Arc;

use axum::body::Body;
use axum::http::{HeaderValue, Response, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use coracle_runtime::Image;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use crate::cluster::Cluster;
use crate::status::Refusal;
use crate::status::json_response;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

const CONFIG: &str = "application/vnd.oci.image.config.v1+json";

/// Serves a path below `/v2/`.
pub(crate) async fn serve(cluster: &Arc<Cluster>, path: &str) -> Result<Response<Body>, Refusal> {
    if path.is_empty() {
        return Ok(json_response(200, &json!({})));
    }
    let images = cluster.backing.images().await;
    let found = match (path.rsplit_once("/manifests/"), path.rsplit_once("/blobs/")) {
        (Some((name, reference)), _) => find(&images, name, reference).map(|it| Blob::manifest(&it)),
        (None, Some((_, digest))) => images.iter().map(Blob::config).find(|it| it.digest() == digest),
        (None, None) => None,
    };
    match found {
        Some(blob) => Ok(blob.response()),
        None => {
            let errors = json!({ "errors": [{ "code": "MANIFEST_UNKNOWN", "message": "manifest unknown" }] });
            Ok(json_response(404, &errors))
        }
    }
}

/// The header of a login.
pub(crate) fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", STANDARD.encode(format!("{user}:{password}")))
}

/// The answer to a request without the login.
pub(crate) fn refuse() -> Response<Body> {
    let errors = json!({ "errors": [{ "code": "UNAUTHORIZED", "message": "authentication required" }] });
    let mut response = json_response(401, &errors);
    let demand = HeaderValue::from_static("Basic realm=\"registry\"");
    response.headers_mut().insert(header::WWW_AUTHENTICATE, demand);
    response
}

/// The image that a Pod names.
pub(crate) async fn resolve(cluster: &Cluster, name: &str) -> Option<Image> {
    let images = cluster.backing.images().await;
    let path = without_registry(name);
    if let Some((path, digest)) = path.split_once('@') {
        return find(&images, path, digest);
    }
    let (path, tag) = split_tag(path);
    find(&images, path, tag)
}

fn find(images: &[Image], path: &str, reference: &str) -> Option<Image> {
    let named = |image: &&Image| {
        if reference.starts_with("sha256:") {
            let is = |it: &Blob| it.digest() == reference;
            return is(&Blob::manifest(image)) || is(&Blob::config(image)) || image.id.as_str() == reference;
        }
        image.tags.iter().any(|name| {
            let (own, tag) = split_tag(without_registry(name));
            tag == reference && (own == path || path.ends_with(&format!("/{own}")) || format!("library/{path}") == own)
        })
    };
    images.iter().find(named).cloned()
}

fn without_registry(name: &str) -> &str {
    match name.split_once('/') {
        Some((host, path)) if host == "localhost" || host.contains(['.', ':']) => path,
        _ => name,
    }
}

fn split_tag(name: &str) -> (&str, &str) {
    match name.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, tag),
        _ => (name, "latest"),
    }
}

/// A document of the registry.
#[derive(Debug)]
struct Blob {
    kind: &'static str,
    text: String,
}

impl Blob {
    fn config(image: &Image) -> Self {
        let volumes: serde_json::Map<String, Value> = image.volumes.iter().map(|it| (it.clone(), json!({}))).collect();
        let config = json!({
            "architecture": image.arch, "os": "linux", "created": image.created,
            "config": {
                "Env": image.env, "Labels": image.labels, "Entrypoint": image.config.entrypoint, "Cmd": image.config.cmd,
                "User": image.config.user, "WorkingDir": image.config.workdir, "Volumes": volumes,
            },
            "rootfs": { "type": "layers", "diff_ids": [image.id.as_str()] },
            "history": [],
        });
        Self { kind: CONFIG, text: config.to_string() }
    }

    fn manifest(image: &Image) -> Self {
        let config = Self::config(image);
        let manifest = json!({
            "schemaVersion": 2, "mediaType": MANIFEST,
            "config": { "mediaType": CONFIG, "digest": config.digest(), "size": config.text.len() },
            "layers": [{
                "mediaType": "application/vnd.oci.image.layer.v1.tar+gzip", "digest": image.id.as_str(),
                "size": image.size_bytes,
            }],
        });
        Self { kind: MANIFEST, text: manifest.to_string() }
    }

    fn digest(&self) -> String {
        format!("sha256:{}", hex::encode(Sha256::digest(&self.text)))
    }

    fn response(self) -> Response<Body> {
        let digest = HeaderValue::from_str(&self.digest());
        let mut response = Response::new(Body::from(self.text));
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(self.kind));
        if let Ok(digest) = digest {
            response.headers_mut().insert("docker-content-digest", digest);
        }
        response
    }
}

/// The digest by which a Pod's status names an image.
pub(crate) fn digest_of(image: &Image) -> String {
    Blob::manifest(image).digest()
}

#[cfg(test)]
mod tests {
    use super::{split_tag, without_registry};

    #[test]
    fn names_are_taken_apart() {
        assert_eq!(split_tag(without_registry("127.0.0.1:5000/a/b:1")), ("a/b", "1"));
        assert_eq!(split_tag(without_registry("localhost/a")), ("a", "latest"));
        assert_eq!(split_tag(without_registry("busybox:1.36")), ("busybox", "1.36"));
    }
}
