//! Invalid messages and oversized calls: each is answered, and the next one is processed.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use super::mcp::Client;
use super::mcp_http::Server;
use super::{Tool, with_tool};

/// Bytes of a message, as it is documented.
const MOST: usize = 8 << 20;

/// Much longer than an answer needs on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A message that is refused, and the answer to it.
struct InvalidMessage {
    what: &'static str,
    text: Vec<u8>,
    refusal: Refusal,
}

/// The answer to a message.
struct Refusal {
    error: i32,
    /// The message's, as far as it can be read.
    id: Value,
    /// The status over HTTP.
    status: u16,
}

fn invalid(what: &'static str, text: impl Into<Vec<u8>>, refusal: Refusal) -> InvalidMessage {
    InvalidMessage { what, text: text.into(), refusal }
}

fn call(id: &str, x: &str) -> String {
    format!(
        r#"{{"method":"tools/call","params":{{"name":"containers","arguments":{{"operation":"list","x":{x}}}}},"jsonrpc":"2.0","id":{id}}}"#
    )
}

fn nested(levels: usize) -> String {
    format!("{}{}", "[".repeat(levels), "]".repeat(levels))
}

/// A call of so many bytes.
fn large(bytes: usize) -> String {
    let frame = call("1", "\"\"").len();
    call("1", &format!("\"{}\"", "x".repeat(bytes - frame)))
}

fn all_invalid() -> Vec<InvalidMessage> {
    let refused = |error: i32, id: Value| Refusal { error, id, status: 400 };
    let too_long = || Refusal { error: -32600, id: json!(1), status: 413 };
    vec![
        invalid("128 levels", call("1", &nested(128)), refused(-32600, json!(1))),
        invalid("100,000 levels", call("\"a\"", &nested(100_000)), refused(-32600, json!("a"))),
        invalid("never closed", "[".repeat(100_000), refused(-32600, Value::Null)),
        invalid("no JSON", "create a container please", refused(-32700, Value::Null)),
        invalid("cut off", r#"{"jsonrpc":"2.0","id":2,"method":"ping""#, refused(-32700, json!(2))),
        invalid(
            "cut off before its id",
            r#"{"method":"ping","params":{},"jsonrpc":"2.0","id":"#,
            refused(-32700, Value::Null),
        ),
        invalid("no UTF-8", b"{\"id\":3,\"method\":\"\xff\"}", refused(-32700, json!(3))),
        invalid("no method", r#"{"jsonrpc":"2.0","id":4,"params":{}}"#, refused(-32600, json!(4))),
        invalid("a list", "[1,2]", refused(-32600, Value::Null)),
        invalid("an id that is none", r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, refused(-32600, Value::Null)),
        invalid(
            "parameters of another shape",
            r#"{"jsonrpc":"2.0","id":5,"method":"tools/call","params":{"name":7}}"#,
            Refusal { error: -32602, id: json!(5), status: 200 },
        ),
        invalid("a byte too many", large(MOST + 1), too_long()),
        invalid("20 MiB", large(20 << 20), too_long()),
    ]
}

fn check(invalid: &InvalidMessage, answer: &Value) {
    let reported = (&answer["error"]["code"], &answer["id"]);
    assert_eq!(reported, (&json!(invalid.refusal.error), &invalid.refusal.id), "{}: {answer:#}", invalid.what);
    let data = &answer["error"]["data"];
    assert!(data["code"].is_string() && data["hint"].is_string(), "{}: {answer:#}", invalid.what);
    assert!(answer.as_object().unwrap().contains_key("id"), "{}: {answer:#}", invalid.what);
}

async fn soon<T>(what: &str, answer: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, answer).await.unwrap_or_else(|_| panic!("{what}: no answer"))
}

/// Tests only the protocol, without an engine.
async fn without_engine(check: impl AsyncFn(&Tool<'_>)) {
    with_tool("", async |tool| {
        if !tool.case.is_real() {
            check(tool).await;
        }
    })
    .await;
}

#[tokio::test]
async fn every_message_on_standard_input_is_answered() {
    without_engine(async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        for invalid in all_invalid() {
            client.stdin.write_all(&[&invalid.text, b"\n".as_slice()].concat()).await.unwrap();
            check(&invalid, &soon(invalid.what, client.message()).await);
        }
        client.stdin.write_all(format!("\n{}\n", large(MOST)).as_bytes()).await.unwrap();
        let taken = soon("the largest", client.message()).await;
        assert_eq!(taken["result"]["structuredContent"]["code"], "unknown_field", "{taken:#}");
    })
    .await;
}

#[tokio::test]
async fn a_wrong_message_is_answered_before_and_at_the_end_of_a_conversation() {
    without_engine(async |tool| {
        let output = tool.run(["mcp"], b"hello\n").await;
        let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!((&answer["error"]["code"], output.status.success()), (&json!(-32700), true), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn every_message_over_http_is_answered() {
    without_engine(async |tool| {
        let mut server = Server::start(tool, &[]).await;
        let client = server.client().await;
        let head = format!("{}{}", server.authorized(), client.head);
        let post = async |text: &[u8]| server.send("POST /mcp", &head, text).await;
        for invalid in all_invalid() {
            let answer = soon(invalid.what, post(&invalid.text)).await;
            assert_eq!(answer.status, invalid.refusal.status, "{}: {answer:?}", invalid.what);
            assert!(answer.head.contains("content-type: application/json"), "{}: {answer:?}", invalid.what);
            check(&invalid, &serde_json::from_str(&answer.body).unwrap());
        }
        let taken = soon("the largest", post(large(MOST).as_bytes())).await;
        assert!(taken.status == 200 && taken.body.contains("unknown_field"), "{taken:?}");
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_file_larger_than_a_message_is_sent_in_parts() {
    let config = format!("[workspace]\nimage = \"{}\"\n", crate::engines::IMAGE);
    super::person::Person::new(config)
        .on_real_engines(async |tool| {
            let mut client = Client::start(&mut tool.command(["mcp"])).await;
            let part = "0123456789abcde\n".repeat(6 << 16);
            for mode in ["create", "append", "append"] {
                let write = json!({ "path": "large", "content": part, "mode": mode });
                let written = client.result("write_file", &write).await;
                assert_eq!(written["isError"], false, "{mode}: {}", written["content"][0]["text"]);
            }
            let found = client.result("ls", &json!({})).await;
            let size = &found["structuredContent"]["value"][0]["size_bytes"];
            assert_eq!(*size, 3 * part.len(), "{found:#}");
            client.end().await;
        })
        .await;
}
