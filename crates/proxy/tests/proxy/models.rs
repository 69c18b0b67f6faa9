//! What is forwarded between a worker and a provider, and what is not.

use std::time::{Duration, Instant};

use coracle_proxy::Timeouts;
use coracle_proxy::policy::{Budget, Grants, ProviderKind};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::bench::{Answer, Bench, KEY, Server, response, slowly};

const CHAT: &str = "POST /proxy/v1/chat/completions";
const USAGE: &str = r#"{"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":5}}"#;

fn is(answer: &Answer, expected: (u16, &str)) {
    assert_eq!(answer.refusal(), (expected.0, expected.1.to_owned()), "{answer:?}");
}

#[tokio::test]
async fn the_key_is_added_and_only_listed_headers_pass() {
    let server = Server::start(|_| response(200, "application/json", USAGE)).await;
    let bench = Bench::new();
    bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, server.port)));
    let body = r#"{"model":"gpt-x","messages":[{"role":"user","content":"hello"}]}"#;
    let headers = "Content-Type: application/json\r\nAuthorization: Bearer mine\r\nCookie: a=b\r\nAccept-Encoding: gzip\r\n\
                   Idempotency-Key: k\r\n";
    let answer = bench.asks(&format!("{CHAT}?key=x"), headers, body).await;
    assert_eq!((answer.status, answer.body.as_str()), (200, USAGE));
    let request = server.requests().remove(0);
    assert_eq!((request.line.as_str(), &*request.body), ("POST /v1/chat/completions", body.as_bytes()));
    let sent = |name: &str| request.headers.get(name).map(String::as_str);
    assert_eq!(sent("authorization"), Some(&*format!("Bearer {KEY}")));
    assert_eq!((sent("idempotency-key"), sent("content-type")), (Some("k"), Some("application/json")));
    assert_eq!((sent("cookie"), sent("x-coracle-token"), sent("accept-encoding")), (None, None, Some("identity")));
    bench.proxy.grant(Some(bench.with_provider(ProviderKind::Anthropic, server.port)));
    assert_eq!(bench.asks("POST /proxy/v1/messages", "Anthropic-Version: 1\r\n", body).await.status, 200);
    let request = server.requests().remove(1);
    assert_eq!(request.headers.get("x-api-key").map(String::as_str), Some(KEY));
    assert!(!request.headers.contains_key("authorization") && request.headers.contains_key("anthropic-version"));
}

#[tokio::test]
async fn x53_a_body_is_limited_by_its_declared_and_by_its_real_length() {
    let server = Server::start(|_| response(200, "application/json", "{}")).await;
    let bench = Bench::new();
    bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, server.port)));
    let fill = |bytes: usize| format!(r#"{{"model":"gpt-x","fill":"{}"}}"#, "x".repeat(bytes - 27));
    let (most, over) = (fill(10 << 20), fill((10 << 20) + 1));
    assert_eq!((most.len(), over.len()), (10 << 20, (10 << 20) + 1));
    assert_eq!(bench.asks(CHAT, "", &most).await.status, 200);
    is(&bench.asks(CHAT, "", &over).await, (413, "body_too_large"));
    let head = format!(
        "CORACLE/1 {}\n{CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Coracle-Token: {}\r\n",
        bench.net, bench.llm
    );
    let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n{:x}\r\n{over}\r\n0\r\n\r\n", over.len());
    is(&Answer::of(bench.raw("api.sock", chunked.as_bytes()).await), (413, "body_too_large"));
    for odd in ["Content-Length: x", "Content-Length: -1", "Content-Length: 1\r\nContent-Length: 2"] {
        let answer = Answer::of(bench.raw("api.sock", format!("{head}{odd}\r\n\r\n{{}}").as_bytes()).await);
        assert_eq!(answer.status, 400, "{odd}");
    }
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn x54_a_response_is_forwarded_as_it_arrives() {
    let pieces = || (0..5).map(|it| format!("data: {{\"n\":{it}}}\n\n")).collect::<Vec<_>>();
    let server = Server::start(move |_| slowly("text/event-stream", pieces(), Duration::from_millis(200))).await;
    let bench = Bench::with_pace(Timeouts { silence: Duration::from_millis(600), ..Timeouts::default() });
    bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, server.port)));
    let mut stream = bench.connect("api.sock").await;
    let body = r#"{"model":"gpt-x","stream":true}"#;
    let ask = format!(
        "CORACLE/1 {}\n{CHAT} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nX-Coracle-Token: {}\r\nContent-Length: {}\r\n\r\n{body}",
        bench.net,
        bench.llm,
        body.len()
    );
    stream.write_all(ask.as_bytes()).await.unwrap();
    let (begun, mut received, mut first) = (Instant::now(), Vec::new(), None);
    while stream.read_buf(&mut received).await.unwrap() > 0 {
        if first.is_none() && received.windows(5).any(|it| it == b"{\"n\":") {
            first = Some(begun.elapsed());
        }
    }
    assert_eq!(Answer::of(received).body, pieces_text());
    // The whole takes longer than the silence timeout, and the first piece arrives long before the last.
    assert!(begun.elapsed() >= Duration::from_secs(1) && first.unwrap() < Duration::from_millis(700), "{first:?}");
}

