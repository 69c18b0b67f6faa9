//! Names outside. The servers of these tests are on loopback, so a rule has to contain their addresses. For everything
//! else, the tests check that it is refused.

use std::time::Duration;

use coracle_proxy::Timeouts;
use coracle_proxy::policy::{EgressPolicy, Grants};
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, UnixStream};

use crate::bench::{Answer, Bench, Server, response};

impl Bench {
    fn allows(&self, rules: &[&str], generation: u64) {
        let egress = Some(EgressPolicy::parse(rules).unwrap().into());
        self.proxy.grant(Some(Grants { egress, generation, ..self.grants() }));
    }

    fn leads(&self, name: &str, addresses: &[&str]) {
        let addresses = addresses.iter().map(|it| it.parse().unwrap()).collect();
        self.names.0.lock().unwrap().insert(name.to_owned(), addresses);
    }

    /// Opens a tunnel, and returns the connection with the head of the answer.
    pub(crate) async fn tunnel(&self, target: &str) -> (UnixStream, String) {
        let mut stream = self.connect("egress.sock").await;
        let ask = format!("CORACLE/1 {}\nCONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n", self.net);
        stream.write_all(ask.as_bytes()).await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {
            if head.windows(4).any(|it| it == b"\r\n\r\n") {
                break;
            }
        }
        (stream, String::from_utf8(head).unwrap())
    }

    async fn refused(&self, target: &str) -> String {
        let (mut stream, mut head) = self.tunnel(target).await;
        stream.shutdown().await.unwrap();
        stream.read_to_string(&mut head).await.unwrap();
        assert!(head.starts_with("HTTP/1.1 403 "), "{target}: {head}");
        let json: Value = serde_json::from_str(head.split_once("\r\n\r\n").unwrap().1).unwrap();
        json["error"]["code"].as_str().unwrap().to_owned()
    }
}

/// Starts a server that echoes what it receives.
async fn echo() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                let _ = to.shutdown().await;
            });
        }
    });
    port
}

#[tokio::test]
async fn x61_a_destination_without_a_rule_is_refused_with_its_code_and_an_event() {
    let bench = Bench::new();
    bench.allows(&["pypi", "*.below.org", "inside.org", "rebound.org"], 3);
    bench.leads("inside.org", &["10.0.0.1", "169.254.169.254", "fd00::1", "::ffff:127.0.0.1"]);
    bench.leads("a.below.org", &["127.0.0.1"]);
    for (target, code) in [
        ("example.com:443", "host_not_allowed"),
        ("pypi.org:22", "port_not_allowed"),
        ("93.184.216.34:443", "ip_not_allowed"),
        ("[::1]:443", "ip_not_allowed"),
        ("2130706433:443", "ip_not_allowed"),
        ("a.b.below.org:443", "host_not_allowed"),
        ("inside.org:443", "private_address"),
        ("a.below.org:443", "private_address"),
        ("pypi.org:443", "name_not_found"),
    ] {
        assert_eq!(bench.refused(target).await, code, "{target}");
    }
    let events = bench.events.lock().unwrap().clone();
    assert_eq!(events.len(), 9);
    assert_eq!((events[0].target.as_deref(), events[0].policy_generation), (Some("example.com:443"), 3));
    let log = bench.log(9).await;
    assert!(log.iter().all(|it| it["policy_generation"] == 3 && it["status"] == 403), "{log:?}");
}

#[tokio::test]
async fn an_address_with_a_rule_is_reached_and_a_half_closed_connection_stays_open() {
    let (bench, port) = (Bench::new(), echo().await);
    bench.allows(&[&format!("ip:127.0.0.1:{port}"), &format!("local.test:{port}")], 1);
    bench.leads("local.test", &["10.0.0.1", "127.0.0.1"]);
    for host in ["127.0.0.1", "local.test"] {
        let (mut stream, head) = bench.tunnel(&format!("{host}:{port}")).await;
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        let large = vec![b'x'; 300_000];
        let (mut from, mut to) = stream.split();
        let mut answer = Vec::new();
        let (_, read) = tokio::join!(
            async {
                to.write_all(&large).await.unwrap();
                to.shutdown().await.unwrap();
            },
            from.read_to_end(&mut answer)
        );
        assert_eq!((read.unwrap(), answer == large), (300_000, true));
    }
    let log = bench.log(2).await;
    assert_eq!((&log[1]["bytes_in"], &log[1]["bytes_out"]), (&300_000.into(), &300_000.into()));
    assert_eq!((&log[1]["route"], &log[1]["host"]), (&"connect".into(), &format!("local.test:{port}").into()));
}

