//! A session of `coracle mcp` like an agent's: a long-running server, and calls over its standard streams.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct McpSession {
    server: Child,
    requests: ChildStdin,
    answers: BufReader<ChildStdout>,
    last: u64,
}

impl McpSession {
    /// Starts a client of `coracle mcp`.
    pub(crate) fn start(command: &mut Command) -> Self {
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).spawn().unwrap();
        let (requests, answers) = (server.stdin.take().unwrap(), BufReader::new(server.stdout.take().unwrap()));
        let mut it = Self { server, requests, answers, last: 0 };
        let client = json!({ "name": "bench", "version": "0" });
        it.request("initialize", &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client }));
        it.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        it
    }

    /// The answer of a call that has to succeed, and how long it took.
    pub(crate) fn call(&mut self, call: &Value) -> (Value, Duration) {
        let begun = Instant::now();
        let mut answer = self.request("tools/call", &json!({ "name": "containers", "arguments": call }));
        let took = begun.elapsed();
        assert_eq!(answer["result"]["structuredContent"]["success"], true, "{call}: {answer:#}");
        (answer["result"]["structuredContent"].take(), took)
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "`coracle mcp` ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            // Notifications arrive in between.
            if answer["id"] == self.last {
                return answer;
            }
        }
    }

    fn send(&mut self, message: &Value) {
        self.requests.write_all(format!("{message}\n").as_bytes()).unwrap();
    }
}

impl Drop for McpSession {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
