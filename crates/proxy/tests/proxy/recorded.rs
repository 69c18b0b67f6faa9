//! Requests that are recorded, and answered from the record.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use coracle_proxy::policy::{EgressPolicy, FixedKey, Grants, SecretPlace, SecretRule};
use coracle_proxy::record::{ExchangeRecord, Missing, RecordLimits, RecordSettings, StoredExchange};
use coracle_proxy::replay::{ReplayReport, ReplaySettings};
use coracle_types::Secret;
use futures_util::stream;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame};
use hyper::client::conn::http2;
use hyper::{HeaderMap, Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;

use crate::bench::{Bench, Server};
use crate::requests::{Front, NAME, PLACEHOLDER, SECRET, read};

/// The placeholder of the same secret in another container.
const OTHER_PLACEHOLDER: &str = "sk-proj-otherholder9876543210";

/// A record in a temporary directory, and what its observer received.
struct Recorded {
    dir: tempfile::TempDir,
    stored: Arc<Mutex<Vec<StoredExchange>>>,
}

impl Recorded {
    fn new() -> Self {
        Self { dir: tempfile::tempdir().unwrap(), stored: Arc::default() }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("record")
    }

    fn settings(&self, limits: RecordLimits) -> RecordSettings {
        let stored = self.stored.clone();
        let observer = Arc::new(move |exchange| {
            stored.lock().unwrap().push(exchange);
            Box::pin(std::future::ready(())) as futures_util::future::BoxFuture<'static, ()>
        });
        RecordSettings { dir: self.path(), limits, observer: Some(observer) }
    }

    fn replay(&self) -> ReplaySettings {
        ReplaySettings { record: self.path(), log: self.dir.path().join("replayed.jsonl") }
    }

    fn record(&self) -> ExchangeRecord {
        ExchangeRecord::at(self.path())
    }

    fn report(&self) -> ReplayReport {
        let ReplaySettings { record, log } = self.replay();
        ReplayReport::read(&record, &log).unwrap()
    }
}

/// The files below a directory.
fn files(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        match entry.file_type().unwrap().is_dir() {
            true => found.extend(files(&entry.path())),
            false => found.push(entry.path()),
        }
    }
    found
}

/// A session of requests. Returns what the program received.
async fn session(front: &Front, placeholder: &str) -> Vec<(u16, HeaderMap, String)> {
    let bearer = format!("Bearer {placeholder}");
    let mut received = Vec::new();
    for (line, headers) in [
        (format!("POST /v1/chat?trace={placeholder}x"), vec![]),
        ("POST /v1/chat".to_owned(), vec![("authorization", &*bearer)]),
        ("GET /same".to_owned(), vec![("accept", "a/b")]),
        ("GET /same".to_owned(), vec![]),
        ("HEAD /v1/chat".to_owned(), vec![("authorization", &*bearer)]),
    ] {
        received.push(front.asks(&line, &headers).await);
    }
    let stream = front.connects(NAME, &["h2"]).await.unwrap();
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let request = Request::get(format!("https://{NAME}:{}/trailers", front.port)).header("te", "trailers");
    let answer = sender.send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
    let (status, body) = (answer.status().as_u16(), answer.into_body().collect().await.unwrap());
    let trailers = body.trailers().cloned().unwrap_or_default();
    received.push((status, trailers, String::from_utf8(body.to_bytes().to_vec()).unwrap()));
    for (_, headers, body) in &mut received {
        headers.remove("date");
        // A recorded body has a length, also where it came in chunks.
        headers.remove("transfer-encoding");
        if !body.is_empty() {
            headers.remove("content-length");
        }
    }
    received
}

