//! Ways by which a program could reach what no rule allows, through a proxy that allows something else. Each is a row of
//! a table, and each table begins with what its rule opens. Other tests of this crate have more of them: names and
//! private addresses in `egress`, requests and secrets in `requests`, paths beside their parser.

use coracle_proxy::policy::{EgressPolicy, Grants};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use crate::bench::{Bench, Server, response};
use crate::requests::{Front, NAME, read};

/// Each answer's status, with the code of an answer of the proxy.
fn answers(received: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(received);
    let pieces = text.split("HTTP/1.1 ").skip(1);
    let code = |it: &str| Some(it.split_once("\"code\":\"")?.1.split('"').next()?.to_owned());
    pieces.map(|it| [&it[..3]].into_iter().chain(code(it).as_deref()).collect::<Vec<_>>().join(" ")).collect()
}

/// What the rows of a table abbreviate. `HOST` is the server.
const SHORT: [(&str, &str); 6] = [
    ("<a>", "GET /public/a HTTP/1.1|"),
    ("<own>", "Host: HOST|"),
    ("<evil>", "Host: evil.example|"),
    ("<end>", "Connection: close||"),
    ("|", "\r\n"),
    ("HOST", ""),
];

/// Sends the bytes of a row, and returns the answers.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, host: &str, bytes: &str) -> Vec<String> {
    let long =
        |bytes: String, (short, long): &(&str, &str)| bytes.replace(short, if long.is_empty() { host } else { long });
    let bytes = SHORT.iter().fold(bytes.to_owned(), long);
    // A proxy that refuses a request does not read the rest.
    let _ = stream.write_all(bytes.as_bytes()).await;
    let mut received = Vec::new();
    let _ = stream.read_to_end(&mut received).await;
    answers(&received)
}

const MISMATCH: &str = "403 host_mismatch";
const NOT_ALLOWED: &str = "403 request_not_allowed";

/// Bytes in TLS that the proxy ends under the rule `GET HOST/public/**`; the answers; what the server receives.
type Row = (&'static str, &'static str, &'static [&'static str], &'static [&'static str]);

const IN_TLS: &[Row] = &[
    ("control", "<a><own><end>", &["200"], &["/public/a"]),
    (
        "two that are allowed",
        "<a><own>|GET /public/b HTTP/1.1|<own><end>",
        &["200", "200"],
        &["/public/a", "/public/b"],
    ),
    ("no host", "<a><end>", &[MISMATCH], &[]),
    ("two hosts", "<a><own><evil><end>", &[MISMATCH], &[]),
    ("another port", "<a>Host: api.example.com:1|<end>", &[MISMATCH], &[]),
    ("a URL of another host", "GET http://evil.example/public/a HTTP/1.1|<own><end>", &[MISMATCH], &[]),
    ("a user before the host", "GET https://HOST@evil.example/public/a HTTP/1.1|<own><end>", &[MISMATCH], &[]),
    ("a tunnel in the tunnel", "CONNECT evil.example:443 HTTP/1.1|Host: evil.example:443|<end>", &[MISMATCH], &[]),
    ("the next request to another host", "<a><own>|<a><evil><end>", &["200", MISMATCH], &["/public/a"]),
    (
        "the next request to another path",
        "<a><own>|GET /private HTTP/1.1|<own><end>",
        &["200", NOT_ALLOWED],
        &["/public/a"],
    ),
    ("two lengths", "<a><own>Content-Length: 0|Content-Length: 44||GET /private HTTP/1.1|<own><end>", &["400"], &[]),
    (
        "a length and chunks",
        "<a><own>Content-Length: 60|Transfer-Encoding: chunked||0||GET /private HTTP/1.1|<own><end>",
        &["200"],
        &["/public/a"],
    ),
    (
        "an unknown encoding",
        "<a><own>Transfer-Encoding: chunked, x||0||GET /private HTTP/1.1|<own><end>",
        &["400"],
        &[],
    ),
    ("a folded header", "<a><own>X-A: b| <evil><end>", &["400"], &[]),
    ("a space before the colon", "<a><own>Content-Length : 5|<end>", &["400"], &[]),
    ("lines without a return", "GET /public/a HTTP/1.1\nHost: HOST\nConnection: close\n\n", &["200"], &["/public/a"]),
    ("a return in a header", "<a><own>X-A: b\rGET /private HTTP/1.1|<end>", &["400"], &[]),
    ("a zero byte in a header", "<a>Host: HOST\0.evil.example|<end>", &["400"], &[]),
    ("a zero byte in the path", "GET /public/a\0 HTTP/1.1|<own><end>", &["400"], &[]),
    ("the connection's own header", "<a><own>Connection: close, host||", &["200"], &["/public/a"]),
    ("another method by a header", "<a><own>X-HTTP-Method-Override: DELETE|<end>", &[NOT_ALLOWED], &[]),
    ("another path by a header", "<a><own>X-Original-URL: /private|<end>", &[NOT_ALLOWED], &[]),
    (
        "an upgrade to HTTP/2",
        "<a><own>Upgrade: h2c|HTTP2-Settings: AAMAAABkAAQAAP__|Connection: Upgrade, HTTP2-Settings, close||",
        &["200"],
        &["/public/a"],
    ),
    (
        "an upgrade to one of two",
        "<a><own>Upgrade: websocket, TLS/1.3|Connection: Upgrade, close||",
        &["200"],
        &["/public/a"],
    ),
    (
        "a WebSocket on another path",
        "GET /private HTTP/1.1|<own>Upgrade: websocket|Connection: Upgrade, close||",
        &[NOT_ALLOWED],
        &[],
    ),
];

