//! Requests over TLS that the proxy ends: rules by method and path, secrets, and both versions of HTTP. The servers are
//! real ones with an authority that only the proxy trusts, and the client trusts only the proxy's.

use std::convert::Infallible;
use std::sync::{Arc, Mutex};

use coracle_proxy::policy::{EgressPolicy, FixedKey, Grants, SecretPlace, SecretRule};
use coracle_proxy::{Authority, ProxySettings, Timeouts};
use coracle_types::Secret;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::client::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer, ServerName};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use crate::bench::Bench;

pub(crate) const PLACEHOLDER: &str = "sk-proj-placeholder0123456789";
pub(crate) const SECRET: &str = "sk-real-canary-9876543210";

type Body = http_body_util::combinators::UnsyncBoxBody<Bytes, Infallible>;

/// A request that the server has received.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    version: Version,
    pub(crate) address: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

/// A server with TLS, and its authority.
pub(crate) struct TlsServer {
    pub(crate) port: u16,
    root: CertificateDer<'static>,
    received: Arc<Mutex<Vec<Received>>>,
    pub(crate) connections: Arc<Mutex<usize>>,
}

impl TlsServer {
    async fn start(name: &str, protocols: &[&str]) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (root, config) = server_config(name, protocols);
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let (received, connections) = (Arc::<Mutex<Vec<Received>>>::default(), Arc::<Mutex<usize>>::default());
        let (noted, counted) = (received.clone(), connections.clone());
        tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let (acceptor, noted, counted) = (acceptor.clone(), noted.clone(), counted.clone());
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    *counted.lock().unwrap() += 1;
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let service = service_fn(move |it| answered(noted.clone(), it));
                    let stream = TokioIo::new(stream);
                    if http2 {
                        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = http.serve_connection(stream, service).await;
                    } else {
                        let http = hyper::server::conn::http1::Builder::new();
                        let _ = http.serve_connection(stream, service).with_upgrades().await;
                    }
                });
            }
        });
        Self { port, root, received, connections }
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }
}

fn server_config(name: &str, protocols: &[&str]) -> (CertificateDer<'static>, ServerConfig) {
    let key = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    let der = key.cert.der().clone();
    let own = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.signing_key.serialize_der()));
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let mut config = config.with_no_client_auth().with_single_cert(vec![der.clone()], own).unwrap();
    config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
    (der, config)
}

/// Echoes the authorization, changes the protocol to one that echoes, or answers with trailers.
async fn answered(
    noted: Arc<Mutex<Vec<Received>>>,
    mut request: Request<Incoming>,
) -> Result<Response<Body>, Infallible> {
    let upgrades = request.headers().contains_key("upgrade").then(|| hyper::upgrade::on(&mut request));
    let (parts, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let address = parts.uri.to_string();
    noted.lock().unwrap().push(Received { version: parts.version, address, headers: parts.headers.clone(), body });
    let full = |text: Vec<u8>| Full::new(Bytes::from(text)).boxed_unsync();
    if let Some(upgrade) = upgrades {
        tokio::spawn(async move {
            let (mut from, mut to) = tokio::io::split(TokioIo::new(upgrade.await.unwrap()));
            let _ = tokio::io::copy(&mut from, &mut to).await;
        });
        let answer = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "echo");
        return Ok(answer.body(full(Vec::new())).unwrap());
    }
    let echo = parts.headers.get("authorization").map(|it| it.as_bytes().to_vec()).unwrap_or_default();
    if parts.uri.path() == "/trailers" {
        let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
        let frames = [Frame::data(Bytes::from_static(b"message")), Frame::trailers(trailers)].map(Ok);
        return Ok(Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync()));
    }
    let text = [b"echo: ".to_vec(), echo.clone(), b"!".to_vec()].concat();
    let answer = Response::builder().header("x-echo", &echo[..]).header("set-cookie", "a=b");
    Ok(answer.body(full(text)).unwrap())
}

/// A proxy in front of a server, both with authorities of their own.
pub(crate) struct Front {
    pub(crate) bench: Bench,
    pub(crate) server: TlsServer,
    /// The port that is requested: that of the server, unless a record answers.
    pub(crate) port: u16,
    pub(crate) authority: Arc<Authority>,
}

pub(crate) const NAME: &str = "api.example.com";

impl Front {
    pub(crate) async fn new(protocols: &[&str]) -> Self {
        Self::with(protocols, |_| {}).await
    }

