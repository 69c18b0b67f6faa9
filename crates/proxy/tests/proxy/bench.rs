//! A proxy that listens, servers behind it, and a client.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coracle_proxy::listen::ProxyListener;
use coracle_proxy::policy::{FixedKey, Grants, ProviderConfig, ProviderKind, Tokens};
use coracle_proxy::token::TokenHash;
use coracle_proxy::{Proxy, ProxyEvent, ProxySettings, Resolver, Timeouts};
use coracle_types::{ProfileName, Secret};
use futures_util::stream::{self, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio::task::JoinHandle;

pub(crate) const KEY: &str = "sk-canary-0123456789";

type Body = UnsyncBoxBody<Bytes, io::Error>;
type Answers = dyn Fn(&ReceivedRequest) -> Response<Body> + Send + Sync;

/// A request that a server behind the proxy has received.
#[derive(Clone, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) line: String,
    pub(crate) headers: BTreeMap<String, String>,
    pub(crate) body: Bytes,
}

/// A server on loopback.
pub(crate) struct Server {
    pub(crate) port: u16,
    requests: Arc<Mutex<Vec<ReceivedRequest>>>,
    listens: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(answers: impl Fn(&ReceivedRequest) -> Response<Body> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (requests, answers): (_, Arc<Answers>) = (Arc::<Mutex<Vec<ReceivedRequest>>>::default(), Arc::new(answers));
        let seen = requests.clone();
        let listens = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (seen, answers) = (seen.clone(), answers.clone());
                let service = service_fn(move |request: Request<hyper::body::Incoming>| {
                    let (seen, answers) = (seen.clone(), answers.clone());
                    async move {
                        let (parts, body) = request.into_parts();
                        let text = |it: &hyper::header::HeaderValue| it.to_str().unwrap().to_owned();
                        let headers = parts.headers.iter().map(|it| (it.0.to_string(), text(it.1))).collect();
                        let body = body.collect().await.unwrap().to_bytes();
                        let request =
                            ReceivedRequest { line: format!("{} {}", parts.method, parts.uri), headers, body };
                        seen.lock().unwrap().push(request.clone());
                        Ok::<_, Infallible>(answers(&request))
                    }
                });
                let serving =
                    hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                tokio::spawn(serving);
            }
        });
        Self { port, requests, listens }
    }

    pub(crate) fn requests(&self) -> Vec<ReceivedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

pub(crate) fn response(status: u16, content_type: &str, text: impl Into<Bytes>) -> Response<Body> {
    let body = Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync();
    Response::builder().status(status).header("content-type", content_type).body(body).unwrap()
}

/// Responds with pieces, with a pause before each.
pub(crate) fn slowly(content_type: &str, pieces: Vec<String>, pause: Duration) -> Response<Body> {
    let pieces = stream::iter(pieces).then(move |it| async move {
        tokio::time::sleep(pause).await;
        Ok(Frame::data(Bytes::from(it)))
    });
    Response::builder().header("content-type", content_type).body(StreamBody::new(pieces).boxed_unsync()).unwrap()
}

/// Names and their addresses.
#[derive(Debug, Default)]
pub(crate) struct Names(pub(crate) Mutex<BTreeMap<String, Vec<IpAddr>>>);

#[async_trait]
impl Resolver for Names {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        self.0.lock().unwrap().get(name).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }
}

/// A proxy with one container's tokens.
pub(crate) struct Bench {
    pub(crate) proxy: Proxy,
    pub(crate) llm: String,
    pub(crate) net: String,
    pub(crate) names: Arc<Names>,
    pub(crate) events: Arc<Mutex<Vec<ProxyEvent>>>,
    pub(crate) dir: TempDir,
    _listening: ProxyListener,
}

