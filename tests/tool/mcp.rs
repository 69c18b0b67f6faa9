//! The MCP server with foreign clients.

use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use super::with_engine;
use crate::engines::ran;

/// A client in the fewest lines that the protocol allows.
pub(super) struct Client {
    pub(super) child: Child,
    pub(super) stdin: ChildStdin,
    stdout: tokio::io::Lines<BufReader<ChildStdout>>,
}

impl Client {
    pub(super) async fn start(command: &mut Command) -> Self {
        Self::greeted(command).await.0
    }

    /// The same, with the server's description of itself.
    pub(super) async fn greeted(command: &mut Command) -> (Self, Value) {
        Self::with_capabilities(command, &json!({})).await
    }

    pub(super) async fn with_capabilities(command: &mut Command, capabilities: &Value) -> (Self, Value) {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut it = Self { stdin: child.stdin.take().unwrap(), stdout, child };
        let hello = json!({ "protocolVersion": "2025-06-18", "capabilities": capabilities, "clientInfo": { "name": "test", "version": "0" } });
        it.send(json!({ "jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello })).await;
        let reported = it.answer().await;
        it.send(json!({ "jsonrpc": "2.0", "method": "notifications/initialized" })).await;
        (it, reported)
    }

    /// Closes the connection, and waits until the server has removed the session's containers.
    pub(super) async fn end(self) {
        let Self { mut child, stdin, .. } = self;
        drop(stdin);
        tokio::time::timeout(Duration::from_secs(60), child.wait()).await.expect("the server ends").unwrap();
    }

    pub(super) async fn send(&mut self, message: Value) {
        self.stdin.write_all(format!("{message}\n").as_bytes()).await.unwrap();
    }

    /// The next message that answers something.
    pub(super) async fn answer(&mut self) -> Value {
        loop {
            let message = self.message().await;
            if message.get("id").is_some() {
                return message;
            }
        }
    }

    /// The next message.
    pub(super) async fn message(&mut self) -> Value {
        let line = self.stdout.next_line().await.unwrap().expect("the server goes on");
        serde_json::from_str(&line).unwrap()
    }

    pub(super) async fn call(&mut self, id: usize, arguments: &Value) {
        let params = json!({ "name": "containers", "arguments": arguments });
        self.send(json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params })).await;
    }

    /// A call of a tool, and its result.
    pub(super) async fn result(&mut self, tool: &str, arguments: &Value) -> Value {
        let params = json!({ "name": tool, "arguments": arguments });
        self.send(json!({ "jsonrpc": "2.0", "id": tool, "method": "tools/call", "params": params })).await;
        let answer = self.answer().await;
        assert_eq!(answer["id"], tool, "{answer:#}");
        answer["result"].clone()
    }
}

/// Makes all calls concurrently, waits for all answers, and disconnects.
pub(super) async fn calls(command: &mut Command, calls: &[String]) -> Vec<Value> {
    let mut client = Client::start(command).await;
    for (id, call) in calls.iter().enumerate() {
        client.call(id, &serde_json::from_str(call).unwrap()).await;
    }
    let mut answers = Vec::new();
    while answers.len() < calls.len() {
        answers.push(client.answer().await["result"]["structuredContent"].take());
    }
    drop(client.stdin);
    assert!(client.child.wait().await.unwrap().success());
    answers
}

#[tokio::test]
async fn an_answer_is_structured_and_the_same_as_text_and_errors_are_marked() {
    with_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        for (id, call) in
            [json!({ "operation": "list" }), json!({ "operation": "status", "container": "x" })].iter().enumerate()
        {
            client.call(id, call).await;
            let result = client.answer().await["result"].take();
            let answer = &result["structuredContent"];
            assert_eq!(result["isError"] == true, answer["success"] == false, "{result:#}");
            assert_eq!(serde_json::from_str::<Value>(result["content"][0]["text"].as_str().unwrap()).unwrap(), *answer);
        }
    })
    .await;
}

#[tokio::test]
async fn s80_when_the_client_vanishes_only_the_persistent_stay() {
    with_engine("", async |tool| {
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        for (id, more) in [json!({}), json!({ "persistent": true })].into_iter().enumerate() {
            client.call(id, &tool.create_call(more)).await;
        }
        let (one, two) = (client.answer().await, client.answer().await);
        let answers = [&one["result"]["structuredContent"], &two["result"]["structuredContent"]];
        let persistent = answers.iter().find(|it| it["persistent"] == true).unwrap()["container"].as_str().unwrap();
        drop(client.stdin);
        let ended = tokio::time::timeout(Duration::from_secs(30), client.child.wait()).await;
        assert!(ended.unwrap().unwrap().success());
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!((&listed["count"], &listed["containers"][0]["name"]), (&1.into(), &persistent.into()), "{listed:#}");
        let trail = tool.run(["audit", "log", "--json"], b"").await;
        let trail: Value = serde_json::from_slice(&trail.stdout).unwrap();
        let ended = trail.to_string().matches("session_end").count();
        assert!(ended > 0, "{trail:#}");
        ran("s80", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn the_end_of_a_server_removes_nothing_of_a_session_with_a_name() {
    with_engine("", async |tool| {
        let default = tool.created(json!({})).await;
        Client::start(&mut tool.command(["--session", "default", "mcp"])).await.end().await;
        assert_eq!(tool.prints(&default, "echo still here").await, "still here");
        for words in [vec!["--session", "default", "serve"], vec!["serve"]] {
            let served = tool.run(words, b"{\"id\":1,\"call\":{\"operation\":\"list\"}}\n").await;
            assert!(served.status.success(), "{served:?}");
            assert_eq!(tool.prints(&default, "echo still here").await, "still here");
        }
    })
    .await;
}

#[tokio::test]
async fn a_job_outlives_the_server_that_began_it_and_another_process_reads_all_of_it() {
    with_engine("", async |tool| {
        let name = tool.created(json!({})).await;
        let mut client = Client::start(&mut tool.command(["mcp"])).await;
        let command = "i=0; while [ $i -lt 30 ]; do echo line $i; i=$((i+1)); sleep 0.05; done; exit 4";
        let call = json!({ "operation": "exec_background", "container": name, "command": command });
        client.call(1, &call).await;
        let job = client.answer().await["result"]["structuredContent"]["job_id"].take();
        client.child.kill().await.unwrap();
        let of_job = async |operation: &str, more: Value| {
            let mut call = json!({ "operation": operation, "container": name, "job_id": job });
            super::merge(call.as_object_mut().unwrap(), more);
            tool.call(call).await
        };
        let ended = of_job("job_wait", json!({ "timeout": 30 })).await;
        assert_eq!((&ended["reason"], &ended["exit_code"]), (&"exit".into(), &4.into()), "{ended:#}");
        let whole: String = (0..30).map(|it| format!("line {it}\n")).collect();
        assert_eq!(of_job("job_read", json!({ "stream": "stdout" })).await["data"], whole);
    })
    .await;
}