    pub(crate) async fn with(protocols: &[&str], change: impl FnOnce(&mut ProxySettings)) -> Self {
        let server = TlsServer::start(NAME, protocols).await;
        let authority = Arc::new(Authority::generate("box").unwrap());
        let (signs, root) = (authority.clone(), server.root.clone());
        let bench = Bench::with(Timeouts::default(), |it| {
            (it.authority, it.roots) = (Some(signs), vec![root]);
            change(it);
        });
        bench.names.0.lock().unwrap().insert(NAME.to_owned(), vec!["127.0.0.1".parse().unwrap()]);
        Self { bench, port: server.port, server, authority }
    }

    /// Allows requests by rules, in which `HOST` is the server, and gives it the secret.
    pub(crate) fn allows(&self, rules: &[&str], place: Option<&str>) {
        let port = self.server.port;
        let mut rules: Vec<_> = rules.iter().map(|it| it.replace("HOST", &format!("{NAME}:{port}"))).collect();
        rules.push(format!("ip:127.0.0.1:{port}"));
        let egress = Some(EgressPolicy::parse(&rules).unwrap().into());
        let key = Arc::new(FixedKey(Arc::new(Secret::from(SECRET))));
        let secret = |place| {
            let hosts = [format!("{NAME}:{port}")];
            SecretRule::new("API_KEY", PLACEHOLDER, &hosts, SecretPlace::parse_list(place).unwrap(), key).unwrap()
        };
        let secrets = place.map(secret).into_iter().collect();
        self.bench.proxy.grant(Some(Grants { egress, secrets, ..self.bench.grants() }));
    }

    /// Opens a tunnel and begins TLS in it.
    pub(crate) async fn connects(&self, name: &str, protocols: &[&str]) -> std::io::Result<TlsStream<UnixStream>> {
        let (stream, head) = self.bench.tunnel(&format!("{NAME}:{}", self.port)).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_slice(self.authority.certificate().as_bytes()).unwrap()).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(roots).with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|it| it.as_bytes().to_vec()).collect();
        TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(name.to_owned()).unwrap(), stream).await
    }

    /// Connects with HTTP/1.1.
    pub(crate) async fn http1(&self) -> http1::SendRequest<Full<Bytes>> {
        let stream = self.connects(NAME, &["http/1.1"]).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection.with_upgrades());
        sender
    }

    pub(crate) fn request(&self, line: &str, headers: &[(&str, &str)]) -> Request<Full<Bytes>> {
        let (method, path) = line.split_once(' ').unwrap();
        let mut request = Request::builder().method(method).uri(path);
        if headers.iter().all(|it| it.0 != "host") {
            request = request.header("host", format!("{NAME}:{}", self.port));
        }
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.body(Full::new(Bytes::from_static(b"sent"))).unwrap()
    }

    /// Sends one request by a connection of its own.
    pub(crate) async fn asks(&self, line: &str, headers: &[(&str, &str)]) -> (u16, HeaderMap, String) {
        read(self.http1().await.send_request(self.request(line, headers)).await.unwrap()).await
    }

    async fn refused(&self, line: &str, headers: &[(&str, &str)]) -> (u16, String, Option<String>) {
        let (status, _, body) = self.asks(line, headers).await;
        let json: serde_json::Value = serde_json::from_str(&body).unwrap();
        let text = |name: &str| json["error"][name].as_str().map(str::to_owned);
        (status, text("code").unwrap(), text("rule"))
    }
}

pub(crate) async fn read(answer: Response<Incoming>) -> (u16, HeaderMap, String) {
    let (parts, body) = answer.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    (parts.status.as_u16(), parts.headers, String::from_utf8(body.to_vec()).unwrap())
}

