//! `coracle ui`: authentication, and the page in a real browser.

mod approvals;
pub(crate) mod browser;
mod checkpoints;
mod files;
mod machine;
mod states;
mod terminal;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use self::browser::Browser;
use super::{IMAGE, Tool, with_engine, without_engine};

/// A running page.
pub(crate) struct UiServer {
    child: Child,
    port: u16,
    token: String,
}

impl UiServer {
    pub(crate) async fn start(tool: &Tool<'_>) -> Self {
        let mut child = tool.command(["ui"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await.unwrap().unwrap().unwrap();
        let (port, token) = line.strip_prefix("http://127.0.0.1:").unwrap().split_once("/?token=").unwrap();
        Self { child, port: port.parse().unwrap(), token: token.to_owned() }
    }

    pub(crate) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// Status, head and body of the answer to an HTTP/1.0 request.
    async fn send(&self, start: &str, head: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(format!("{start} HTTP/1.0\r\n{head}Content-Length: 0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    /// The oldest sample of a container's resource usage, as soon as there is one.
    async fn first_sample(&self, container: &str) -> Value {
        let host = format!("Host: 127.0.0.1:{}\r\n", self.port);
        let (_, head, _) = self.send(&format!("GET /?token={}", self.token), &host).await;
        let path = header(&head, "location");
        let own = format!("{host}Cookie: coracle_ui={}\r\n", self.token);
        let until = tokio::time::Instant::now() + Duration::from_secs(30);
        loop {
            let (_, _, body) = self.send(&format!("GET {path}usage/{container}"), &own).await;
            let answer: Value = serde_json::from_str(&body).unwrap();
            if let Some(first) = answer["samples"].get(0) {
                return first.clone();
            }
            assert!(tokio::time::Instant::now() < until, "no sample: {answer}");
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    }

    pub(crate) async fn stop(&mut self) {
        let id = Pid::from_raw(self.child.id().unwrap().try_into().unwrap()).unwrap();
        kill_process(id, Signal::TERM).unwrap();
        let ended = tokio::time::timeout(Duration::from_secs(30), self.child.wait()).await;
        assert!(ended.expect("within 30 s").unwrap().success());
    }
}

fn header(head: &str, name: &str) -> String {
    let value = head.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(": "));
    value.unwrap_or_else(|| panic!("no {name} in {head}")).to_owned()
}

#[tokio::test]
async fn a_wrong_token_a_foreign_origin_and_a_rebound_name_are_refused() {
    without_engine("", async |tool| {
        let mut page = UiServer::start(tool).await;
        let (port, token) = (page.port, page.token.clone());
        let host = format!("Host: 127.0.0.1:{port}\r\n");
        let (status, head, _) = page.send(&format!("GET /?token={token}"), &host).await;
        assert_eq!(status, 303, "{head}");
        let cookie = header(&head, "set-cookie");
        assert!(cookie.contains("httponly; samesite=strict"), "{cookie}");
        let path = header(&head, "location");
        let own = format!("{host}Cookie: coracle_ui={token}\r\n");
        let origin = format!("Origin: http://127.0.0.1:{port}\r\n");
        let (status, head, body) = page.send(&format!("GET {path}"), &own).await;
        assert!(status == 200 && body.contains("<title>Coracle</title>"), "{status} {head}");
        let policy = header(&head, "content-security-policy");
        assert!(policy.contains("default-src 'none'; script-src 'self';"), "{policy}");
        assert_eq!(header(&head, "cache-control"), "no-store");
        let upgrade = "Upgrade: websocket\r\nConnection: Upgrade\r\n";
        let rebound = own.replace("127.0.0.1", "evil.example");
        let wrong = own.replace(&token, &"0".repeat(64));
        for (start, head, expected) in [
            (format!("POST {path}call"), format!("{own}{origin}"), 200),
            (format!("POST {path}machines"), format!("{own}{origin}"), 200),
            (format!("GET {path}usage/none"), own.clone(), 200),
            (format!("GET {path}none"), own.clone(), 404),
            (format!("PUT {path}call"), format!("{own}{origin}"), 405),
            ("GET /".to_owned(), own.clone(), 401),
            ("GET /static/app.js".to_owned(), own.clone(), 401),
            ("GET /?token=no".to_owned(), host.clone(), 401),
            (format!("GET {path}"), host.clone(), 401),
            (format!("GET {path}"), wrong, 401),
            (format!("GET {path}"), rebound.clone(), 403),
            (format!("GET /?token={token}"), "Host: evil.example\r\n".to_owned(), 403),
            (format!("GET /?token={token}"), "Host: 127.0.0.1:1\r\n".to_owned(), 403),
            (format!("POST {path}call"), own.clone(), 403),
            (format!("POST {path}call"), format!("{own}Origin: http://evil.example\r\n"), 403),
            (format!("POST {path}call"), format!("{own}Origin: null\r\n"), 403),
            (format!("GET {path}terminal"), format!("{own}{upgrade}"), 403),
            (format!("GET {path}terminal"), format!("{own}{upgrade}Origin: http://127.0.0.1:1\r\n"), 403),
        ] {
            let (status, answered, body) = page.send(&start, &head).await;
            assert_eq!(status, expected, "{start} {head}: {answered}");
            assert!(status < 400 || body.len() < 100, "{start}: {body}");
        }
        page.stop().await;
    })
    .await;
}

#[tokio::test]
async fn resource_usage_is_available_after_the_page_restarts() {
    with_engine("", async |tool| {
        let made = tool.call(json!({ "operation": "create", "name": "used", "image": IMAGE })).await;
        assert_eq!(made["success"], true, "{made:#}");
        let mut page = UiServer::start(tool).await;
        let first = page.first_sample("used").await;
        page.stop().await;
        let mut page = UiServer::start(tool).await;
        assert_eq!(page.first_sample("used").await, first);
        page.stop().await;
        tool.call(json!({ "operation": "destroy", "container": "used" })).await;
    })
    .await;
}

/// A page in a browser, with a machine.
struct OpenPage<'a> {
    tool: &'a Tool<'a>,
    machine: &'static str,
    server: UiServer,
    browser: Browser,
}

impl<'a> OpenPage<'a> {
    /// `None` if there is no browser.
    async fn start(tool: &'a Tool<'_>, machine: &'static str) -> Option<Self> {
        let mut browser = Browser::start().await?;
        let made =
            tool.call(json!({ "operation": "create", "name": machine, "image": IMAGE, "mount_cwd": false })).await;
        assert_eq!(made["success"], true, "{made:#}");
        let server = UiServer::start(tool).await;
        browser.open(&server.address()).await;
        browser.until(&format!("document.querySelector(\"[data-key='open {machine}']\")")).await;
        Some(Self { tool, machine, server, browser })
    }

    async fn end(mut self) {
        self.browser.end().await;
        self.server.stop().await;
        self.tool.call(json!({ "operation": "destroy", "container": self.machine })).await;
    }
}

/// The value of an answer of the browser.
fn value(answer: &Value) -> Value {
    answer["result"]["value"].clone()
}
