//! The MCP server over HTTP: authentication, and separate containers for each session.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use super::agent_tools::configured;
use super::{Tool, eventually, with_engine, without_engine};

/// A server that listens.
pub(super) struct Server {
    pub(super) child: Child,
    pub(super) port: u16,
    pub(super) token_file: PathBuf,
    pub(super) token: String,
}

/// A response. The bodies of tests are short.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    pub(super) head: String,
    pub(super) body: String,
}

impl Server {
    pub(super) async fn start(tool: &Tool<'_>, words: &[&str]) -> Self {
        let mut command = tool.command(["mcp", "--http", "127.0.0.1:0"]);
        let mut child = command.args(words).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let printed = async {
            loop {
                let line = lines.next_line().await.unwrap().expect("the server says where it is");
                if let Some((_, rest)) = line.split_once("http://127.0.0.1:") {
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
        let (port, rest) = printed.split_once("/mcp").unwrap();
        let token_file = PathBuf::from(rest.split_once(" in ").unwrap().1);
        let token = std::fs::read_to_string(&token_file).unwrap().trim().to_owned();
        Self { child, port: port.parse().unwrap(), token_file, token }
    }

    pub(super) fn authorized(&self) -> String {
        format!("Authorization: Bearer {}\r\n", self.token)
    }

    /// A request of HTTP/1.0, whose answers are not chunked.
    pub(super) async fn send(&self, start: &str, head: &str, body: impl AsRef<[u8]>) -> Answer {
        let body = body.as_ref();
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let host = if head.contains("Host:") { "" } else { "Host: 127.0.0.1\r\n" };
        let request = format!(
            "{start} HTTP/1.0\r\n{host}Accept: application/json, text/event-stream\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n{head}\r\n",
            body.len()
        );
        // A server that refuses may not read on.
        let _ = stream.write_all(&[request.as_bytes(), body].concat()).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        let answer = String::from_utf8(answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_default();
        let status = head.split(' ').nth(1).unwrap_or("0").parse().unwrap();
        Answer { status, head: head.to_lowercase(), body: body.to_owned() }
    }

    async fn post(&self, head: &str, message: &Value) -> Answer {
        self.send("POST /mcp", &format!("{}{head}", self.authorized()), message.to_string()).await
    }

    pub(super) async fn client(&self) -> Client<'_> {
        self.client_with("").await
    }

    /// A client whose first request has this additional header.
    async fn client_with(&self, head: &str) -> Client<'_> {
        let answer = self.post(head, &hello()).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let id = answer.head.lines().find_map(|it| it.strip_prefix("mcp-session-id: ")).unwrap().to_owned();
        let client = Client { server: self, head: format!("Mcp-Session-Id: {id}\r\n") };
        let printed = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        assert_eq!(self.post(&client.head, &printed).await.status, 202);
        client
    }

    /// Sends a signal and waits for the end, as a person would.
    pub(super) async fn stop(&mut self) {
        let id = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        assert!(ended.expect("within 30 s").unwrap().success());
    }
}

fn hello() -> Value {
    let hello =
        json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": { "name": "t", "version": "0" } });
    json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello })
}

/// An initialised client.
pub(super) struct Client<'a> {
    server: &'a Server,
    pub(super) head: String,
}

impl Client<'_> {
    async fn call(&self, arguments: &Value) -> Value {
        let params = json!({ "name": "containers", "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        let answer = self.server.post(&self.head, &call).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        result(&answer)["structuredContent"].take()
    }

    async fn text(&self, tool: &str, arguments: &Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments });
        let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
        let answer = self.server.post(&self.head, &call).await;
        result(&answer)["content"][0]["text"].as_str().unwrap_or_else(|| panic!("{answer:?}")).to_owned()
    }

    async fn leave(self) {
        let head = format!("{}{}", self.server.authorized(), self.head);
        assert_eq!(self.server.send("DELETE /mcp", &head, "").await.status, 204);
    }

    /// Names of the containers that there are, of all sessions, each with its session.
    async fn listed(&self) -> Vec<(String, String)> {
        let listed = self.call(&json!({ "operation": "list" })).await;
        let text = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
        let containers = listed["containers"].as_array().unwrap_or_else(|| panic!("{listed:#}"));
        containers.iter().map(|it| (text(it, "name"), text(it, "session"))).collect()
    }
}