#[tokio::test]
async fn a_rule_by_method_and_path_allows_only_such_requests() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["GET HOST/repos/acme/**"], None);
    let (status, headers, body) = front.asks("GET /repos/acme/web?x=1", &[("authorization", "mine")]).await;
    assert_eq!((status, &*body), (200, "echo: mine!"), "without a secret nothing is filtered");
    assert_eq!((&headers["set-cookie"], &headers["content-length"]), (&"a=b".parse().unwrap(), &"11".parse().unwrap()));
    let received = &front.server.received()[0];
    assert_eq!((&*received.address, &received.body[..]), ("/repos/acme/web?x=1", &b"sent"[..]));
    let at = front.server.port;
    for (line, rule) in [
        ("POST /repos/acme/web", Some(format!("POST {NAME}:{at}/repos/acme/web"))),
        ("GET /repos/other/web?secret=1", Some(format!("GET {NAME}:{at}/repos/other/web"))),
        ("GET /repos/acme/%2e%2e/other", None),
    ] {
        assert_eq!(front.refused(line, &[]).await, (403, "request_not_allowed".into(), rule), "{line}");
    }
    for host in ["other.example.com", NAME, "u@api.example.com"] {
        let refused = front.refused("GET /repos/acme/web", &[("host", host)]).await;
        assert_eq!(refused, (403, "host_mismatch".into(), None), "{host}");
    }
    assert_eq!(front.server.received().len(), 1, "a refused request is not sent");
    assert!(front.bench.codes().contains(&"request_not_allowed"));
    let log = front.bench.log(8).await;
    let line = log.iter().find(|it| it["status"] == 200 && it["route"] == "request").unwrap();
    assert_eq!(line["request"], "GET /repos/acme/web", "without the query");
    assert!(!format!("{log:?}").contains("secret="));
}

#[tokio::test]
async fn a_secret_is_filled_in_for_its_host_and_removed_from_the_answer() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["HOST"], Some("bearer"));
    let bearer = format!("Bearer {PLACEHOLDER}");
    let (status, headers, body) = front.asks("POST /v1/chat", &[("authorization", &bearer)]).await;
    let received = &front.server.received()[0];
    assert_eq!(received.headers["authorization"], format!("Bearer {SECRET}"));
    assert_eq!(received.headers["accept-encoding"], "identity");
    assert_eq!((status, &*body), (200, "echo: Bearer [redacted:API_KEY]!"));
    assert!(!headers.contains_key("x-echo"), "a header with the secret is left out: {headers:?}");
    for headers in [&[("x-other", &*bearer)][..], &[("authorization", PLACEHOLDER)], &[("cookie", PLACEHOLDER)]] {
        assert_eq!(front.refused("GET /", headers).await, (403, "secret_misplaced".into(), None), "{headers:?}");
    }
    assert_eq!(front.refused(&format!("GET /?key={PLACEHOLDER}"), &[]).await.1, "secret_misplaced");
    assert_eq!(front.server.received().len(), 1);
    let log = std::fs::read_to_string(front.bench.dir.path().join("proxy.jsonl")).unwrap();
    assert!(!log.contains(SECRET) && !log.contains(PLACEHOLDER), "{log}");
}

#[tokio::test]
async fn a_placeholder_that_is_sent_elsewhere_is_refused_and_reported() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["GET HOST/**"], Some("bearer"));
    let grants = {
        let key = Arc::new(FixedKey(Arc::new(Secret::from(SECRET))));
        let place = SecretPlace::parse_list("bearer").unwrap();
        let foreign = SecretRule::new("API_KEY", PLACEHOLDER, &["elsewhere.example.com"], place, key).unwrap();
        let port = front.server.port;
        let rules = [format!("GET {NAME}:{port}/**"), format!("ip:127.0.0.1:{port}")];
        let egress = Some(EgressPolicy::parse(&rules).unwrap().into());
        Grants { egress, secrets: vec![foreign], ..front.bench.grants() }
    };
    front.bench.proxy.grant(Some(grants));
    let bearer = format!("Bearer {PLACEHOLDER}");
    let refused = front.refused("GET /", &[("authorization", &bearer)]).await;
    assert_eq!(refused, (403, "secret_not_for_host".into(), None));
    assert!(front.server.received().is_empty() && front.bench.codes().contains(&"secret_not_for_host"));
    // Without TLS no secret is sent, to no host.
    let ask = format!(
        "CORACLE/1 {}\nGET http://127.0.0.1:{}/ HTTP/1.1\r\nHost: x\r\nAuthorization: {bearer}\r\nConnection: close\r\n\r\n",
        front.bench.net, front.server.port
    );
    let answer = String::from_utf8(front.bench.raw("egress.sock", ask.as_bytes()).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 403 ") && answer.contains("secret_not_for_host"), "{answer}");
}