#[tokio::test]
async fn plain_requests_are_forwarded_without_the_headers_of_the_connection() {
    let server = Server::start(|_| response(200, "text/plain", "hello")).await;
    let (bench, port) = (Bench::new(), server.port);
    bench.allows(&[&format!("ip:127.0.0.1:{port}")], 1);
    let ask = |url: &str| {
        format!(
            "CORACLE/1 {}\nGET {url} HTTP/1.1\r\nHost: other\r\nProxy-Authorization: x\r\nX-Own: y\r\nConnection: close\r\n\r\n",
            bench.net
        )
    };
    let answer = Answer::of(bench.raw("egress.sock", ask(&format!("http://127.0.0.1:{port}/a?b")).as_bytes()).await);
    assert_eq!((answer.status, &*answer.body), (200, "hello"));
    let request = server.requests().remove(0);
    assert_eq!((request.line.as_str(), request.headers["host"].as_str()), ("GET /a?b", &*format!("127.0.0.1:{port}")));
    assert!(request.headers.contains_key("x-own") && !request.headers.contains_key("proxy-authorization"));
    for (url, expected) in [("/path", (400, "bad_request")), ("http://example.com/", (403, "host_not_allowed"))] {
        let answer = Answer::of(bench.raw("egress.sock", ask(url).as_bytes()).await);
        assert_eq!(answer.refusal(), (expected.0, expected.1.to_owned()), "{url}");
    }
}

#[tokio::test]
async fn x62_without_a_policy_or_with_an_empty_one_nothing_is_reached() {
    let bench = Bench::new();
    bench.proxy.grant(Some(bench.grants()));
    assert_eq!(bench.refused("example.com:443").await, "policy_missing");
    bench.allows(&[], 1);
    assert_eq!(bench.refused("example.com:443").await, "host_not_allowed");
    assert!(EgressPolicy::parse(&["example.com", "http://x"]).is_err());
    bench.proxy.grant(None);
    let (_, head) = bench.tunnel("example.com:443").await;
    assert!(head.starts_with("HTTP/1.1 401 "), "{head}");
}

#[tokio::test]
async fn x63_replacing_a_policy_closes_connections_that_it_no_longer_allows() {
    let (bench, port, other) = (Bench::new(), echo().await, echo().await);
    let (first, second) = (format!("ip:127.0.0.1:{port}"), format!("ip:127.0.0.1:{other}"));
    bench.allows(&[&first, &second], 1);
    let (mut closes, _) = bench.tunnel(&format!("127.0.0.1:{port}")).await;
    let (mut stays, _) = bench.tunnel(&format!("127.0.0.1:{other}")).await;
    bench.allows(&[&second], 2);
    let ended = tokio::time::timeout(Duration::from_secs(5), closes.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "closed at once");
    stays.write_all(b"still").await.unwrap();
    let mut answer = [0; 5];
    stays.read_exact(&mut answer).await.unwrap();
    assert_eq!(&answer, b"still");
    assert_eq!(bench.refused(&format!("127.0.0.1:{port}")).await, "port_not_allowed");
    assert_eq!(bench.codes(), ["policy_changed", "port_not_allowed"]);
    let log = bench.log(2).await;
    let logged: Vec<_> = log.iter().map(|it| (it["policy_generation"].as_u64(), it["code"].as_str())).collect();
    assert_eq!(logged, [(Some(1), Some("policy_changed")), (Some(2), Some("port_not_allowed"))]);
}

#[tokio::test]
async fn an_idle_tunnel_is_closed() {
    let bench = Bench::with_pace(Timeouts { silence: Duration::from_millis(200), ..Timeouts::default() });
    let port = echo().await;
    bench.allows(&[&format!("ip:127.0.0.1:{port}")], 1);
    let (mut stream, _) = bench.tunnel(&format!("127.0.0.1:{port}")).await;
    let ended = tokio::time::timeout(Duration::from_secs(5), stream.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok());
}