/// How many requests of a table reach its server.
fn reached(rows: &[Row]) -> usize {
    rows.iter().map(|it| it.3.len()).sum()
}

#[tokio::test]
async fn no_request_in_tls_gets_around_a_rule() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["GET HOST/public/**"], None);
    let host = format!("{NAME}:{}", front.server.port);
    for (name, bytes, expected, reached) in IN_TLS {
        let before = front.server.received().len();
        let stream = front.connects(NAME, &["http/1.1"]).await.unwrap();
        assert_eq!(exchange(stream, &host, bytes).await, *expected, "{name}");
        let received = front.server.received().split_off(before);
        assert_eq!(received.iter().map(|it| &*it.address).collect::<Vec<_>>(), *reached, "{name}");
        assert!(received.iter().all(|it| it.headers["host"] == *host && !it.headers.contains_key("upgrade")), "{name}");
    }
    // A head that is larger than any server accepts ends the connection.
    let large = format!("<a><own>X-A: {}|<end>", "x".repeat(1 << 20));
    let stream = front.connects(NAME, &["http/1.1"]).await.unwrap();
    let answers = exchange(stream, &host, &large).await;
    assert!(answers == ["431"] || answers.is_empty(), "{answers:?}");
    assert_eq!(front.server.received().len(), reached(IN_TLS));
}

#[tokio::test]
async fn no_request_of_http2_gets_around_a_rule() {
    let front = Front::new(&["h2", "http/1.1"]).await;
    front.allows(&["GET HOST/public/**"], None);
    let stream = front.connects(NAME, &["h2"]).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let own = format!("{NAME}:{}", front.server.port);
    for (authority, path, header, status) in [
        (&*own, "/public/a", None, 200),
        (&*own, "/private", None, 403),
        ("evil.example", "/public/a", None, 403),
        (NAME, "/public/a", None, 403),
        (&*own, "/public/a", Some(("host", "evil.example")), 403),
        (&*own, "/public/a", Some(("x-http-method-override", "DELETE")), 403),
    ] {
        let mut request = Request::get(format!("https://{authority}{path}"));
        if let Some((name, value)) = header {
            request = request.header(name, value);
        }
        let sent = sender.clone().send_request(request.body(Full::<Bytes>::default()).unwrap()).await.unwrap();
        assert_eq!(read(sent).await.0, status, "{authority}{path} {header:?}");
    }
    assert_eq!(front.server.received().len(), 1);
}

