//! `coracle serve`: lines of JSON on standard input and output.

use std::collections::BTreeMap;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout};

use super::{Tool, with_engine, without_engine};

/// A running server.
struct Server {
    child: Child,
    input: Option<ChildStdin>,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Server {
    fn start(tool: &Tool<'_>) -> Self {
        let mut command = tool.command(["serve"]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, output) = (child.stdin.take(), child.stdout.take().unwrap());
        Self { child, input, lines: BufReader::new(output).lines() }
    }

    async fn send(&mut self, line: impl std::fmt::Display) {
        self.input.as_mut().unwrap().write_all(format!("{line}\n").as_bytes()).await.unwrap();
    }

    /// The next line; `None` at the end.
    async fn next(&mut self) -> Option<Value> {
        let line = tokio::time::timeout(Duration::from_secs(60), self.lines.next_line()).await.expect("a line in time");
        line.unwrap().map(|it| serde_json::from_str(&it).unwrap_or_else(|err| panic!("{err}: {it}")))
    }

    /// So many lines, by their ids.
    async fn answers(&mut self, count: usize) -> BTreeMap<String, Value> {
        let mut answers = BTreeMap::new();
        for _ in 0..count {
            let line = self.next().await.expect("a line");
            answers.insert(line["id"].to_string(), line);
        }
        answers
    }

    /// Ends the input, and waits for the program.
    async fn end(mut self) -> Vec<Value> {
        drop(self.input.take());
        let mut rest = Vec::new();
        while let Some(line) = self.next().await {
            rest.push(line);
        }
        let ended = tokio::time::timeout(Duration::from_secs(60), self.child.wait()).await;
        assert!(ended.expect("it ends").unwrap().success());
        rest
    }
}

#[tokio::test]
async fn each_line_gets_an_answer_with_its_id() {
    without_engine("", async |tool| {
        let mut server = Server::start(tool);
        server.send(json!({ "id": 1, "call": { "operation": "list" } })).await;
        server.send(json!({ "id": "two", "call": { "operation": "status", "container": "none" } })).await;
        server.send(json!({ "id": 3, "tool": "read_file", "arguments": { "pat": "x" } })).await;
        server.send(json!({ "id": 4, "cancel": 99 })).await;
        let answers = server.answers(4).await;
        let list = tool.run(["call", "-"], br#"{"operation":"list"}"#).await;
        assert_eq!(answers["1"]["result"], serde_json::from_slice::<Value>(&list.stdout).unwrap());
        assert_eq!(answers["\"two\""]["result"]["code"], "not_found");
        assert_eq!(answers["3"]["result"]["code"], "unknown_field");
        assert_eq!(answers["4"]["result"], json!({ "success": true, "cancelled": false }));
        assert_eq!(server.end().await, Vec::<Value>::new());
    })
    .await;
}

#[tokio::test]
async fn an_invalid_line_is_refused_and_the_next_one_is_read() {
    without_engine("", async |tool| {
        let mut server = Server::start(tool);
        let deep = format!("{{\"id\":1,\"call\":{{\"x\":{}{}}}}}", "[".repeat(200), "]".repeat(200));
        let too_long = format!("{{\"id\":1,\"call\":{{\"x\":\"{}\"}}}}", "x".repeat(coracle::MAX_BYTES));
        for (line, id, code) in [
            ("hello", Value::Null, "invalid_json"),
            ("[1]", Value::Null, "invalid_json"),
            ("\u{fffd}{", Value::Null, "invalid_json"),
            (too_long.as_str(), json!(1), "invalid_json"),
            (deep.as_str(), json!(1), "invalid_json"),
            (r#"{"call":{"x":NaN},"id":"a"}"#, json!("a"), "invalid_json"),
            (r#"{"id":1,"call":{"operation":"list","operation":"list"}}"#, json!(1), "invalid_json"),
            (r#"{"call":{"operation":"list"}}"#, Value::Null, "invalid_input"),
            (r#"{"id":1.5,"cancel":1}"#, Value::Null, "invalid_input"),
            (r#"{"id":[1],"cancel":1}"#, Value::Null, "invalid_input"),
            (r#"{"id":1}"#, json!(1), "missing_field"),
            (r#"{"id":1,"cancel":1,"call":{}}"#, json!(1), "conflicting_fields"),
            (r#"{"id":1,"call":{},"arguments":{}}"#, json!(1), "conflicting_fields"),
            (r#"{"id":1,"call":[]}"#, json!(1), "invalid_input"),
            (r#"{"id":1,"call":{},"events":"yes"}"#, json!(1), "invalid_input"),
            (r#"{"id":1,"tool":"nothing"}"#, json!(1), "unknown_operation"),
            (r#"{"id":1,"tool":7}"#, json!(1), "invalid_input"),
            (r#"{"id":1,"cal":{}}"#, json!(1), "unknown_field"),
            (r#"{"id":1,"call":{"operation":"lst"}}"#, json!(1), "unknown_operation"),
        ] {
            server.send("").await;
            server.send(line).await;
            let answer = server.next().await.unwrap();
            let result = &answer["result"];
            assert_eq!(
                (&answer["id"], &result["code"], &result["success"]),
                (&id, &code.into(), &false.into()),
                "{line:.60}"
            );
            assert!(result["error"].is_string(), "{line:.60}");
        }
        server.send(json!({ "id": 5, "call": { "operation": "list" } })).await;
        assert_eq!(server.next().await.unwrap()["result"]["success"], true);
        server.end().await;
    })
    .await;
}

#[tokio::test]
async fn calls_do_not_wait_for_each_other_and_the_end_removes_what_was_made() {
    with_engine("", async |tool| {
        let mut server = Server::start(tool);
        server.send(json!({ "id": 1, "call": tool.create_call(json!({})), "events": true })).await;
        let mut events = 0;
        let created = loop {
            let line = server.next().await.unwrap();
            match line.get("event") {
                Some(event) => assert!(event["event"].is_string(), "{line}"),
                None => break line,
            }
            events += 1;
        };
        assert!(events > 0, "`create` tells its steps");
        let name = created["result"]["container"].as_str().unwrap_or_else(|| panic!("{created:#}")).to_owned();
        let exec = |command: &str| json!({ "operation": "exec", "container": name, "command": command });
        server.send(json!({ "id": 2, "call": exec("sleep 600") })).await;
        server.send(json!({ "id": 3, "call": exec("echo now") })).await;
        let answer = server.next().await.unwrap();
        assert_eq!((&answer["id"], &answer["result"]["stdout"]), (&json!(3), &json!("now\n")), "{answer:#}");
        // The id of a running call is in use. Its answer is not confused with the refusal.
        server.send(json!({ "id": 2, "call": exec("true") })).await;
        let refused = server.next().await.unwrap();
        assert_eq!((&refused["id"], &refused["result"]["code"]), (&Value::Null, &json!("invalid_input")));
        server.send(json!({ "id": 4, "cancel": 2 })).await;
        let answers = server.answers(2).await;
        assert_eq!(answers["4"]["result"]["cancelled"], true);
        assert_eq!(answers["2"]["result"]["code"], "cancelled", "{answers:#?}");
        // Calls that run at the end of the input are cancelled and answered.
        server.send(json!({ "id": 5, "call": exec("sleep 600") })).await;
        server.send(json!({ "id": 6, "call": exec("echo last") })).await;
        assert_eq!(server.next().await.unwrap()["id"], 6);
        let rest = server.end().await;
        assert_eq!((&rest[0]["id"], &rest[0]["result"]["code"]), (&json!(5), &json!("cancelled")), "{rest:#?}");
        let left = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(left["count"], 0, "{left:#}");
    })
    .await;
}

#[tokio::test]
async fn an_upload_replaces_a_file_whole_or_not_at_all() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        tool.prints(&name, "echo old > f").await;
        let upload = json!({ "tool": "upload", "arguments": { "container": name, "path": "f" }, "input": true });
        let of = |id: u64| json!({ "id": id, "tool": upload["tool"], "arguments": upload["arguments"], "input": true });
        // The session ends before the input does.
        let mut server = Server::start(tool);
        server.send(of(2)).await;
        server.send("=2 4\nhal").await;
        server.end().await;
        assert_eq!(tool.prints(&name, "cat f").await.trim(), "old");
        // An invalid frame ends the session and cancels its calls.
        let mut server = Server::start(tool);
        server.send(of(3)).await;
        server.send("=3 half").await;
        server.end().await;
        assert_eq!(tool.prints(&name, "cat f").await.trim(), "old");
        // Frames without a call are ignored; without `input` or `events` the tools report what they need.
        let mut server = Server::start(tool);
        server.send("=99 1\n").await;
        server.send(json!({ "id": 4, "tool": "upload", "arguments": upload["arguments"] })).await;
        server.send(json!({ "id": 5, "tool": "download", "arguments": upload["arguments"] })).await;
        let answers = server.answers(2).await;
        for id in ["4", "5"] {
            assert_eq!(answers[id]["result"]["code"], "missing_field", "{answers:#?}");
        }
        server.send(of(6)).await;
        server.send("=6 4\nnew").await;
        server.send("=6 0").await;
        let written = loop {
            let line = server.next().await.expect("an answer");
            if !line["result"].is_null() {
                break line;
            }
        };
        assert_eq!(written["result"]["value"]["size_bytes"], 4, "{written:#}");
        assert_eq!(tool.prints(&name, "cat f").await.trim(), "new");
        server.end().await;
    })
    .await;
}