fn text(secret: &Secret) -> String {
    String::from_utf8(secret.reveal().to_vec()).unwrap()
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_pace(Timeouts::default())
    }

    pub(crate) fn with_pace(pace: Timeouts) -> Self {
        Self::with(pace, |_| {})
    }

    pub(crate) fn with(pace: Timeouts, change: impl FnOnce(&mut ProxySettings)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let (names, events) = (Arc::new(Names::default()), Arc::<Mutex<Vec<ProxyEvent>>>::default());
        let received = events.clone();
        let mut settings = ProxySettings {
            log: Some(dir.path().join("proxy.jsonl")),
            observer: Some(Arc::new(move |it| received.lock().unwrap().push(it))),
            resolver: names.clone(),
            pace,
            ..ProxySettings::new("box")
        };
        change(&mut settings);
        let proxy = Proxy::new(settings).unwrap();
        let listening = ProxyListener::open(&proxy, dir.path()).unwrap();
        let fresh = || text(&coracle_proxy::token::fresh_token());
        Self { proxy, llm: fresh(), net: fresh(), names, events, dir, _listening: listening }
    }

    /// Returns grants with the container's tokens and nothing else.
    pub(crate) fn grants(&self) -> Grants {
        let hash = |it: &String| Some(TokenHash::from_token(it.as_bytes()));
        Grants::new(
            ProfileName::parse("web").unwrap(),
            Tokens { llm: hash(&self.llm).into_iter().collect(), net: hash(&self.net) },
        )
    }

    /// Returns the same grants with a provider at that port.
    pub(crate) fn with_provider(&self, kind: ProviderKind, port: u16) -> Grants {
        let key = Arc::new(FixedKey(Arc::new(Secret::from(KEY))));
        let base = format!("http://127.0.0.1:{port}/v1");
        let provider = ProviderConfig::new(kind, &base, key, &["gpt-*".to_owned()]).unwrap();
        Grants { provider: Some(provider), ..self.grants() }
    }

    pub(crate) async fn connect(&self, socket: &str) -> UnixStream {
        UnixStream::connect(self.dir.path().join(socket)).await.unwrap()
    }

    /// Sends bytes and returns the complete answer.
    pub(crate) async fn raw(&self, socket: &str, bytes: &[u8]) -> Vec<u8> {
        let mut stream = self.connect(socket).await;
        // A proxy that refuses a request does not read the rest.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        answer
    }

    /// Sends one request with both tokens, as a worker does.
    pub(crate) async fn asks(&self, line: &str, headers: &str, body: &str) -> Answer {
        let token = format!("X-Coracle-Token: {}\r\n{headers}", self.llm);
        self.asks_with(&self.net, line, &token, body).await
    }

    pub(crate) async fn asks_with(&self, net: &str, line: &str, headers: &str, body: &str) -> Answer {
        let length = if body.is_empty() { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
        let head =
            format!("CORACLE/1 {net}\n{line} HTTP/1.1\r\nHost: proxy\r\nConnection: close\r\n{length}{headers}\r\n");
        Answer::of(self.raw("api.sock", (head + body).as_bytes()).await)
    }

    pub(crate) async fn chats(&self, model: &str) -> Answer {
        self.asks("POST /proxy/v1/chat/completions", "", &format!(r#"{{"model":"{model}"}}"#)).await
    }

    /// Waits until the log has `count` lines, and returns them.
    pub(crate) async fn log(&self, count: usize) -> Vec<Value> {
        let path = self.dir.path().join("proxy.jsonl");
        for _ in 0..500 {
            let text = std::fs::read_to_string(&path).unwrap();
            if text.lines().count() >= count {
                return text.lines().map(|it| serde_json::from_str(it).unwrap()).collect();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        panic!("the log has no {count} lines: {}", std::fs::read_to_string(&path).unwrap());
    }

    pub(crate) fn codes(&self) -> Vec<&'static str> {
        self.events.lock().unwrap().iter().map(|it| it.code).collect()
    }
}

/// An answer of the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn of(bytes: Vec<u8>) -> Self {
        let text = String::from_utf8(bytes).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|it| it.parse().ok()).unwrap_or(0);
        let chunked = head.to_ascii_lowercase().contains("transfer-encoding: chunked");
        let body = if chunked { dechunked(body) } else { body.to_owned() };
        Self { status, head: head.to_ascii_lowercase(), body }
    }

    /// Returns the status, and the code of an answer of the proxy itself.
    pub(crate) fn refusal(&self) -> (u16, String) {
        let json: Value = serde_json::from_str(&self.body).unwrap_or_default();
        (self.status, json["error"]["code"].as_str().unwrap_or_default().to_owned())
    }
}

/// Decodes the chunks that have arrived.
fn dechunked(mut rest: &str) -> String {
    let mut body = String::new();
    while let Some((size, after)) = rest.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        let Some((piece, after)) = after.split_at_checked(size) else { break };
        body += piece;
        rest = after.strip_prefix("\r\n").unwrap_or(after);
    }
    body
}