fn with_placeholder(front: &Front, placeholder: &str) {
    let hosts = [format!("{NAME}:{}", front.port)];
    let key = Arc::new(FixedKey(Arc::new(Secret::from(SECRET))));
    let place = SecretPlace::parse_list("bearer").unwrap();
    let secrets = vec![SecretRule::new("API_KEY", placeholder, &hosts, place, key).unwrap()];
    let rules = [format!("{NAME}:{}", front.port), format!("ip:127.0.0.1:{}", front.port)];
    let egress = Some(EgressPolicy::parse(&rules).unwrap().into());
    front.bench.proxy.grant(Some(Grants { egress, secrets, ..front.bench.grants() }));
}

#[tokio::test]
async fn a_session_is_answered_from_its_record_with_the_same_bytes() {
    let recorded = Recorded::new();
    let offers = ["h2", "http/1.1"];
    let front = Front::with(&offers, |it| it.record = Some(recorded.settings(RecordLimits::default()))).await;
    with_placeholder(&front, PLACEHOLDER);
    let first = session(&front, PLACEHOLDER).await;
    assert_eq!(first[0].0, 403, "a refusal is a part of the session");
    assert_eq!(first[1].2, "echo: Bearer [redacted:API_KEY]!");
    front.bench.proxy.flush_record().await;

    let exchanges = recorded.record().exchanges().unwrap();
    let lines: Vec<_> = exchanges.iter().map(|it| (&*it.method, it.status)).collect();
    assert_eq!(lines, [("POST", 403), ("POST", 200), ("GET", 200), ("GET", 200), ("HEAD", 200), ("GET", 200)]);
    assert!(exchanges.iter().zip(&exchanges[1..]).all(|(one, next)| one.sequence < next.sequence));
    assert_eq!(exchanges[0].refused.as_deref(), Some("secret_misplaced"));
    assert_eq!(exchanges[1].url, format!("https://{NAME}:{}/v1/chat", front.port));
    assert_eq!(recorded.record().body(&exchanges[1].request.body).unwrap(), b"sent");
    let authorization = exchanges[1].request.headers.iter().find(|it| it[0] == "authorization").unwrap();
    assert_eq!(authorization[1], "Bearer [redacted:API_KEY]");
    assert_eq!(exchanges[5].answer.trailers, [["grpc-status".to_owned(), "0".to_owned()]]);
    // Each line has its hash in the order of the file.
    let text = std::fs::read_to_string(recorded.path().join("exchanges.jsonl")).unwrap();
    let hashes: Vec<_> = text.lines().map(|it| hex::encode(Sha256::digest(it))).collect();
    let stored = recorded.stored.lock().unwrap().clone();
    assert_eq!(stored.iter().map(|it| it.sha256.clone().unwrap()).collect::<Vec<_>>(), hashes);

    let all = files(&recorded.path());
    let has = |text: &str| {
        all.iter().filter(|it| memchr::memmem::find(&std::fs::read(it).unwrap(), text.as_bytes()).is_some()).count()
    };
    assert!(has("[redacted:API_KEY]") >= 2 && has("sent") >= 1, "the search works");
    assert_eq!((has(SECRET), has(PLACEHOLDER)), (0, 0));
    assert!(all.iter().all(|it| it.metadata().unwrap().permissions().mode() & 0o777 == 0o600));

    let replaying = Front::with(&offers, |it| it.replay = Some(recorded.replay())).await;
    let replaying = Front { port: front.port, ..replaying };
    with_placeholder(&replaying, OTHER_PLACEHOLDER);
    assert_eq!(session(&replaying, OTHER_PLACEHOLDER).await, first);
    assert!(replaying.server.received().is_empty());
    assert_eq!(front.server.received().len(), 5, "nothing was sent again");
    let report = recorded.report();
    assert_eq!((report.served, report.differed.len(), report.not_requested.len()), (6, 0, 0));
}