#[tokio::test]
async fn http2_keeps_its_version_its_streams_and_its_trailers() {
    for (offers, version) in [(&["h2", "http/1.1"][..], Version::HTTP_2), (&["http/1.1"], Version::HTTP_11)] {
        let front = Front::new(offers).await;
        front.allows(&["HOST"], Some("bearer"));
        let stream = front.connects(NAME, &["h2", "http/1.1"]).await.unwrap();
        assert_eq!(stream.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
        let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let address = |path: &str| format!("https://{NAME}:{}{path}", front.server.port);
        let asks =
            (0..20).map(|n| {
                let mut sender = sender.clone();
                let request =
                    Request::get(address(&format!("/{n}"))).header("authorization", format!("Bearer {PLACEHOLDER}"));
                async move {
                    read(sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap()).await
                }
            });
        for (status, _, body) in futures_util::future::join_all(asks).await {
            assert_eq!((status, &*body), (200, "echo: Bearer [redacted:API_KEY]!"));
        }
        let request = Request::get(address("/trailers")).header("te", "trailers");
        let answer = sender.clone().send_request(request.body(Full::default()).unwrap()).await.unwrap();
        let body = answer.into_body().collect().await.unwrap();
        let trailers = body.trailers().cloned();
        assert_eq!(body.to_bytes(), "message");
        let received = front.server.received();
        assert!(received.iter().all(|it| it.version == version), "{received:?}");
        if version == Version::HTTP_2 {
            assert_eq!(trailers.unwrap()["grpc-status"], "0");
            assert_eq!(*front.server.connections.lock().unwrap(), 1, "all requests share one");
        }
    }
}

#[tokio::test]
async fn a_connection_can_change_its_protocol() {
    let front = Front::new(&["h2", "http/1.1"]).await;
    front.allows(&["HOST"], Some("bearer"));
    let headers =
        [("upgrade", "echo"), ("connection", "upgrade"), ("authorization", &*format!("Bearer {PLACEHOLDER}"))];
    let mut sender = front.http1().await;
    let answer = sender.send_request(front.request("GET /socket", &headers)).await.unwrap();
    assert_eq!(
        (answer.status(), &answer.headers()["upgrade"]),
        (StatusCode::SWITCHING_PROTOCOLS, &"echo".parse().unwrap())
    );
    let mut stream = TokioIo::new(hyper::upgrade::on(answer).await.unwrap());
    stream.write_all(b"hello").await.unwrap();
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).await.unwrap();
    assert_eq!(&echoed, b"hello");
    assert_eq!(front.server.received()[0].headers["authorization"], format!("Bearer {SECRET}"));
}

#[tokio::test]
async fn connections_are_reused_and_a_changed_rule_applies_to_the_next_request() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["GET HOST/**"], None);
    let mut sender = front.http1().await;
    for _ in 0..3 {
        assert_eq!(read(sender.send_request(front.request("GET /x", &[])).await.unwrap()).await.0, 200);
    }
    assert_eq!(*front.server.connections.lock().unwrap(), 1);
    front.allows(&["GET HOST/other"], None);
    assert_eq!(read(sender.send_request(front.request("GET /x", &[])).await.unwrap()).await.0, 403);
}

#[tokio::test]
async fn what_is_no_tls_or_for_another_name_or_not_trusted_goes_nowhere() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["GET HOST/**"], None);
    assert!(front.connects("other.example.com", &[]).await.is_err());
    let (mut stream, _) = front.bench.tunnel(&format!("{NAME}:{}", front.server.port)).await;
    stream.write_all(b"EHLO x\r\n").await.unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer).await;
    assert!(answer.is_empty() && *front.server.connections.lock().unwrap() == 0);
    assert_eq!(front.bench.codes(), ["sni_mismatch", "tls_required"]);
    // The certificate of the server is for another name than the requested one.
    let other = Front::new(&["http/1.1"]).await;
    let (rules, port) = (["GET wrong.example.com:PORT/**", "ip:127.0.0.1:PORT"], other.server.port.to_string());
    let rules: Vec<_> = rules.iter().map(|it| it.replace("PORT", &port)).collect();
    let egress = Some(EgressPolicy::parse(&rules).unwrap().into());
    other.bench.proxy.grant(Some(Grants { egress, ..other.bench.grants() }));
    other.bench.names.0.lock().unwrap().insert("wrong.example.com".into(), vec!["127.0.0.1".parse().unwrap()]);
    let (stream, head) = other.bench.tunnel(&format!("wrong.example.com:{port}")).await;
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(other.authority.certificate().as_bytes()).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let name = ServerName::try_from("wrong.example.com").unwrap();
    let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap();
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get("/x").header("host", format!("wrong.example.com:{port}"));
    let (status, _, body) =
        read(sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap()).await;
    assert!(status == 502 && body.contains("certificate_invalid"), "{status} {body}");
}
