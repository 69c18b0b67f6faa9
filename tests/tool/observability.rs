//! Spans of operations and engine calls: `--timings`, metrics and traces.

use std::path::PathBuf;
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};

use super::mcp_http::Server;
use super::{Tool, with_engine, without_engine};

/// The spans of a command with `--timings`, as `depth kind name outcome`.
async fn timed(tool: &Tool<'_>, words: &[&str]) -> Vec<String> {
    let output = tool.run([&["--timings"], words].concat(), b"").await;
    let stderr = String::from_utf8(output.stderr).unwrap();
    let line = stderr.lines().find(|it| it.starts_with(r#"{"timings""#)).unwrap_or_else(|| panic!("{stderr}"));
    let report: Value = serde_json::from_str(line).unwrap();
    let timings = &report["timings"];
    assert!(timings["total_ms"].as_f64() >= timings["outside_engine_ms"].as_f64(), "{timings}");
    let word = |it: &Value, key: &str| it[key].as_str().unwrap_or("-").to_owned();
    let spans = timings["spans"].as_array().unwrap().iter();
    let spans = spans.map(|it| [it["depth"].to_string(), word(it, "kind"), word(it, "name"), word(it, "outcome")]);
    spans.map(|it| it.join(" ")).collect()
}

#[tokio::test]
async fn timings_name_each_operation_and_its_engine_calls() {
    without_engine("", async |tool| {
        let listed = timed(tool, &["--engine", "fake", "list", "--json"]).await;
        assert_eq!(listed, ["0 operation list ok", "1 engine_call info ok", "1 engine_call list ok"]);
        let failed = timed(tool, &["--engine", "fake", "status", "none", "--json"]).await;
        assert_eq!(failed[0], "0 operation status not_found", "{failed:?}");
        assert!(failed.contains(&"1 engine_call inspect failed".to_owned()), "{failed:?}");
        let table = tool.run(["--timings", "--engine", "fake", "list"], b"").await;
        let table = String::from_utf8(table.stderr).unwrap();
        assert!(table.contains(" ms  total\n") && table.contains("fake list\n"), "{table}");
    })
    .await;
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let listed = timed(tool, &["list", "--json"]).await;
        assert_eq!(listed[0], "0 operation list ok", "{listed:?}");
        assert!(listed.contains(&"1 engine_call list ok".to_owned()), "{listed:?}");
        // A command that fails is a call that does not.
        let ran = timed(tool, &["exec", "--json", &name, "--", "false"]).await;
        assert_eq!(ran[0], "0 operation exec ok", "{ran:?}");
    })
    .await;
}

/// `coracle serve` on standard input, with metrics, after these calls were answered.
async fn serve(tool: &Tool<'_>, words: &[&str], calls: &[Value]) -> Server {
    let mut command = tool.command([words, &["serve", "--metrics", "127.0.0.1:0"]].concat());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let reported = lines.next_line().await.unwrap().expect("the server says where its metrics are");
    let (port, rest) = reported.split_once("http://127.0.0.1:").unwrap().1.split_once("/metrics").unwrap();
    let token_file = PathBuf::from(rest.split_once(" in ").unwrap().1);
    let token = std::fs::read_to_string(&token_file).unwrap().trim().to_owned();
    let mut answers = BufReader::new(child.stdout.as_mut().unwrap()).lines();
    for (id, call) in calls.iter().enumerate() {
        let line = format!("{}\n", json!({ "id": id, "call": call }));
        child.stdin.as_mut().unwrap().write_all(line.as_bytes()).await.unwrap();
        answers.next_line().await.unwrap().expect("an answer");
    }
    Server { child, port: port.parse().unwrap(), token_file, token }
}

