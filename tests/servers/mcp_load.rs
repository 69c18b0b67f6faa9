//! Concurrent clients of one `coracle mcp` over HTTP, and the memory of the server.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;

use serde_json::{Value, json};

/// A server that listens on this host's loopback.
#[derive(Clone, Debug)]
pub(crate) struct At {
    pub(crate) port: u16,
    pub(crate) token: String,
    pub(crate) pid: u32,
}

/// Memory of the server's process, in KiB.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Memory {
    /// While all sessions are still there.
    pub(crate) now: u64,
    /// The most that it ever had.
    pub(crate) most: u64,
}

/// Runs concurrent sessions. Each makes a number of calls one after the other.
pub(crate) fn work(at: &At, sessions: usize, calls: usize) -> Memory {
    let clients: Vec<Client<'_>> = (0..sessions).map(|_| Client::new(at)).collect();
    thread::scope(|scope| {
        let all: Vec<_> = clients.iter().map(|client| scope.spawn(move || client.works(calls))).collect();
        all.into_iter().for_each(|it| it.join().unwrap());
    });
    let memory = Memory::of(at.pid);
    clients.iter().for_each(Client::leaves);
    memory
}

impl Memory {
    fn of(pid: u32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let field = |name: &str| {
            let value = status.lines().find_map(|it| it.strip_prefix(name)).unwrap();
            value.trim().trim_end_matches(" kB").parse().unwrap()
        };
        Self { now: field("VmRSS:"), most: field("VmHWM:") }
    }
}

/// An initialised client.
struct Client<'a> {
    at: &'a At,
    session: String,
}

impl<'a> Client<'a> {
    fn new(at: &'a At) -> Self {
        let about = json!({ "name": "load", "version": "0" });
        let hello = json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": about });
        let mut it = Self { at, session: String::new() };
        let hello = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello });
        let answer = it.send("POST", &hello.to_string());
        let head = answer.to_lowercase();
        let id = head.lines().find_map(|it| it.strip_prefix("mcp-session-id: ")).unwrap_or_else(|| panic!("{answer}"));
        it.session = format!("Mcp-Session-Id: {}\r\n", id.trim());
        it.send("POST", &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }).to_string());
        it
    }

    /// Calls of every kind, each of which has to see what those before it did.
    fn works(&self, calls: usize) {
        for turn in 0..calls {
            let (name, text) = (format!("f{}", turn / 8), format!("turn {turn}\n{}", "x".repeat(4096)));
            let answer = match turn % 8 {
                0 => self.call("write_file", &json!({ "file_path": name, "content": text })),
                1 => self.call("read_file", &json!({ "file_path": name })),
                2 => self.call("edit_file", &json!({ "file_path": name, "old_string": "turn", "new_string": "round" })),
                3 => self.call("grep", &json!({ "pattern": "^round", "path": name })),
                4 => self.call("shell_execute", &json!({ "command": ["head", "-c", "5", name] })),
                5 => self.call("shell_execute", &json!({ "command": ["seq", "1", "30000"] })),
                6 => self.call("glob", &json!({ "pattern": "f*" })),
                _ => self.call("ls", &json!({})),
            };
            let value = &answer["value"];
            let seen = match turn % 8 {
                3 => value.as_array().is_some_and(|it| it.len() == 1),
                4 => value["stdout"] == "round",
                6 | 7 => value.as_array().is_some_and(|it| it.len() == turn / 8 + 1),
                _ => true,
            };
            assert!(answer["success"] == true && seen, "call {turn}: {answer:#}");
        }
    }

    fn call(&self, name: &str, arguments: &Value) -> Value {
        let params = json!({ "name": name, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        let answer = self.send("POST", &call.to_string());
        let events = answer.lines().filter_map(|it| it.strip_prefix("data:"));
        let mut answers = events.filter_map(|it| serde_json::from_str::<Value>(it).ok());
        let mut reported = answers.find(|it| it.get("id").is_some()).unwrap_or_else(|| panic!("no answer: {answer}"));
        reported["result"]["structuredContent"].take()
    }

    fn leaves(&self) {
        self.send("DELETE", "");
    }

    /// A request of HTTP/1.0, whose answers are not chunked.
    fn send(&self, method: &str, body: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.at.port)).unwrap();
        let request = format!(
            "{method} /mcp HTTP/1.0\r\nHost: 127.0.0.1\r\nAccept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\nAuthorization: Bearer {}\r\n{}\r\n{body}",
            body.len(),
            self.at.token,
            self.session
        );
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).and_then(|it| it.parse::<u16>().ok());
        assert!(status.is_some_and(|it| (200..300).contains(&it)), "{answer}");
        answer
    }
}
