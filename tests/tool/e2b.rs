//! `coracle serve --e2b`: the SDKs of E2B as they are, and what is refused.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader};

use super::client_libraries::interpreter;
use super::mcp_clients::{client, installed, ours, printed};
use super::mcp_http::{Answer, Server};
use super::{Tool, eventually, with_engine, without_engine};
use crate::engines::IMAGE;

fn config() -> String {
    format!("[machine]\nimage = \"{IMAGE}\"\n")
}

async fn start(tool: &Tool<'_>) -> Server {
    let mut child = tool.command(["serve", "--e2b", "127.0.0.1:0"]).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let printed = async {
        loop {
            let line = lines.next_line().await.unwrap().expect("the server says where it is");
            if let Some((_, rest)) = line.split_once("E2B_API_URL=http://127.0.0.1:") {
                return rest.to_owned();
            }
        }
    };
    let printed = tokio::time::timeout(Duration::from_secs(20), printed).await.unwrap();
    // Something has to read what it logs later.
    tokio::spawn(async move {
        while let Ok(Some(line)) = lines.next_line().await {
            eprintln!("{line}");
        }
    });
    let (port, rest) = printed.split_once(' ').unwrap();
    let token_file = rest.split_once("$(cat ").unwrap().1.trim_end_matches(')').into();
    let token = std::fs::read_to_string(&token_file).unwrap().trim().to_owned();
    Server { child, port: port.parse().unwrap(), token_file, token }
}

/// Runs a program of E2B's SDK against the server. Both languages search modules in the directory of the program.
async fn run(tool: &Tool<'_>, server: &Server, interpreter: &Path, name: &str) {
    let script = tool.work().join(name);
    std::fs::copy(ours(name), &script).unwrap();
    let mut program = client(interpreter);
    let address = format!("http://127.0.0.1:{}", server.port);
    program.arg(&script).env("E2B_API_URL", &address).env("E2B_SANDBOX_URL", &address);
    program.env("E2B_API_KEY", &server.token).env("ONLY_HERE", &script);
    let output = program.output().await.unwrap();
    assert!(output.status.success(), "{}", printed(&output));
}

async fn nothing_is_left(tool: &Tool<'_>) {
    let is_empty = async || tool.call(json!({ "operation": "list" })).await["count"] == 0;
    eventually("no container is left", Duration::from_secs(30), is_empty).await;
}

