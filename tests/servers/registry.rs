//! A registry on the loopback of this host, from Debian's package.

use std::io::ErrorKind;
use std::net::TcpListener;
use std::process::Stdio;
use std::time::Duration;

use serde_json::json;
use sha2::{Digest as _, Sha256};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::process::Child;

use crate::engines::{engine_program, skip};

/// A registry of one test. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct Registry {
    port: u16,
    _program: Child,
    _dir: TempDir,
}

pub(crate) fn digest(bytes: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(bytes)))
}

impl Registry {
    /// Starts a registry. Without its program, the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\nhttp: {{ addr: \"127.0.0.1:{port}\" }}\n",
            dir.path().join("data").display()
        );
        std::fs::write(dir.path().join("config.yml"), config).unwrap();
        let mut program = engine_program("docker-registry");
        let program =
            program.arg("serve").arg(dir.path().join("config.yml")).stdout(Stdio::null()).stderr(Stdio::null());
        let program = match program.kill_on_drop(true).spawn() {
            Ok(program) => program,
            Err(error) if error.kind() == ErrorKind::NotFound => {
                skip("needs docker-registry, a package of Debian's");
                return None;
            }
            Err(error) => panic!("docker-registry does not start: {error}"),
        };
        let own = Self { port, _program: program, _dir: dir };
        let begun = std::time::Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the registry does not answer");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        Some(own)
    }

    /// The name of an artifact in it.
    pub(crate) fn name(&self, artifact: &str) -> String {
        format!("127.0.0.1:{}/{artifact}", self.port)
    }

    /// Pushes an artifact with one layer, and returns its digest.
    pub(crate) async fn push(&self, repository: &str, tag: &str, layer: &[u8]) -> String {
        let config = b"{}";
        for blob in [&config[..], layer] {
            self.put_blob(repository, blob).await;
        }
        let manifest = json!({
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": { "mediaType": "application/vnd.devcontainers", "digest": digest(config), "size": config.len() },
            "layers": [{
                "mediaType": "application/vnd.devcontainers.layer.v1+tar", "digest": digest(layer), "size": layer.len(),
            }],
        });
        let manifest = manifest.to_string();
        let head = format!("PUT /v2/{repository}/manifests/{tag}");
        let answer = self.send(&head, "application/vnd.oci.image.manifest.v1+json", manifest.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
        digest(manifest.as_bytes())
    }

    async fn put_blob(&self, repository: &str, blob: &[u8]) {
        let begun = self.send(&format!("POST /v2/{repository}/blobs/uploads/"), "text/plain", b"").await;
        let place = begun.lines().find_map(|it| it.strip_prefix("Location: ")).unwrap_or_else(|| panic!("{begun}"));
        let path = place.split_once(&format!(":{}", self.port)).map_or(place, |it| it.1);
        let more = if path.contains('?') { '&' } else { '?' };
        let put = format!("PUT {path}{more}digest={}", digest(blob));
        let answer = self.send(&put, "application/octet-stream", blob).await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    async fn send(&self, head: &str, kind: &str, body: &[u8]) -> String {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let head = format!(
            "{head} HTTP/1.1\r\nHost: 127.0.0.1:{}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
            self.port,
            body.len()
        );
        stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }
}
