//! A session over MCP, and the texts that a model pays for.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

pub(crate) struct Session {
    server: Child,
    requests: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    last: u64,
    /// A call and its answer, in turns.
    texts: Vec<String>,
}

/// The text of an answer that a model reads.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) is_error: bool,
}

impl Session {
    pub(crate) fn start(command: &mut Command) -> Self {
        let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = command.spawn().unwrap();
        let answers = BufReader::new(server.stdout.take().unwrap());
        let mut it = Self { requests: server.stdin.take(), answers, server, last: 0, texts: Vec::new() };
        let client = json!({ "name": "eval", "version": "0" });
        it.request("initialize", &json!({ "protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": client }));
        it.send(&json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
        it
    }

    /// The tools, as the protocol transfers them.
    pub(crate) fn tools(&mut self) -> Value {
        self.request("tools/list", &json!({}))["result"]["tools"].take()
    }

    pub(crate) fn call(&mut self, tool: &str, arguments: &Value) -> Answer {
        self.texts.push(format!("{tool} {arguments}"));
        let answer = self.request("tools/call", &json!({ "name": tool, "arguments": arguments }));
        let text = |it: &Value| it.as_str().unwrap_or_default().to_owned();
        let read = match answer.get("error") {
            Some(error) => Answer { text: text(&error["message"]), is_error: true },
            None => {
                let result = &answer["result"];
                Answer { text: text(&result["content"][0]["text"]), is_error: result["isError"] == true }
            }
        };
        self.texts.push(read.text.clone());
        read
    }

    /// How many texts there are so far.
    pub(crate) fn paid(&self) -> usize {
        self.texts.len()
    }

    /// Retains only the texts of this part.
    pub(crate) fn keep(&mut self, paid: std::ops::Range<usize>) {
        self.texts.truncate(paid.end);
        self.texts.drain(..paid.start);
    }

    /// Waits until the server has removed what the session had; answers all texts.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.requests.take());
        self.server.wait().unwrap();
        self.texts
    }

    fn request(&mut self, method: &str, params: &Value) -> Value {
        self.last += 1;
        self.send(&json!({ "jsonrpc": "2.0", "id": self.last, "method": method, "params": params }));
        loop {
            let mut line = String::new();
            assert!(self.answers.read_line(&mut line).unwrap() > 0, "`coracle mcp` ended");
            let answer: Value = serde_json::from_str(&line).unwrap();
            if answer["id"] == self.last {
                return answer;
            }
        }
    }

    fn send(&mut self, message: &Value) {
        let requests = self.requests.as_mut().expect("the session goes on");
        requests.write_all(format!("{message}\n").as_bytes()).unwrap();
    }
}
