//! Tests whether a registry is reachable.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use coracle_types::ImageRef;
use tokio::net::TcpStream;

/// For this long a server does not ask a registry again that did not answer, if an image of this host can replace the
/// registry's.
const SILENT_FOR: Duration = Duration::from_secs(60);

/// When registries did not answer, by host and port.
static SILENT: Mutex<Option<HashMap<String, Instant>>> = Mutex::new(None);

/// Remembers that the registry of an image does not answer.
pub(crate) fn note_silence(image: &ImageRef) {
    let mut silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    silent.get_or_insert_default().insert(host(image), Instant::now());
}

/// Whether the registry of an image did not answer a moment ago.
pub(crate) fn was_silent(image: &ImageRef) -> bool {
    let silent = SILENT.lock().unwrap_or_else(PoisonError::into_inner);
    silent.as_ref().and_then(|it| it.get(&host(image))).is_some_and(|at| at.elapsed() < SILENT_FOR)
}

/// Where the registry of an image listens: `host:port`.
pub(crate) fn host(image: &ImageRef) -> String {
    match image.registry() {
        None | Some("docker.io" | "index.docker.io") => "registry-1.docker.io:443".to_owned(),
        Some(host) if host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok()) => host.to_owned(),
        Some(host) => format!("{host}:443"),
    }
}

/// Connects within a time limit, or returns why that failed.
pub(crate) async fn reach(image: &ImageRef, within: Duration) -> Result<(), String> {
    let host = host(image);
    match tokio::time::timeout(within, TcpStream::connect(&host)).await {
        Ok(Ok(_)) => Ok(()),
        Ok(Err(err)) => Err(format!("no registry answers at {host}: {err}")),
        Err(_) => Err(format!("no registry answers at {host} within {} s", within.as_secs())),
    }
}

/// Whether an engine's output describes a network error and not the registry's answer. Matching text is a last resort:
/// no engine distinguishes them by its exit status. The phrases are those of Go's network library, which all engines
/// use. If none matches, the failure counts as the registry's answer, and no image is built instead.
pub(crate) fn is_transport(excerpt: &str) -> bool {
    const WORDS: [&str; 14] = [
        "no such host",
        "name resolution",
        "server misbehaving",
        "connection refused",
        "connection reset",
        "connection timed out",
        "i/o timeout",
        "handshake timeout",
        "network is unreachable",
        "no route to host",
        "Client.Timeout exceeded",
        "context deadline exceeded",
        "proxyconnect",
        "x509:",
    ];
    WORDS.iter().any(|it| excerpt.contains(it)) || excerpt.trim_end().ends_with("EOF")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_registry_of_a_name() {
        for (image, expected) in [
            ("python:3.12-slim", "registry-1.docker.io:443"),
            ("library/python", "registry-1.docker.io:443"),
            ("docker.io/library/python", "registry-1.docker.io:443"),
            ("ghcr.io/a/b:1", "ghcr.io:443"),
            ("127.0.0.1:5000/x", "127.0.0.1:5000"),
            ("localhost/x", "localhost:443"),
        ] {
            assert_eq!(host(&ImageRef::parse(image).unwrap()), expected, "{image}");
        }
    }

    #[test]
    fn a_refusal_is_no_network_error() {
        for (excerpt, expected) in [
            ("dial tcp: lookup registry-1.docker.io on 1.1.1.1:53: no such host", true),
            ("dial tcp: lookup registry-1.docker.io: Temporary failure in name resolution", true),
            ("net/http: TLS handshake timeout", true),
            ("request canceled while waiting for connection (Client.Timeout exceeded while awaiting headers)", true),
            ("Get \"https://x/v2/\": x509: certificate signed by unknown authority", true),
            ("Get \"https://x/v2/\": EOF", true),
            ("manifest for python:9 not found: manifest unknown", false),
            ("toomanyrequests: You have reached your pull rate limit", false),
            ("pull access denied for x, repository does not exist", false),
            ("", false),
        ] {
            assert_eq!(is_transport(excerpt), expected, "{excerpt}");
        }
    }

    #[tokio::test]
    async fn a_listener_answers_and_a_closed_port_does_not() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let image = ImageRef::parse(format!("{}/x", listener.local_addr().unwrap())).unwrap();
        assert_eq!(reach(&image, Duration::from_secs(5)).await, Ok(()));
        drop(listener);
        let why = reach(&image, Duration::from_secs(5)).await.unwrap_err();
        assert!(why.starts_with("no registry answers at 127.0.0.1:") && why.contains("refused"), "{why}");
    }
}