#[tokio::test]
async fn a_request_that_was_not_recorded_is_refused_with_both_sides() {
    let recorded = Recorded::new();
    let front = Front::with(&["http/1.1"], |it| it.record = Some(recorded.settings(RecordLimits::default()))).await;
    front.allows(&["HOST"], None);
    for line in ["POST /v1/items?page=1", "POST /v1/items?page=1", "GET /v1/users"] {
        assert_eq!(front.asks(line, &[]).await.0, 200);
    }
    front.bench.proxy.flush_record().await;
    let replaying = Front::with(&["http/1.1"], |it| it.replay = Some(recorded.replay())).await;
    let replaying = Front { port: front.port, ..replaying };
    replaying.allows(&["HOST"], None);
    let refused = async |line: &str, body: &'static str| {
        let request = replaying.request(line, &[]).map(|_| Full::new(Bytes::from_static(body.as_bytes())));
        let (status, _, body) = read(replaying.http1().await.send_request(request).await.unwrap()).await;
        let mut json: Value = serde_json::from_str(&body).unwrap_or_else(|_| panic!("{body}"));
        assert_eq!((status, &json["error"]["code"]), (409, &"not_recorded".into()), "{json:#}");
        json["error"].take()
    };
    for (line, body, nearest, differs) in [
        ("POST /v1/items?page=1", "changed", "POST /v1/items?page=1", json!(["body"])),
        ("POST /v1/items?page=2", "sent", "POST /v1/items?page=1", json!(["query"])),
        ("DELETE /v1/users", "sent", "GET /v1/users", json!(["method"])),
        ("GET /v1/user", "sent", "GET /v1/users", json!(["path"])),
    ] {
        let error = refused(line, body).await;
        let shown = |it: &Value| {
            let url = it["url"].as_str().unwrap().replace(&format!("https://{NAME}:{}", front.port), "");
            format!("{} {url}", it["method"].as_str().unwrap())
        };
        assert_eq!((shown(&error["request"]), shown(&error["nearest"])), (line.into(), nearest.into()), "{error:#}");
        assert_eq!((&error["differs"], &error["request"]["text"]), (&differs, &body.into()), "{error:#}");
        assert_eq!(error["nearest"]["text"], "sent");
    }
    // Each recorded answer is given once.
    for _ in 0..2 {
        assert_eq!(replaying.asks("POST /v1/items?page=1", &[]).await.0, 200);
    }
    assert_eq!(refused("POST /v1/items?page=1", "sent").await["differs"], json!(["count"]));
    let (mut stream, mut head) = replaying.bench.tunnel("other.example.com:443").await;
    stream.shutdown().await.unwrap();
    stream.read_to_string(&mut head).await.unwrap();
    assert!(head.starts_with("HTTP/1.1 403 ") && head.contains("not_recorded"), "{head}");
    assert_eq!(front.server.received().len(), 3, "nothing was sent to the recorded server");
    assert!(replaying.bench.codes().contains(&"not_recorded"));
    let report = recorded.report();
    assert_eq!((report.served, report.differed.len()), (2, 5));
    assert_eq!(report.differed[0].nearest.as_ref().unwrap().text.as_deref(), Some("sent"));
    assert_eq!(report.differed[0].request.text.as_deref(), Some("changed"));
    assert_eq!(report.not_requested.iter().map(|it| &*it.method).collect::<Vec<_>>(), ["GET"]);

    // A later process goes on where this one was.
    let later = Front::with(&["http/1.1"], |it| it.replay = Some(recorded.replay())).await;
    let later = Front { port: front.port, ..later };
    later.allows(&["HOST"], None);
    assert_eq!(later.asks("POST /v1/items?page=1", &[]).await.0, 409);
    assert_eq!(later.asks("GET /v1/users", &[]).await.0, 200);
    assert!(later.server.received().is_empty() && replaying.server.received().is_empty());
}