#[tokio::test]
async fn each_new_connection_of_a_tunnel_is_checked_again() {
    let front = Front::new(&["http/1.1"]).await;
    front.allows(&["GET HOST/**"], None);
    let stream = front.connects(NAME, &["h2"]).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    // The name leads to another machine of this host's network from now on. The first connection is made already.
    front.bench.names.0.lock().unwrap().insert(NAME.to_owned(), vec!["127.0.0.2".parse().unwrap()]);
    let all = (0..8).map(|n| {
        let uri = format!("https://{NAME}:{}/{n}", front.server.port);
        let sent = sender.clone().send_request(Request::get(uri).body(Full::<Bytes>::default()).unwrap());
        async { read(sent.await.unwrap()).await }
    });
    let mut refused = futures_util::future::join_all(all).await;
    refused.retain(|it| it.0 != 200);
    assert!(!refused.is_empty() && refused.iter().all(|it| it.2.contains("private_address")), "{refused:?}");
    assert_eq!(*front.server.connections.lock().unwrap(), 1);
}

/// Bytes in a tunnel to a port without TLS whose whole host is allowed.
const PLAIN: &[Row] = &[
    ("control", "GET /a HTTP/1.1|<own><end>", &["200"], &["GET /a"]),
    ("another host", "GET /a HTTP/1.1|<evil><end>", &[MISMATCH], &[]),
    ("empty lines first", "|\nGET /a HTTP/1.1|<evil><end>", &[MISMATCH], &[]),
    ("a method of its own", "x-own /a HTTP/1.1|<evil><end>", &[MISMATCH], &[]),
    ("a URL of another host", "GET http://evil.example/a HTTP/1.1|<own><end>", &[MISMATCH], &[]),
    ("a URL without a version", "GET http://evil.example/a|", &["400"], &[]),
    ("the next request", "GET /a HTTP/1.1|<own>|GET /b HTTP/1.1|<evil><end>", &["200", MISMATCH], &["GET /a"]),
    ("a tunnel in the tunnel", "CONNECT evil.example:80 HTTP/1.1|Host: evil.example:80|<end>", &[MISMATCH], &[]),
    ("an upgrade to HTTP/2", "GET /a HTTP/1.1|<own>Upgrade: h2c|Connection: Upgrade, close||", &["200"], &["GET /a"]),
    ("TLS without a name", "\x16\x03\x01\x00\x05\x01\x00\x00\x01\x03", &[], &[]),
];

/// A ClientHello for that server, with an encrypted one.
fn hidden_hello(name: &str) -> Vec<u8> {
    let list = |width: usize, bytes: &[u8]| [&bytes.len().to_be_bytes()[8 - width..], bytes].concat();
    let named = list(2, &list(2, &[&[0][..], &list(2, name.as_bytes())].concat()));
    let extensions = [&[0, 0][..], &named, &[0xfe, 0x0d], &list(2, &[0; 40])].concat();
    let hello = [&[3, 3][..], &[7; 32], &list(1, &[]), &list(2, &[0x13, 1]), &list(1, &[0]), &list(2, &extensions)];
    let message = [&[1][..], &list(3, &hello.concat())].concat();
    [&[22, 3, 1][..], &list(2, &message)].concat()
}