#[tokio::test]
async fn a_server_counts_its_calls_and_reports_to_prometheus() {
    let calls = [json!({ "operation": "list" }), json!({ "operation": "status", "container": "none" })];
    without_engine("", async |tool| {
        let mut server = serve(tool, &["--engine", "fake"], &calls).await;
        let answer = server.send("GET /metrics", &server.authorized(), "").await;
        assert!(answer.status == 200 && answer.head.contains("application/openmetrics-text"), "{answer:?}");
        for line in [
            r#"coracle_operations_total{operation="list",code="ok"} 1"#,
            r#"coracle_operations_total{operation="status",code="not_found"} 1"#,
            r#"coracle_operation_duration_seconds_count{operation="list"} 1"#,
            r#"coracle_engine_calls_total{engine="fake",verb="inspect",outcome="failed"} 1"#,
            "coracle_containers_readable 1",
            "# EOF",
        ] {
            assert!(answer.body.lines().any(|it| it == line), "{line}: {}", answer.body);
        }
        let token = server.authorized();
        for (start, head, status) in [
            ("GET /metrics", String::new(), 401),
            ("GET /metrics", "Authorization: Bearer no\r\n".to_owned(), 401),
            ("GET /metrics", format!("{token}Host: example.org\r\n"), 403),
            ("GET /metrics", format!("{token}Origin: http://example.org\r\n"), 403),
            ("GET /call", token.clone(), 404),
            ("POST /metrics", token.clone(), 405),
        ] {
            assert_eq!(server.send(start, &head, "").await.status, status, "{start} {head}");
        }
        server.stop().await;
        let refused = tool.run(["serve", "--metrics", "0.0.0.0:1"], b"").await;
        let refused = String::from_utf8(refused.stderr).unwrap();
        assert!(refused.contains("policy_denied"), "{refused}");
    })
    .await;
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let status = tool.call(json!({ "operation": "status", "container": name })).await;
        let mut server = serve(tool, &[], &calls).await;
        let body = server.send("GET /metrics", &server.authorized(), "").await.body;
        assert!(body.contains(r#"state="running"} 1"#) && body.contains("coracle_containers_readable 1"), "{body}");
        let is_measured = status["usage"]["memory_bytes"].is_number();
        for metric in ["memory_bytes", "cpu_seconds_total", "processes"] {
            let of_container = format!(r#"coracle_container_{metric}{{container="{name}","#);
            assert_eq!(body.contains(&of_container), is_measured, "{metric}: {body}");
        }
        // What is read for an answer does not count.
        assert!(!body.contains(r#"verb="usage""#), "{body}");
        server.stop().await;
    })
    .await;
}

/// A collector that keeps the requests that it was sent.
async fn collect() -> (u16, Arc<Mutex<Vec<u8>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let (port, received) = (listener.local_addr().unwrap().port(), Arc::<Mutex<Vec<u8>>>::default());
    let into = received.clone();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let request = read_request(&mut stream).await;
            into.lock().unwrap().extend(request);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").await;
        }
    });
    (port, received)
}

async fn read_request(stream: &mut TcpStream) -> Vec<u8> {
    let mut request = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&request).to_lowercase();
        let length =
            text.split_once("content-length: ").and_then(|it| it.1.split("\r\n").next()?.parse::<usize>().ok());
        let head = memchr::memmem::find(&request, b"\r\n\r\n").map(|it| it + 4);
        let is_whole = head.zip(length).is_some_and(|(head, length)| request.len() >= head + length);
        if is_whole || stream.read_buf(&mut request).await.unwrap_or(0) == 0 {
            return request;
        }
    }
}

#[tokio::test]
async fn a_collector_gets_the_spans_and_one_that_is_away_holds_nothing_up() {
    without_engine("", async |tool| {
        let list = async |port: u16| {
            let begun = Instant::now();
            let mut command = tool.command(["--engine", "fake", "list", "--json"]);
            let output = command.env("OTEL_EXPORTER_OTLP_ENDPOINT", format!("http://127.0.0.1:{port}")).output().await;
            let output = output.unwrap();
            assert!(output.status.success() && output.stdout.starts_with(b"{\"containers\":["), "{output:?}");
            (String::from_utf8(output.stderr).unwrap(), begun.elapsed())
        };
        let (port, received) = collect().await;
        assert_eq!(list(port).await.0, "");
        let request = received.lock().unwrap().clone();
        assert!(request.starts_with(b"POST /v1/traces HTTP/1.1\r\n"));
        for text in ["service.name", "coracle", "list", "fake info", "fake list", "outcome"] {
            let found = memchr::memmem::find(&request, text.as_bytes());
            assert!(found.is_some(), "{text}: {}", String::from_utf8_lossy(&request));
        }
        let deaf = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = deaf.local_addr().unwrap().port();
        let check = async |why: &str| {
            let (stderr, took) = list(port).await;
            assert_eq!(stderr.matches("traces could not be sent").count(), 1, "{why}: {stderr}");
            assert!(took < Duration::from_secs(6), "{why}: {took:?}");
        };
        check("it takes connections and does not answer").await;
        drop(deaf);
        check("nothing listens").await;
    })
    .await;
}