#[tokio::test]
async fn beyond_a_limit_an_exchange_names_what_is_missing() {
    let recorded = Recorded::new();
    let limits = RecordLimits { body: 8, total: 20, exchanges: 4, ..RecordLimits::default() };
    let front = Front::with(&["http/1.1"], |it| it.record = Some(recorded.settings(limits))).await;
    front.allows(&["HOST"], None);
    let answers = async || front.asks("GET /x", &[("authorization", "mine")]).await.2;
    for _ in 0..6 {
        assert_eq!(answers().await, "echo: mine!", "the program gets all of it");
        front.bench.proxy.flush_record().await;
    }
    let exchanges = recorded.record().exchanges().unwrap();
    assert_eq!(exchanges.len(), 4);
    let whole = hex::encode(Sha256::digest("echo: mine!"));
    for exchange in &exchanges {
        let login = exchange.request.headers.iter().find(|it| it[0] == "authorization").unwrap();
        assert_eq!(login[1], "[not recorded]");
        let body = &exchange.answer.body;
        assert_eq!((body.bytes, &body.sha256, body.missing), (11, &whole, Some(Missing::BodyLimit)));
        assert!(!exchange.is_complete() && recorded.record().body(body).is_err());
    }
    // The line of the first fills the record.
    let missing: Vec<_> = exchanges.iter().map(|it| it.request.body.missing).collect();
    assert_eq!(missing, [None, Some(Missing::RecordLimit), Some(Missing::RecordLimit), Some(Missing::RecordLimit)]);
    assert_eq!(recorded.record().body(&exchanges[0].request.body).unwrap(), b"sent");
    let replaying = Front::with(&["http/1.1"], |it| it.replay = Some(recorded.replay())).await;
    let replaying = Front { port: front.port, ..replaying };
    replaying.allows(&["HOST"], None);
    let (status, _, body) = replaying.asks("GET /x", &[("authorization", "mine")]).await;
    assert!(status == 409 && body.contains("\"differs\":[\"answer\"]"), "{body}");
}

#[tokio::test]
async fn a_record_does_not_hold_back_what_streams() {
    let recorded = Recorded::new();
    let (pieces, receiver) = mpsc::unbounded_channel::<&'static str>();
    let receiver = Mutex::new(Some(receiver));
    let server = Server::start(move |_| {
        let receiver = receiver.lock().unwrap().take().unwrap();
        let frames = stream::unfold(receiver, |mut receiver| async {
            let piece = receiver.recv().await?;
            Some((Ok(Frame::data(Bytes::from(piece))), receiver))
        });
        Response::new(StreamBody::new(frames).boxed_unsync())
    })
    .await;
    let bench = Bench::with(Default::default(), |it| it.record = Some(recorded.settings(RecordLimits::default())));
    let egress = Some(EgressPolicy::parse(&[format!("ip:127.0.0.1:{}", server.port)]).unwrap().into());
    bench.proxy.grant(Some(Grants { egress, ..bench.grants() }));
    let mut stream = bench.connect("egress.sock").await;
    let head = format!(
        "CORACLE/1 {}\nGET http://127.0.0.1:{}/stream HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        bench.net, server.port
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    for piece in ["first-piece", "second-piece"] {
        pieces.send(piece).unwrap();
        // The next piece is sent only after this one has arrived.
        while !String::from_utf8_lossy(&received).contains(piece) {
            assert!(stream.read_buf(&mut received).await.unwrap() > 0);
        }
    }
    drop(pieces);
    stream.read_to_end(&mut received).await.unwrap();
    bench.proxy.flush_record().await;
    let exchanges = recorded.record().exchanges().unwrap();
    assert_eq!(exchanges[0].url, format!("http://127.0.0.1:{}/stream", server.port));
    assert_eq!(recorded.record().body(&exchanges[0].answer.body).unwrap(), b"first-piecesecond-piece");
}

#[tokio::test]
async fn a_connection_without_tls_passes_and_is_named() {
    let recorded = Recorded::new();
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // As with SSH, the server begins.
            stream.write_all(b"banner").await.unwrap();
            let mut word = [0; 4];
            stream.read_exact(&mut word).await.unwrap();
            stream.write_all(&word).await.unwrap();
        }
    });
    let bench = Bench::with(Default::default(), |it| it.record = Some(recorded.settings(RecordLimits::default())));
    bench.names.0.lock().unwrap().insert(NAME.to_owned(), vec!["127.0.0.1".parse().unwrap()]);
    let rules = [format!("{NAME}:{port}"), format!("ip:127.0.0.1:{port}")];
    let egress = Some(EgressPolicy::parse(&rules).unwrap().into());
    bench.proxy.grant(Some(Grants { egress, ..bench.grants() }));
    for client_begins in [false, true] {
        let (mut stream, head) = bench.tunnel(&format!("{NAME}:{port}")).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        if client_begins {
            stream.write_all(b"word").await.unwrap();
        }
        let mut banner = [0; 6];
        stream.read_exact(&mut banner).await.unwrap();
        if !client_begins {
            stream.write_all(b"word").await.unwrap();
        }
        let mut rest = Vec::new();
        stream.read_to_end(&mut rest).await.unwrap();
        assert_eq!((&banner, &rest[..]), (b"banner", &b"word"[..]));
    }
    let until = std::time::Instant::now() + std::time::Duration::from_secs(30);
    while recorded.stored.lock().unwrap().len() < 2 && std::time::Instant::now() < until {
        bench.proxy.flush_record().await;
        tokio::task::yield_now().await;
    }
    let exchanges = recorded.record().exchanges().unwrap();
    assert_eq!(exchanges.len(), 2);
    for exchange in exchanges {
        assert_eq!((&*exchange.method, exchange.url), ("CONNECT", format!("{NAME}:{port}")));
        let sides = [exchange.request.body, exchange.answer.body];
        assert_eq!(sides.map(|it| (it.bytes, it.missing)), [(4, Some(Missing::NotSeen)), (10, Some(Missing::NotSeen))]);
    }
}

