//! Which tokens are accepted, and for what.

use std::time::Duration;

use coracle_proxy::policy::{Grants, ProviderKind, Tokens};
use coracle_proxy::token::TokenHash;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use crate::bench::{Answer, Bench, Server, response};

const UNKNOWN: (u16, &str) = (401, "token_invalid");

fn is(answer: &Answer, expected: (u16, &str)) {
    assert_eq!(answer.refusal(), (expected.0, expected.1.to_owned()), "{answer:?}");
}

#[tokio::test]
async fn x51_without_the_containers_own_token_no_request_reaches_the_provider() {
    let (bench, server) = (Bench::new(), Server::start(|_| response(200, "application/json", "{}")).await);
    let chat = "POST /proxy/v1/chat/completions";
    let body = r#"{"model":"gpt-x"}"#;
    is(&bench.chats("gpt-x").await, UNKNOWN);
    let granted = bench.with_provider(ProviderKind::OpenAi, server.port);
    bench.proxy.grant(Some(Grants { tokens: Tokens::default(), ..granted.clone() }));
    is(&bench.chats("gpt-x").await, UNKNOWN);
    bench.proxy.grant(Some(granted.clone()));
    let other = coracle_proxy::token::fresh_token();
    let other = String::from_utf8(other.reveal().to_vec()).unwrap();
    let token = |it: &str| format!("X-Coracle-Token: {it}\r\n");
    for (net, header) in [
        (other.as_str(), token(&bench.llm)),
        (bench.llm.as_str(), token(&bench.llm)),
        (bench.net.as_str(), String::new()),
        (bench.net.as_str(), token(&other)),
        (bench.net.as_str(), token("")),
    ] {
        is(&bench.asks_with(net, chat, &header, body).await, UNKNOWN);
    }
    for raw in ["GET /proxy/v1/health HTTP/1.1\r\nHost: x\r\n\r\n", "CORACLE/1 \n", "CORACLE/2 x\n"] {
        is(&Answer::of(bench.raw("api.sock", raw.as_bytes()).await), UNKNOWN);
    }
    assert_eq!(server.requests().len(), 0);
    assert_eq!(bench.chats("gpt-x").await.status, 200);
    bench.proxy.grant(None);
    is(&bench.chats("gpt-x").await, UNKNOWN);
    assert_eq!(server.requests().len(), 1);
}

#[tokio::test]
async fn x51_revoking_a_token_closes_its_connections() {
    let (bench, server) = (Bench::new(), Server::start(|_| response(200, "application/json", "{}")).await);
    let granted = bench.with_provider(ProviderKind::OpenAi, server.port);
    bench.proxy.grant(Some(granted.clone()));
    let mut held = bench.connect("api.sock").await;
    let ask = format!("CORACLE/1 {}\nGET /proxy/v1/health HTTP/1.1\r\nHost: x\r\n\r\n", bench.net);
    held.write_all(ask.as_bytes()).await.unwrap();
    let mut begins = [0; 12];
    held.read_exact(&mut begins).await.unwrap();
    assert_eq!(&begins, b"HTTP/1.1 200");
    let other = TokenHash::from_token(coracle_proxy::token::fresh_token().reveal());
    bench.proxy.grant(Some(Grants { tokens: Tokens { net: Some(other), ..granted.tokens.clone() }, ..granted }));
    let ended = tokio::time::timeout(Duration::from_secs(5), held.read_to_end(&mut Vec::new())).await;
    assert!(ended.is_ok(), "it is closed at once");
}

#[tokio::test]
async fn x51_twenty_bad_tokens_close_the_listener() {
    let bench = Bench::new();
    bench.proxy.grant(Some(bench.grants()));
    let health = "GET /proxy/v1/health";
    assert_eq!(bench.asks_with(&bench.net, health, "", "").await.status, 200);
    for _ in 0..20 {
        is(&bench.asks_with("wrong", health, "", "").await, UNKNOWN);
    }
    let answer = bench.asks_with(&bench.net, health, "", "").await;
    assert_eq!(answer.status, 0, "there is no answer: {answer:?}");
    assert_eq!(bench.codes(), ["proxy_abuse"]);
}

#[tokio::test]
async fn x52_a_token_is_valid_for_its_scope_and_profile_only() {
    let (bench, server) = (Bench::new(), Server::start(|_| response(200, "application/json", "{}")).await);
    let granted = bench.with_provider(ProviderKind::OpenAi, server.port);
    bench.proxy.grant(Some(granted.clone()));
    let (chat, body) = ("POST /proxy/v1/chat/completions", r#"{"model":"gpt-x"}"#);
    let net = format!("X-Coracle-Token: {}\r\n", bench.net);
    is(&bench.asks_with(&bench.net, chat, &net, body).await, UNKNOWN);
    is(&bench.asks(chat, "X-Coracle-Profile: other\r\n", body).await, (403, "profile_mismatch"));
    assert_eq!(server.requests().len(), 0);
    assert_eq!(bench.asks(chat, "X-Coracle-Profile: web\r\n", body).await.status, 200);
    bench.proxy.grant(Some(Grants { llm_for_agent: true, ..granted }));
    assert_eq!(bench.asks_with(&bench.net, chat, "", body).await.status, 200);
    assert_eq!(bench.asks_with(&bench.net, chat, &net, body).await.status, 200);
}

#[tokio::test]
async fn checks_are_made_in_their_order() {
    let (bench, server) = (Bench::new(), Server::start(|_| response(200, "application/json", "{}")).await);
    bench.proxy.grant(Some(bench.grants()));
    let chat = "POST /proxy/v1/chat/completions";
    is(&bench.asks(chat, "", "not JSON").await, (404, "profile_unknown"));
    bench.proxy.grant(Some(bench.with_provider(ProviderKind::OpenAi, server.port)));
    for (line, body, expected) in [
        ("GET /proxy/v1/chat/completions", "", (404, "not_found")),
        ("POST /v1/chat/completions", "{}", (404, "not_found")),
        ("POST /proxy/v1/messages", "", (403, "route_not_allowed")),
        ("POST /proxy/v1/git/credentials", "", (403, "route_not_allowed")),
        (chat, "not JSON", (400, "bad_request")),
        (chat, r#"{"model":"o1"}"#, (403, "model_not_allowed")),
    ] {
        is(&bench.asks(line, "", body).await, expected);
    }
    assert_eq!(server.requests().len(), 0);
    let log = bench.log(7).await;
    assert!(log.iter().all(|it| it["container"] == "box" && it["tokens"].is_null()), "{log:?}");
    assert_eq!((&log[6]["model"], &log[6]["code"]), (&"o1".into(), &"model_not_allowed".into()));
}