/// The result in the event stream of a response.
fn result(answer: &Answer) -> Value {
    let events = answer.body.lines().filter_map(|it| it.strip_prefix("data:"));
    let messages = events.filter_map(|it| serde_json::from_str::<Value>(it).ok());
    let mut answers = messages.filter(|it| it.get("id").is_some());
    answers.next().unwrap_or_else(|| panic!("no answer: {answer:?}"))["result"].take()
}

#[tokio::test]
async fn only_a_client_of_this_machine_with_the_token_is_let_in() {
    without_engine("", async |tool| {
        let mut server = Server::start(tool, &[]).await;
        assert_eq!(server.token_file, tool.state().canonicalize().unwrap().join("mcp-token"));
        let mode = server.token_file.metadata().unwrap().permissions().mode() & 0o777;
        assert_eq!((mode, server.token.len()), (0o600, 64));

        let body = hello().to_string();
        let with = |more: &str| format!("{}{more}", server.authorized());
        let status = async |start: &str, head: &str, body: &str| server.send(start, head, body).await.status;
        let stranger = server.send("POST /mcp", "", &body).await;
        assert!(stranger.status == 401 && stranger.head.contains("www-authenticate: bearer"), "{stranger:?}");
        let wrong = format!("Authorization: Bearer {}\r\n", "0".repeat(64));
        for method in ["POST", "GET", "DELETE", "OPTIONS"] {
            assert_eq!(status(&format!("{method} /mcp"), &wrong, &body).await, 401, "{method}");
        }
        for foreign in ["Host: evil.example\r\n", "Host: evil.example:80\r\n", "Host: 127.0.0.1.evil.example\r\n"] {
            assert_eq!(status("POST /mcp", &with(foreign), &body).await, 403, "{foreign}");
        }
        for foreign in ["http://evil.example", "https://127.0.0.1.evil.example", "null", "file://"] {
            let head = with(&format!("Origin: {foreign}\r\n"));
            assert_eq!(status("POST /mcp", &head, &body).await, 403, "{foreign}");
        }
        assert_eq!(status("POST /mcp", &with("Origin: http://localhost:3000\r\n"), &body).await, 200);
        assert_eq!(status("POST /mcp", &with("Host: localhost:1\r\n"), &body).await, 200);
        assert_eq!(status("POST /other", &with(""), &body).await, 404);
        assert_eq!(status("POST /mcp", &with("Mcp-Session-Id: none\r\n"), &body).await, 404);
        let long = "x".repeat(8 * 1024 * 1024 + 1);
        assert_eq!(status("POST /mcp", &with(""), &long).await, 413);
        assert_eq!(status("POST /mcp", &with(&format!("X: {}\r\n", &long[..64 * 1024])), &body).await, 431);
        assert_eq!(status("POST /mcp", &with(""), &body).await, 200);
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn serving_other_machines_is_refused() {
    without_engine("", async |tool| {
        let open = tool.work().join("open");
        std::fs::write(&open, "a".repeat(64)).unwrap();
        std::fs::set_permissions(&open, PermissionsExt::from_mode(0o644)).unwrap();
        let cases: &[(&[&str], &str)] = &[
            (&["--http", "0.0.0.0:0"], "other machines"),
            (&["--http", "[::]:0"], "other machines"),
            (&["--http", "127.0.0.1:0", "--session", "mine"], "each client has its own"),
            (&["--http", "127.0.0.1:0", "--token-file", "open"], "chmod 600"),
            (&["--token-file", "open"], "--http"),
        ];
        for (words, says) in cases {
            let output = tool.run(["mcp"].iter().chain(words.iter()), b"").await;
            let printed = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success() && printed.contains(says), "{words:?}: {printed}");
        }
    })
    .await;
}

#[tokio::test]
async fn each_client_is_a_session_and_delete_ends_it_with_its_containers() {
    with_engine("", async |tool| {
        let mut server = Server::start(tool, &[]).await;
        let (one, two) = tokio::join!(server.client(), server.client());
        let call = tool.create_call(json!({}));
        let (first, second) = tokio::join!(one.call(&call), two.call(&call));
        assert!(first["success"] == true && second["success"] == true, "{first:#} {second:#}");
        let listed = two.listed().await;
        assert_eq!(listed.len(), 2, "{listed:?}");
        assert_ne!(listed[0].1, listed[1].1);
        assert!(listed.iter().all(|it| it.1.strip_prefix("mcp-").is_some_and(|it| it.len() == 16)), "{listed:?}");

        let gone = server.send("DELETE /mcp", &format!("{}{}", server.authorized(), one.head), "").await;
        assert_eq!((gone.status, gone.body.as_str()), (204, ""), "{gone:?}");
        assert_eq!(server.post(&one.head, &hello()).await.status, 404);
        let retained = second["container"].as_str().unwrap();
        let alone = async || two.listed().await.iter().map(|it| it.0.as_str()).eq([retained]);
        eventually("the container of the one goes", Duration::from_secs(30), alone).await;
        server.stop().await;
    })
    .await;
}

#[tokio::test]
async fn a_signal_ends_all_sessions_and_the_persistent_stay() {
    with_engine("", async |tool| {
        let mut server = Server::start(tool, &[]).await;
        let (one, two) = tokio::join!(server.client(), server.client());
        let (plain, persistent) = (tool.create_call(json!({})), tool.create_call(json!({ "persistent": true })));
        let (first, second) = tokio::join!(one.call(&plain), two.call(&persistent));
        assert!(first["success"] == true && second["success"] == true, "{first:#} {second:#}");
        server.stop().await;
        let listed = tool.call(json!({ "operation": "list" })).await;
        assert_eq!(
            (&listed["count"], &listed["containers"][0]["name"]),
            (&1.into(), &second["container"]),
            "{listed:#}"
        );
    })
    .await;
}

#[tokio::test]
async fn clients_without_a_session_of_the_protocol_share_that_of_the_token() {
    with_engine("", async |tool| {
        let mut server = Server::start(tool, &[]).await;
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientInfo": { "name": "t", "version": "0" },
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let head = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: containers\r\n";
        let mut sessions = Vec::new();
        for call in [tool.create_call(json!({})), json!({ "operation": "list" }), json!({ "operation": "list" })] {
            let params = json!({ "name": "containers", "arguments": call, "_meta": meta });
            let call = json!({ "jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": params });
            let answer = server.post(head, &call).await;
            assert!(answer.status == 200 && !answer.head.contains("mcp-session-id"), "{answer:?}");
            let answer = result(&answer)["structuredContent"].take();
            assert_eq!(answer["success"], true, "{answer:#}");
            sessions.extend(answer["containers"][0]["session"].as_str().map(str::to_owned));
        }
        assert!(sessions.len() == 2 && sessions[0] == sessions[1], "{sessions:?}");
        let client = server.client().await;
        assert_eq!(client.call(&tool.create_call(json!({}))).await["success"], true);
        let listed = client.listed().await;
        assert!(listed.len() == 2 && listed[0].1 != listed[1].1, "{listed:?}");
        server.stop().await;
    })
    .await;
}

/// As libraries do that begin a session for each call.
#[tokio::test]
async fn clients_that_name_their_session_have_one_machine_over_http_and_standard_input() {
    with_engine(&configured(""), async |tool| {
        let server = Server::start(tool, &[]).await;
        let write = json!({ "command": "echo of the first > /tmp/note" });
        let read = json!({ "command": "cat /tmp/note" });
        let named = "Coracle-Session: my-agent\r\n";
        let first = server.client_with(named).await;
        assert!(first.text("shell", &write).await.starts_with("[your machine "));
        first.leave().await;
        let second = server.client_with(named).await;
        assert_eq!(second.text("shell", &read).await, "of the first\n");
        let another = server.client().await;
        assert!(another.text("shell", &read).await.contains("No such file"));
        another.leave().await;
        let mut client = super::mcp::Client::start(&mut tool.command(["mcp", "--session", "my-agent"])).await;
        assert_eq!(client.result("shell", &read).await["content"][0]["text"], "of the first\n");
        client.end().await;
        assert_eq!(second.text("shell", &read).await, "of the first\n");
        let head = format!("{}Coracle-Session: ../x\r\n", server.authorized());
        let refused = server.send("POST /mcp", &head, hello().to_string()).await;
        assert!(refused.status == 400 && refused.body.contains("is not a session name"), "{refused:?}");
        drop(server);
        tool.run(["--session", "my-agent", "destroy-all", "--discard"], b"").await;
    })
    .await;
}