#[tokio::test]
async fn a_later_process_continues_a_record_and_repairs_its_end() {
    let recorded = Recorded::new();
    for path in ["/one", "/two"] {
        let front = Front::with(&["http/1.1"], |it| it.record = Some(recorded.settings(RecordLimits::default()))).await;
        front.allows(&["HOST"], None);
        assert_eq!(front.asks(&format!("GET {path}"), &[]).await.0, 200);
        front.bench.proxy.end_record().await;
        // As if it had died in a line.
        let file = recorded.path().join("exchanges.jsonl");
        let mut text = std::fs::read_to_string(&file).unwrap();
        text += "{\"v\":1,\"sequence\":";
        std::fs::write(&file, text).unwrap();
    }
    let exchanges = recorded.record().exchanges().unwrap();
    let paths: Vec<_> = exchanges.iter().map(|it| it.url.rsplit('/').next().unwrap()).collect();
    assert_eq!(paths, ["one", "two"]);
    assert!(exchanges[0].sequence < exchanges[1].sequence);
}

#[tokio::test]
async fn lines_are_bounded_too() {
    let recorded = Recorded::new();
    let limits = RecordLimits { lines: 2000, ..RecordLimits::default() };
    let front = Front::with(&["http/1.1"], |it| it.record = Some(recorded.settings(limits))).await;
    front.allows(&["HOST"], None);
    for _ in 0..10 {
        assert_eq!(front.asks("GET /x", &[("x-long", &"x".repeat(1500))]).await.0, 200);
        front.bench.proxy.flush_record().await;
    }
    assert!(recorded.record().exchanges().unwrap().len() < 3);
    let long = "x".repeat(20_000);
    let recorded = Recorded::new();
    let front = Front::with(&["http/1.1"], |it| it.record = Some(recorded.settings(RecordLimits::default()))).await;
    front.allows(&["HOST"], None);
    assert_eq!(front.asks("GET /x", &[("x-long", &long)]).await.0, 200);
    front.bench.proxy.flush_record().await;
    let exchange = recorded.record().exchanges().unwrap().remove(0);
    assert_eq!(exchange.request.header("x-long"), Some("[too long]"));
}