#[tokio::test]
async fn a_tunnel_to_an_allowed_host_leads_to_no_other_host_of_its_server() {
    let server = Server::start(|_| response(200, "text/plain", "hello")).await;
    let (bench, host) = (Bench::new(), format!("plain.example.com:{}", server.port));
    bench.names.0.lock().unwrap().insert("plain.example.com".to_owned(), vec!["127.0.0.1".parse().unwrap()]);
    let rules = [host.clone(), format!("ip:127.0.0.1:{}", server.port)];
    bench.proxy.grant(Some(Grants { egress: Some(EgressPolicy::parse(&rules).unwrap().into()), ..bench.grants() }));
    for (name, bytes, expected, reached) in PLAIN {
        let before = server.requests().len();
        let (stream, head) = bench.tunnel(&host).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        assert_eq!(exchange(stream, &host, bytes).await, *expected, "{name}");
        let received = server.requests().split_off(before);
        assert_eq!(received.iter().map(|it| &*it.line).collect::<Vec<_>>(), *reached, "{name}");
    }
    // HTTP/2 without TLS, which this server does not speak.
    for (authority, expected) in [(&*host, "connect_failed"), ("evil.example", "host_mismatch")] {
        let (stream, _) = bench.tunnel(&host).await;
        let (mut sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::get(format!("http://{authority}/a")).body(Full::<Bytes>::default()).unwrap();
        let (_, _, body) = read(sender.send_request(request).await.unwrap()).await;
        assert!(body.contains(expected), "{authority}: {body}");
    }
    // Only the server can tell for which host this is, so the proxy ends its TLS.
    let (mut stream, _) = bench.tunnel(&host).await;
    stream.write_all(&hidden_hello("plain.example.com")).await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    assert_eq!(bench.codes().last(), Some(&"certificate_refused"));
    let (mut stream, _) = bench.tunnel(&host).await;
    stream.write_all(&hidden_hello("evil.example")).await.unwrap();
    let _ = stream.read_to_end(&mut Vec::new()).await;
    assert_eq!(bench.codes().last(), Some(&"sni_mismatch"));
    assert_eq!(server.requests().len(), reached(PLAIN));
}

/// Targets of `CONNECT` and the code; `PORT` is that of a server at 127.0.0.1.
const TARGETS: &[(&str, &str)] = &[
    ("0x7f000001:PORT", "ip_not_allowed"),
    ("0177.0.0.1:PORT", "ip_not_allowed"),
    ("127.1:PORT", "ip_not_allowed"),
    ("127.0.0.1.:PORT", "ip_not_allowed"),
    ("[::ffff:127.0.0.1]:PORT", "ip_not_allowed"),
    ("[::127.0.0.1]:PORT", "ip_not_allowed"),
    ("LOCAL.example.com.:PORT", "private_address"),
    ("1ocal.example.com:PORT", "host_not_allowed"),
    ("xn--lcal-55d.example.com:PORT", "host_not_allowed"),
    ("local.example.com.evil.example:PORT", "host_not_allowed"),
    ("evil@local.example.com:PORT", "bad_request"),
    ("local.example.com:PORT@evil.example:443", "bad_request"),
    ("local.example.com%2eevil.example:PORT", "bad_request"),
    ("local.example.com:PORT:443", "bad_request"),
    ("local.example.com:+PORT", "private_address"),
    ("local.example.com", "bad_request"),
    ("127.0.0.1%25lo:PORT", "bad_request"),
];

#[tokio::test]
async fn no_spelling_of_a_target_gets_around_a_rule() {
    let server = Server::start(|_| response(200, "text/plain", "hello")).await;
    let bench = Bench::new();
    bench.names.0.lock().unwrap().insert("local.example.com".to_owned(), vec!["127.0.0.1".parse().unwrap()]);
    let allows = |by_address: bool| {
        let address = by_address.then(|| format!("ip:127.0.0.1:{}", server.port));
        let rules: Vec<_> = [format!("local.example.com:{}", server.port)].into_iter().chain(address).collect();
        bench.proxy.grant(Some(Grants { egress: Some(EgressPolicy::parse(&rules).unwrap().into()), ..bench.grants() }));
    };
    for (target, code) in TARGETS {
        let target = target.replace("PORT", &server.port.to_string());
        let ask = format!("CORACLE/1 {}\nCONNECT {target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n", bench.net);
        allows(false);
        let answer = answers(&bench.raw("egress.sock", ask.as_bytes()).await);
        // What is no address at all is refused by the parser, without a code.
        let is_expected = |it: &String| it.ends_with(code) || (*code == "bad_request" && it == "400");
        assert!(answer.len() == 1 && is_expected(&answer[0]), "{target}: {answer:?}");
        // A rule for the address opens each spelling of it.
        allows(true);
        let (_, head) = bench.tunnel(&target).await;
        let opens = matches!(*code, "ip_not_allowed" | "private_address") && !target.starts_with("[::127");
        assert_eq!(head.starts_with("HTTP/1.1 200 "), opens, "{target}: {head}");
    }
    assert!(server.requests().is_empty());
}