fn pieces_text() -> String {
    (0..5).map(|it| format!("data: {{\"n\":{it}}}\n\n")).collect()
}

#[tokio::test]
async fn x54_x55_a_silent_missing_or_redirecting_provider_is_one_error_code() {
    let bench = Bench::with_pace(Timeouts { silence: Duration::from_millis(300), ..Timeouts::default() });
    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let elsewhere = Server::start(|_| {
        let mut answer = response(302, "text/plain", KEY);
        answer.headers_mut().insert("location", format!("http://127.0.0.1:1/{KEY}").parse().unwrap());
        answer
    });
    let elsewhere = elsewhere.await;
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap().port();
    for (port, expected) in [
        (silent.local_addr().unwrap().port(), (504, "provider_timeout")),
        (elsewhere.port, (502, "provider_failed")),
        (closed, (502, "provider_unavailable")),
    ] {
        bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, port)));
        let answer = bench.chats("gpt-x").await;
        is(&answer, expected);
        let all = format!("{}{}", answer.head, answer.body);
        assert!(!all.contains(KEY) && !all.contains(&port.to_string()) && !all.contains("127.0.0.1"), "{all}");
    }
    assert_eq!(elsewhere.requests().len(), 1, "no redirect was followed");
    let log = format!("{:?}", bench.log(3).await);
    assert!(!log.contains(KEY) && !log.contains("127.0.0.1"), "{log}");
}

#[tokio::test]
async fn x56_a_key_echoed_by_a_provider_is_removed() {
    let shows = |status: u16| {
        move |request: &crate::bench::ReceivedRequest| {
            let shown = format!("you sent {} and {}", request.headers["authorization"], KEY);
            let mut answer = response(status, "text/plain", shown);
            answer.headers_mut().insert("x-echo", format!("key={KEY}").parse().unwrap());
            answer.headers_mut().insert("x-request-id", "42".parse().unwrap());
            answer.headers_mut().insert("set-cookie", "a=b".parse().unwrap());
            answer
        }
    };
    let bench = Bench::new();
    for status in [200, 401, 500] {
        let server = Server::start(shows(status)).await;
        bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, server.port)));
        let answer = bench.chats("gpt-x").await;
        assert_eq!((answer.status, &*answer.body), (status, "you sent Bearer [redacted:key] and [redacted:key]"));
        assert!(answer.head.contains("x-request-id: 42") && !answer.head.contains("canary"), "{answer:?}");
        assert!(!answer.head.contains("set-cookie"), "{answer:?}");
    }
}

#[tokio::test]
async fn x69_the_proxys_own_numbers_decide_about_the_budget() {
    let events = format!("data: {{\"choices\":[]}}\n\ndata: {USAGE}\n\ndata: [DONE]\n\n");
    let server = Server::start(move |request| match request.body.windows(6).any(|it| it == b"stream") {
        true => response(200, "text/event-stream", events.clone()),
        false => response(200, "application/json", USAGE),
    });
    let server = server.await;
    let bench = Bench::new();
    let granted = bench.with_provider(ProviderKind::OpenAi, server.port);
    bench.proxy.grant(Some(Grants { budget: Budget { tokens: Some(45), cost_usd: None }, ..granted }));
    assert_eq!(bench.chats("gpt-x").await.status, 200);
    assert_eq!(bench.asks(CHAT, "", r#"{"model":"gpt-x","stream":true}"#).await.status, 200);
    // Without reported usage, a request counts by its length.
    let log = bench.log(2).await;
    assert_eq!((&log[0]["tokens"], &log[1]["tokens"]), (&15.into(), &15.into()));
    assert_eq!(bench.proxy.metered().tokens(), 30);
    assert_eq!(bench.chats("gpt-x").await.status, 200);
    bench.log(3).await;
    let answer = bench.chats("gpt-x").await;
    is(&answer, (429, "budget_exhausted"));
    assert!(!answer.head.contains("retry-after"), "{answer:?}");
    let metered = bench.proxy.metered();
    assert_eq!((metered.requests, metered.input_tokens, metered.output_tokens, metered.estimated), (3, 30, 15, 0));
}

#[tokio::test]
async fn x69_a_client_that_disconnects_before_the_usage_is_charged() {
    let pieces = vec!["data: {}\n\n".repeat(100), format!("data: {USAGE}\n\n")];
    let server = Server::start(move |_| slowly("text/event-stream", pieces.clone(), Duration::from_millis(400))).await;
    let bench = Bench::new();
    bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, server.port)));
    let body = r#"{"model":"gpt-x"}"#;
    let ask = format!(
        "CORACLE/1 {}\n{CHAT} HTTP/1.1\r\nHost: x\r\nX-Coracle-Token: {}\r\nContent-Length: {}\r\n\r\n{body}",
        bench.net,
        bench.llm,
        body.len()
    );
    let mut stream = bench.connect("api.sock").await;
    stream.write_all(ask.as_bytes()).await.unwrap();
    let mut received = Vec::new();
    while !received.windows(8).any(|it| it == b"data: {}") {
        assert!(stream.read_buf(&mut received).await.unwrap() > 0);
    }
    drop(stream);
    let log = bench.log(1).await;
    assert!(log[0]["tokens"].as_u64().unwrap() >= 250, "{log:?}");
    assert_eq!(bench.proxy.metered().estimated, 1);
}