#[tokio::test]
async fn the_python_sdk_works_as_it_is() {
    let Some(python) = installed("python-e2b/bin/python") else { return };
    with_engine(&config(), async |tool| {
        let mut server = start(tool).await;
        run(tool, &server, &python, "e2b_sandbox.py").await;
        nothing_is_left(tool).await;
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn the_javascript_sdk_works_as_it_is() {
    let Some(modules) = installed("node_modules/e2b").and_then(|it| Some(it.parent()?.to_owned())) else { return };
    let check =
        ["-e", "const [a, b] = process.versions.node.split('.'); process.exit(a > 20 || a == 20 && b >= 18 ? 0 : 1)"];
    let Some(node) = interpreter(&["node"], &check).await else { return };
    with_engine(&config(), async |tool| {
        let mut server = start(tool).await;
        std::os::unix::fs::symlink(&modules, tool.work().join("node_modules")).unwrap();
        run(tool, &server, &node, "e2b_sandbox.mjs").await;
        nothing_is_left(tool).await;
        server.stop().await;
    })
    .await;
}

async fn send(server: &Server, start: &str, head: &str, body: impl AsRef<[u8]>) -> Answer {
    server.send(start, head, body).await
}

fn key(server: &Server) -> String {
    format!("X-API-Key: {}\r\n", server.token)
}

fn result(answer: &Answer) -> Value {
    serde_json::from_str(&answer.body).unwrap_or_else(|err| panic!("{err}: {answer:?}"))
}

/// A sandbox, and the head of requests for it.
async fn created(server: &Server) -> (String, String) {
    let answer =
        send(server, "POST /sandboxes", &key(server), r#"{"templateID":"base","secure":true,"timeout":300}"#).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    let (id, token) = (result(&answer)["sandboxID"].clone(), result(&answer)["envdAccessToken"].clone());
    let id = id.as_str().unwrap().to_owned();
    let head = format!("E2b-Sandbox-Id: {id}\r\nX-Access-Token: {}\r\n", token.as_str().unwrap());
    (id, head)
}

#[tokio::test]
async fn a_request_without_the_key_or_from_another_site_is_refused() {
    without_engine("", async |tool| {
        let mut server = start(tool).await;
        let key = key(&server);
        for (start, head, body, status) in [
            ("GET /sandboxes", String::new(), "", 401),
            ("GET /sandboxes", "X-API-Key: e2b_00\r\n".to_owned(), "", 401),
            ("GET /sandboxes", format!("{key}Host: example.org\r\n"), "", 403),
            ("GET /sandboxes", format!("{key}Origin: http://example.org\r\n"), "", 403),
            ("GET /sandboxes", key.clone(), "", 200),
            ("GET /health", String::new(), "", 204),
            ("GET /nothing", key.clone(), "", 404),
            ("POST /sandboxes", key.clone(), "nonsense", 400),
            ("POST /sandboxes", key.clone(), r#"{"templateID":"base","mcp":{"a":{}}}"#, 400),
            ("POST /sandboxes", key.clone(), r#"{"templateID":"base","metadata":{"a":1}}"#, 400),
            ("POST /sandboxes", key.clone(), r#"{"templateID":"base","limitOfLater":1}"#, 400),
            ("DELETE /sandboxes/none", key.clone(), "", 404),
            ("POST /sandboxes/none/timeout", key.clone(), r#"{"timeout":1}"#, 404),
            ("GET /templates", key.clone(), "", 501),
            ("GET /files?path=/etc/passwd", "E2b-Sandbox-Id: none\r\n".to_owned(), "", 502),
            ("GET /files?path=/etc/passwd", "Host: 49983-none.localhost\r\n".to_owned(), "", 502),
        ] {
            let answer = send(&server, start, &head, body).await;
            assert_eq!(answer.status, status, "{start} {head}: {answer:?}");
        }
        server.stop().await;
    })
    .await;
}

/// A record of a newer version, or a damaged one, stays as it is. A second server would not know what the first one changes.
#[tokio::test]
async fn records_that_cannot_be_read_are_left_alone_and_one_server_has_them() {
    without_engine("", async |tool| {
        let mut server = start(tool).await;
        server.stop().await;
        let dir = server.token_file.parent().unwrap().join("e2b");
        let records = [("inewer.json", r#"{"schema":1000,"id":"inewer","ends":[]}"#), ("icut.json", r#"{"id":"ic"#)];
        for (name, text) in records {
            std::fs::write(dir.join(name), text).unwrap();
        }
        let mut server = start(tool).await;
        let second = tool.run(["serve", "--e2b", "127.0.0.1:0"], b"").await;
        let printed = String::from_utf8_lossy(&second.stderr);
        assert!(!second.status.success() && printed.contains("another server"), "{printed}");
        assert_eq!(result(&send(&server, "GET /sandboxes", &key(&server), "").await), json!([]));
        assert_eq!(send(&server, "DELETE /sandboxes/inewer", &key(&server), "").await.status, 404);
        server.stop().await;
        for (name, text) in records {
            assert_eq!(std::fs::read_to_string(dir.join(name)).unwrap(), text);
        }
    })
    .await;
}

/// An envelope of the Connect protocol.
fn envelope(flags: u8, length: u32, text: &str) -> Vec<u8> {
    [&[flags][..], &length.to_be_bytes(), text.as_bytes()].concat()
}

fn message(text: &str) -> Vec<u8> {
    envelope(0, u32::try_from(text.len()).unwrap(), text)
}

#[tokio::test]
async fn bad_requests_for_a_sandbox_get_the_errors_of_the_protocol() {
    with_engine(&config(), async |tool| {
        let mut server = start(tool).await;
        let (id, head) = created(&server).await;
        let without = format!("E2b-Sandbox-Id: {id}\r\n");
        let stat = r#"{"path":"/"}"#.as_bytes().to_vec();
        let huge = vec![b' '; (8 << 20) + 1];
        for (start, head, body, status, code) in [
            ("POST /filesystem.Filesystem/Stat", without.clone(), stat.clone(), 401, json!("unauthenticated")),
            (
                "POST /filesystem.Filesystem/Stat",
                format!("{without}X-Access-Token: no\r\n"),
                stat.clone(),
                401,
                json!("unauthenticated"),
            ),
            (
                "POST /filesystem.Filesystem/Stat",
                format!("{without}{}", key(&server)),
                stat.clone(),
                401,
                json!("unauthenticated"),
            ),
            ("GET /files?path=/etc/passwd&signature=v1_no", without.clone(), Vec::new(), 401, json!(401)),
            ("POST /filesystem.Filesystem/Stat", head.clone(), stat, 200, Value::Null),
            ("POST /filesystem.Filesystem/Stat", head.clone(), b"{".to_vec(), 400, json!("invalid_argument")),
            (
                "POST /filesystem.Filesystem/Stat",
                head.clone(),
                br#"{"path":"a\u0000b"}"#.to_vec(),
                400,
                json!("invalid_argument"),
            ),
            ("POST /filesystem.Filesystem/Burn", head.clone(), b"{}".to_vec(), 501, json!("unimplemented")),
            ("POST /filesystem.Filesystem/Stat", head.clone(), huge, 413, json!(413)),
            (
                "POST /process.Process/SendInput",
                head.clone(),
                br#"{"process":{"pid":4000000}}"#.to_vec(),
                404,
                json!("not_found"),
            ),
            ("GET /files?path=/none", head.clone(), Vec::new(), 404, json!(404)),
            ("GET /files", head.clone(), Vec::new(), 400, json!(400)),
            ("POST /files", head.clone(), b"x".to_vec(), 400, json!(400)),
        ] {
            let answer = send(&server, start, &head, body).await;
            // A server that refuses a long body may close before all of it was sent.
            if status == 413 && answer.status == 0 {
                continue;
            }
            assert_eq!(answer.status, status, "{start} {head}: {answer:?}");
            assert_eq!(result(&answer)["code"], code, "{start} {head}: {answer:?}");
        }
        // Streams have their errors at their end.
        for (body, code) in [
            (envelope(0, 100, "{}"), "invalid_argument"),
            (envelope(1, 2, "{}"), "unimplemented"),
            (Vec::new(), "invalid_argument"),
            (message(r#"{"process":{"cmd":"/none/such"}}"#), "not_found"),
            (message(r#"{"process":{"cmd":"true","cwd":"/none/such"}}"#), "invalid_argument"),
        ] {
            let answer = send(&server, "POST /process.Process/Start", &head, &body).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            assert!(answer.body.contains(&format!("\"code\":\"{code}\"")), "{code}: {answer:?}");
        }
        let answer =
            send(&server, "GET /", &format!("Host: 3000-{id}.localhost\r\n{}", head.split_once("\r\n").unwrap().1), "")
                .await;
        assert_eq!(answer.status, 501, "{answer:?}");
        assert_eq!(send(&server, &format!("DELETE /sandboxes/{id}"), &key(&server), "").await.status, 204);
        assert_eq!(send(&server, "GET /files?path=/etc/passwd", &head, "").await.status, 502);
        server.stop().await;
    })
    .await;
}

/// Sandboxes are there after a restart of the server, and end at their time.
#[tokio::test]
async fn a_sandbox_outlives_its_server_but_not_its_time() {
    with_engine(&config(), async |tool| {
        let mut server = start(tool).await;
        let (id, head) = created(&server).await;
        let written = send(&server, "POST /files?path=/tmp/a", &head, "content").await;
        assert_eq!(written.status, 200, "{written:?}");
        server.stop().await;
        let mut server = start(tool).await;
        assert_eq!(send(&server, "GET /files?path=/tmp/a", &head, "").await.body, "content");
        let timeout = send(&server, &format!("POST /sandboxes/{id}/timeout"), &key(&server), r#"{"timeout":0}"#).await;
        assert_eq!(timeout.status, 204, "{timeout:?}");
        nothing_is_left(tool).await;
        eventually("it is not listed", Duration::from_secs(30), async || {
            result(&send(&server, "GET /sandboxes", &key(&server), "").await) == json!([])
        })
        .await;
        server.stop().await;
    })
    .await;
}
