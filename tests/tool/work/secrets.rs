//! Secrets that programs in a workspace use and cannot read.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use super::with_real_agent;
use crate::tool::mcp::Client;

pub(crate) const SECRET: &str = "sk-canary-5ecret-0123456789";

/// A server of `localhost` with TLS that echoes each request.
pub(crate) struct Api {
    pub(crate) port: u16,
    pub(crate) certificate: String,
    pub(crate) received: Arc<Mutex<Vec<String>>>,
}

impl Api {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config =
            ServerConfig::builder_with_provider(Arc::new(tokio_rustls::rustls::crypto::ring::default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
        let config = config.with_single_cert(vec![made.cert.der().clone()], key).unwrap();
        let (acceptor, received) = (TlsAcceptor::from(Arc::new(config)), Arc::<Mutex<Vec<String>>>::default());
        let noted = received.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, noted) = (acceptor.clone(), noted.clone());
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let (mut request, mut buffer) = (String::new(), [0; 4096]);
                    while !is_whole(&request) {
                        let Ok(count @ 1..) = stream.read(&mut buffer).await else { return };
                        request += &String::from_utf8_lossy(&buffer[..count]);
                    }
                    let answer = format!(
                        "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{request}",
                        request.len()
                    );
                    noted.lock().unwrap().push(request);
                    let _ = stream.write_all(answer.as_bytes()).await;
                    let _ = stream.shutdown().await;
                });
            }
        });
        Self { port, certificate: made.cert.pem(), received }
    }
}

/// Whether a request has arrived with its body.
pub(crate) fn is_whole(request: &str) -> bool {
    let Some((head, body)) = request.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|it| it.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    body.len() >= length.unwrap_or(0)
}

const ASKS: &str = r#"
import os, sys, urllib.request, urllib.error
for name in ("NO_PROXY", "no_proxy"): os.environ.pop(name, None)
def ask(method, address, headers):
    try:
        answer = urllib.request.urlopen(urllib.request.Request(address, method=method, headers=headers))
        print(answer.status, answer.read().decode())
    except urllib.error.HTTPError as refusal:
        print(refusal.code, refusal.read().decode())
key, at = os.environ["OPENAI_API_KEY"], "https://localhost:" + sys.argv[1]
ask("POST", at + "/v1/chat", {"Authorization": "Bearer " + key})
ask("DELETE", at + "/v1/chat", {"Authorization": "Bearer " + key})
ask("POST", at + "/v1/chat", {"X-Other": key})
"#;

/// Lists the files below a directory that have the secret.
fn search_files(dir: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        let (path, kind) = (entry.path(), entry.file_type().unwrap());
        if kind.is_dir() {
            search_files(&path, found);
        } else if kind.is_file() && memchr::memmem::find(&std::fs::read(&path).unwrap(), SECRET.as_bytes()).is_some() {
            found.push(path);
        }
    }
}

#[tokio::test]
async fn a_secret_is_used_by_programs_that_cannot_read_it() {
    // The image with Python is built from packages.
    if !coracle_skips::may_download() {
        return;
    }
    let api = Api::start().await;
    let port = api.port;
    let config = format!(
        "[workspace]\nimage = \"python:3.12-bookworm\"\nnetwork = \"proxy\"\n[workspace.egress]\n\
         allow = [\"POST localhost:{port}/v1/**\", \"ip:127.0.0.1:{port}\"]\n\
         [secrets.OPENAI_API_KEY]\nhosts = [\"localhost:{port}\"]\n"
    );
    let certificates = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(certificates.path(), &api.certificate).unwrap();
    with_real_agent(&config, async |agent| {
        let session = agent.process.context.call.session.as_str();
        let mut server = agent.tool.command(["--session", session, "mcp"]);
        server.env("SSL_CERT_FILE", certificates.path()).env("OPENAI_API_KEY", SECRET);
        let mut client = Client::start(&mut server).await;
        let mut run = async |command: Value| {
            let call = json!({ "name": "shell_execute", "arguments": { "command": command, "timeout_seconds": 120 } });
            client.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call })).await;
            let answer = client.answer().await;
            let value = &answer["result"]["structuredContent"]["value"];
            assert_eq!(value["exit_code"], 0, "{answer:#}");
            value["stdout"].as_str().unwrap().to_owned()
        };
        let answers = run(json!(["python3", "-c", ASKS, port.to_string()])).await;
        let lines: Vec<_> = answers.lines().filter(|it| it.starts_with(char::is_numeric)).collect();
        assert!(answers.contains("Bearer [redacted:OPENAI_API_KEY]"), "{answers}");
        assert!(lines[0].starts_with("200 POST /v1/chat"), "{answers}");
        assert!(lines[1].starts_with("403 ") && lines[1].contains("request_not_allowed"), "{answers}");
        assert!(
            lines[1].contains(&format!("DELETE localhost:{port}/v1/chat")),
            "the rule that would allow it: {answers}"
        );
        assert!(lines[2].starts_with("403 ") && lines[2].contains("secret_misplaced"), "{answers}");
        let received = api.received.lock().unwrap().clone();
        // Each engine sends one such request to this server.
        let is_right = |it: &String| {
            it.starts_with("POST /v1/chat ") && it.contains(&format!("authorization: Bearer {SECRET}\r\n"))
        };
        assert!(!received.is_empty() && received.iter().all(is_right), "{received:?}");
        // The positive control: the same search finds the placeholder.
        let search = |what: &str| {
            // As a pattern that does not match itself in the command of the search.
            let (first, rest) = what.split_at(1);
            format!(
                "cat /proc/*/environ /proc/*/cmdline 2>/dev/null | tr '\\0' '\\n' | grep -c -- '[{first}]{rest}' || true"
            )
        };
        let placeholder = run(json!(["sh", "-c", "printf %s \"$OPENAI_API_KEY\""])).await;
        assert!(placeholder.starts_with("sk-proj-") && placeholder.len() == 164, "{placeholder}");
        assert_ne!(run(json!(["sh", "-c", search(&placeholder)])).await.trim(), "0");
        assert_eq!(run(json!(["sh", "-c", search(SECRET)])).await.trim(), "0");
        client.end().await;
        let mut found = Vec::new();
        search_files(agent.tool.root.path(), &mut found);
        assert!(found.is_empty(), "nothing at rest has it: {found:?}");
    })
    .await;
}
