//! `coracle serve --http`: authentication, calls, and events.

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

use super::mcp_http::{Answer, Server};
use super::{Tool, eventually, with_engine, without_engine};

async fn start(tool: &Tool<'_>) -> Server {
    let mut child = tool.command(["serve", "--http", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let printed = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the server says where it is");
            if let Some((_, rest)) = line.split_once("http://127.0.0.1:") {
                return rest.to_owned();
            }
        }
    });
    let printed = printed.await.unwrap();
    // Something has to read what it logs later.
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            eprintln!("{line}");
        }
    });
    let (port, rest) = printed.split_once("/call").unwrap();
    let token_file = PathBuf::from(rest.split_once(" in ").unwrap().1);
    let token = std::fs::read_to_string(&token_file).unwrap().trim().to_owned();
    Server { child, port: port.parse().unwrap(), token_file, token }
}

async fn post(server: &Server, path: &str, body: &Value) -> Answer {
    let head = format!("{}Accept: application/json\r\n", server.authorized());
    raw(server, &format!("POST {path}"), &head, &body.to_string()).await
}

/// A request with its own `Accept`.
async fn raw(server: &Server, start: &str, head: &str, body: &str) -> Answer {
    let mut stream = open(server, start, head, body).await;
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
    let answer = String::from_utf8(answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
    let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

async fn open(server: &Server, start: &str, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(("127.0.0.1", server.port)).await.unwrap();
    let host = if head.contains("Host:") { "" } else { "Host: 127.0.0.1\r\n" };
    let request = format!("{start} HTTP/1.0\r\n{host}Content-Length: {}\r\n{head}\r\n{body}", body.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    stream
}

fn result(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|err| panic!("{err}: {answer:?}"))
}

#[tokio::test]
async fn only_programs_of_this_machine_with_the_token_are_let_in() {
    without_engine("", async |tool| {
        let mut server = start(tool).await;
        let list = json!({ "operation": "list" });
        let answer = post(&server, "/call", &list).await;
        assert_eq!((answer.status, &result(&answer)["success"]), (200, &json!(true)));
        let call = list.to_string();
        let token = server.authorized();
        for (start, head, body, status) in [
            ("POST /call", String::new(), call.as_str(), 401),
            ("POST /call", "Authorization: Bearer no\r\n".to_owned(), &call, 401),
            ("GET /openapi.json", String::new(), "", 401),
            ("POST /call", format!("{token}Host: example.org\r\n"), &call, 403),
            ("POST /call", format!("{token}Origin: http://example.org\r\n"), &call, 403),
            ("POST /call", format!("{token}Origin: http://localhost:3000\r\n"), &call, 200),
            ("GET /call", token.clone(), "", 405),
            ("POST /openapi.json", token.clone(), "", 405),
            ("POST /mcp", token.clone(), &call, 404),
            ("POST /tools/nothing", token.clone(), "{}", 404),
            ("POST /call", token.clone(), "nonsense", 400),
            ("POST /tools/ls", token.clone(), "[]", 400),
            ("POST /tools/ls", token.clone(), r#"{"path":"a","path":"b"}"#, 400),
            ("POST /call", token.clone(), &"x".repeat(coracle::MAX_BYTES + 1), 413),
        ] {
            // A server that refuses a long body may close before all of it was sent.
            let answer = match body.len() > coracle::MAX_BYTES {
                true => server.send(start, &head, body).await,
                false => raw(&server, start, &head, body).await,
            };
            assert!(answer.status == status || body.len() > coracle::MAX_BYTES, "{start} {head}: {answer:?}");
        }
        let answer = raw(&server, "GET /openapi.json", &token, "").await;
        let printed = tool.run(["serve", "--openapi"], b"").await;
        assert_eq!(result(&answer), serde_json::from_slice::<Value>(&printed.stdout).unwrap());
        let answer = post(&server, "/call", &json!({ "operation": "status", "container": "none" })).await;
        assert_eq!((answer.status, &result(&answer)["code"]), (200, &json!("not_found")));
        let answer = post(&server, "/tools/read_file", &json!({ "pat": "x" })).await;
        assert_eq!((answer.status, &result(&answer)["code"]), (200, &json!("unknown_field")));
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn events_arrive_during_the_call_and_a_disconnect_cancels_it() {
    with_engine("", async |tool| {
        let mut server = start(tool).await;
        let created = result(&post(&server, "/call", &tool.create_call(json!({}))).await);
        let name = created["container"].as_str().unwrap_or_else(|| panic!("{created:#}"));
        let exec = |command: &str| json!({ "operation": "exec", "container": name, "command": command });
        let streamed = format!("{}Accept: text/event-stream\r\n", server.authorized());
        let answer = raw(&server, "POST /call", &streamed, &exec("echo one; exit 3").to_string()).await;
        assert!(answer.head.contains("content-type: text/event-stream"), "{answer:?}");
        let (stdout, last) = answer.body.trim_end().split_once("\n\n").unwrap();
        assert_eq!(stdout, "event: stdout\ndata: {\"data\":\"one\\n\",\"offset\":0}");
        let last = last.strip_prefix("event: result\ndata: ").unwrap();
        assert_eq!(serde_json::from_str::<Value>(last).unwrap()["exit_code"], 3);
        let written =
            post(&server, "/tools/write_file", &json!({ "container": name, "path": "f", "content": "x" })).await;
        assert_eq!(result(&written)["success"], true, "{written:?}");
        // Streamed or not, the command ends with its client.
        for head in [&streamed, &server.authorized()] {
            let client = open(&server, "POST /call", head, &exec("echo > begun; exec sleep 600").to_string()).await;
            let answers = async |command: &str| result(&post(&server, "/call", &exec(command)).await)["exit_code"] == 0;
            eventually("it runs", Duration::from_secs(30), async || answers("test -e begun && rm begun").await).await;
            drop(client);
            let jobs = json!({ "operation": "jobs", "container": name });
            let runs = async || {
                let answer = result(&post(&server, "/call", &jobs).await);
                answer["jobs"].as_array().unwrap().iter().any(|it| it["running"] == true)
            };
            eventually("it has ended", Duration::from_secs(30), async || !runs().await).await;
        }
        server.stop().await;
        let left = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(left["count"], 0, "{left:#}");
    })
    .await;
}
