//! A registry on the loopback of this host, as Debian packages it.

use std::time::{Duration, Instant};

use coracle_host::find_program::find_program;
use coracle_host::process::{Invocation, Stdin, spawn};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Child;

use crate::image::{TestImage, digest};

/// A registry of one test, gone with it.
#[derive(Debug)]
pub(crate) struct Registry {
    pub(crate) port: u16,
    _program: Child,
    _dir: TempDir,
}

impl Registry {
    /// Starts a registry. Without its program, the test is skipped.
    pub(crate) async fn start() -> Option<Self> {
        let Ok(program) = find_program("docker-registry") else {
            coracle_skips::skip("needs docker-registry, a package of Debian's");
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let port = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
        let data = dir.path().join("data");
        let config = format!(
            "version: 0.1\nlog: {{ level: error }}\nstorage: {{ filesystem: {{ rootdirectory: {} }} }}\n\
             http: {{ addr: \"127.0.0.1:{port}\" }}\n",
            data.display()
        );
        let file = dir.path().join("config.yml");
        std::fs::write(&file, config).unwrap();
        let mut program =
            spawn(&Invocation::new(program, ["serve".into(), file.into_os_string()]), Stdin::Empty).unwrap();
        for output in [program.stdout.take().map(drain), program.stderr.take().map(drain)] {
            drop(output);
        }
        let begun = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "the registry does not answer");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        Some(Self { port, _program: program, _dir: dir })
    }

    /// Puts the parts of an image into a repository, and tags it.
    pub(crate) async fn push(&self, repository: &str, tag: &str, image: &TestImage) {
        for blob in image.layers.iter().chain([&image.config]) {
            self.push_blob(repository, blob).await;
        }
        self.push_manifest(repository, tag, (&image.media_type, &image.manifest)).await;
    }

    /// Puts a manifest or index under a tag.
    pub(crate) async fn push_manifest(&self, repository: &str, tag: &str, (kind, manifest): (&str, &str)) {
        let head = format!("PUT /v2/{repository}/manifests/{tag}");
        let answer = self.request(&head, kind, manifest.as_bytes()).await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    async fn push_blob(&self, repository: &str, blob: &[u8]) {
        let begun = self.request(&format!("POST /v2/{repository}/blobs/uploads/"), "text/plain", b"").await;
        let place = begun.lines().find_map(|it| it.strip_prefix("Location: ")).unwrap_or_else(|| panic!("{begun}"));
        let path = place.split_once(&format!(":{}", self.port)).map_or(place, |it| it.1);
        let more = if path.contains('?') { '&' } else { '?' };
        let put = format!("PUT {path}{more}digest={}", digest(blob));
        let answer = self.request(&put, "application/octet-stream", blob).await;
        assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    }

    async fn request(&self, head: &str, kind: &str, body: &[u8]) -> String {
        let head = format!("{head} HTTP/1.1\r\nContent-Type: {kind}\r\nContent-Length: {}\r\n", body.len());
        let answer = request(self.port, &head, body).await;
        String::from_utf8_lossy(&answer).into_owned()
    }
}

/// The whole answer to a request whose head lacks only the host.
pub(crate) async fn request(port: u16, head: &str, body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).await.unwrap();
    let head = format!("{head}Host: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n");
    stream.write_all(&[head.as_bytes(), body].concat()).await.unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.unwrap();
    answer
}

fn drain(mut pipe: impl tokio::io::AsyncRead + Unpin + Send + 'static) -> tokio::task::JoinHandle<()> {
    tokio::spawn(async move {
        let _ = tokio::io::copy(&mut pipe, &mut tokio::io::sink()).await;
    })
}
