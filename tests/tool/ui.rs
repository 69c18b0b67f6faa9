//! `coracle ui`: who is let in, and the page in a real browser.

mod browser;

use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::process::Child;

use self::browser::Browser;
use super::{IMAGE, Tool, with_engine, with_limited_engine, without_engine};

/// A running page.
struct UiServer {
    child: Child,
    port: u16,
    token: String,
}

impl UiServer {
    async fn start(tool: &Tool<'_>) -> Self {
        let mut child = tool.command(["ui"]).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let line = tokio::time::timeout(Duration::from_secs(20), lines.next_line()).await.unwrap().unwrap().unwrap();
        let (port, token) = line.strip_prefix("http://127.0.0.1:").unwrap().split_once("/?token=").unwrap();
        Self { child, port: port.parse().unwrap(), token: token.to_owned() }
    }

    fn address(&self) -> String {
        format!("http://127.0.0.1:{}/?token={}", self.port, self.token)
    }

    /// Status, head and body of the answer to a request in the words of HTTP/1.0.
    async fn send(&self, start: &str, head: &str) -> (u16, String, String) {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        stream.write_all(format!("{start} HTTP/1.0\r\n{head}Content-Length: 0\r\n\r\n").as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    /// The oldest sample of what a container uses, as soon as there is one.
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

    async fn stop(&mut self) {
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
async fn a_wrong_token_a_foreign_origin_and_a_rebound_name_get_nothing() {
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
async fn what_a_container_used_is_there_when_the_page_starts_again() {
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

/// Where limits are enforced: one is shown. Without root the screenshots would be in a directory of another user.
#[tokio::test]
async fn a_person_works_with_a_machine_in_a_browser() {
    let mounts = "[[workspace.mounts]]\nhost_path = \"project\"\n";
    with_limited_engine(&format!("[workspace]\nimage = \"{IMAGE}\"\n{mounts}"), async |tool| {
        let Some(mut browser) = Browser::start().await else { return };
        let project = tool.work().join("project");
        std::fs::create_dir_all(&project).unwrap();
        std::fs::write(project.join("hello.txt"), "hello\n").unwrap();
        let mut page = UiServer::start(tool).await;
        browser.open(&page.address()).await;
        browser.until("document.querySelector('h1')?.textContent === 'Machines'").await;
        create(&mut browser).await;
        watch_job(&mut browser).await;
        attach(&mut browser).await;
        browser.screenshots("machine").await;
        power(&mut browser).await;
        apply(tool, &mut browser).await;
        assert_eq!(std::fs::read_to_string(project.join("hello.txt")).unwrap(), "changed\n");
        browser.go("#/sessions").await;
        browser.until("document.querySelector('main table')").await;
        browser.screenshots("sessions").await;
        browser.go("#/workflows").await;
        browser.until("document.querySelector('.empty')?.textContent.startsWith('There is no workflow')").await;
        warn(&mut browser).await;
        destroy(&mut browser).await;
        browser.end().await;
        page.stop().await;
        let left = tool.call(json!({ "operation": "status", "container": "page" })).await;
        assert_eq!(left["code"], "not_found", "{left:#}");
        let removals = tool.run(["audit", "log", "--operation", "destroy", "--json"], b"").await;
        let removals: Value = serde_json::from_slice(&removals.stdout).unwrap();
        assert_eq!(removals["acts"][0]["by"], "ui", "{removals:#}");
    })
    .await;
}

async fn create(browser: &mut Browser) {
    browser.fill("#create-name", "page").await;
    browser.fill("#create-image", IMAGE).await;
    browser.fill("#create-memory_limit", "64x").await;
    browser.click("form .primary").await;
    browser.until("document.querySelector('.failure')?.textContent.includes('memory_limit')").await;
    browser.fill("#create-memory_limit", "64m").await;
    browser.click("form .primary").await;
    browser.until("document.querySelector('.done a')?.textContent === 'Open page'").await;
    browser.until("document.querySelector('main table')?.textContent.includes('64.0 MiB')").await;
    browser.screenshots("machines").await;
    browser.click(".done a").await;
    browser.until("document.title === 'page – Coracle'").await;
}

async fn watch_job(browser: &mut Browser) {
    browser.until("document.querySelector('#job-command')").await;
    browser.fill("#job-command", "echo one; sleep 2; echo two; sleep 300").await;
    browser.click("form.line button").await;
    browser.until("document.querySelector('.output')?.textContent === 'one\\n'").await;
    browser.until("document.querySelector('.output')?.textContent === 'one\\ntwo\\n'").await;
    browser.click("[data-key^='cancel ']").await;
    browser.until("document.querySelector('.output + .help')?.textContent.startsWith('cancelled')").await;
}

async fn attach(browser: &mut Browser) {
    browser.click("[data-key='Attach']").await;
    browser.until("document.activeElement.classList.contains('xterm-helper-textarea')").await;
    browser.until("document.querySelector('#status').textContent.startsWith('Attached')").await;
    browser.until("/[#$] /.test(document.querySelector('.xterm-rows').textContent.replaceAll('\\u00a0', ' '))").await;
    browser.type_keys("echo in-$((40 + 2))\r").await;
    browser.until("document.querySelector('.xterm-rows').textContent.includes('in-42')").await;
    // The terminal goes on without the page.
    browser.click("[data-key='Detach']").await;
    browser.click("[data-key='Attach']").await;
    browser.until("document.querySelector('.xterm-rows')?.textContent.includes('in-42')").await;
}

/// A call of the machine's page that ends while another page is open leaves that one as it is.
async fn power(browser: &mut Browser) {
    let hold = "(() => { const real = fetch; globalThis.fetch = (path, options) => options?.operation !== 'stop' \
        ? real(path, options) \
        : new Promise((done) => { globalThis.release = () => { \
            globalThis.fetch = real; done(new Response('{\"success\": true}')); }; }); return true; })()";
    browser.until(hold).await;
    browser.click("[data-key='Stop']").await;
    browser.go("#/").await;
    browser.until("document.querySelector('#create-name')").await;
    browser.fill("#create-name", "kept").await;
    browser.until("(globalThis.release(), true)").await;
    browser.until("document.querySelector('#status').textContent === 'page is stopped.'").await;
    browser.until("document.querySelector('#create-name').value === 'kept'").await;
}

async fn apply(tool: &Tool<'_>, browser: &mut Browser) {
    let words = ["workspace", "shell-execute", "--", "sh", "-c", "echo changed > hello.txt; ln -s hello.txt later"];
    let written = tool.run(words, b"").await;
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    browser.go("#/session/default").await;
    browser.until("document.querySelector('h1')?.textContent === 'Session default'").await;
    browser.click("[data-key='Show changes']").await;
    browser.until("document.querySelector('.diff .added')?.textContent === '+changed\\n'").await;
    let passed_over = "[...document.querySelectorAll('main li')].some((it) => \
        it.textContent.endsWith('later is passed over: it is a link'))";
    browser.until(passed_over).await;
    browser.screenshots("changes").await;
    browser.click("[data-key='Apply to this host']").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('.done')?.textContent === '1 file was written.'").await;
    browser.until(passed_over).await;
}

/// What an answer warns of stays above each page until it is closed.
async fn warn(browser: &mut Browser) {
    let answer = "{ success: true, warnings: [{ code: 'review', message: 'look first' }] }";
    let call = format!(
        "import(new URL('static/api.js', location.href)).then(({{ call }}) => {{ const real = fetch; \
         globalThis.fetch = async () => new Response(JSON.stringify({answer})); \
         return call('destroy', {{ container: 'web' }}).finally(() => {{ globalThis.fetch = real; }}); }})"
    );
    browser.until(&call).await;
    browser.until("document.querySelector('#warnings li')?.textContent === 'web: look first'").await;
    browser.go("#/sessions").await;
    browser.until("document.querySelector('h1')?.textContent === 'Sessions'").await;
    browser.click("[data-key='close warnings']").await;
    browser.until("!document.querySelector('#warnings li')").await;
}

async fn destroy(browser: &mut Browser) {
    browser.go("#/").await;
    browser.click("[data-key='remove page']").await;
    browser.click("dialog [value='no']").await;
    browser.until("!document.querySelector('dialog')").await;
    browser.click("[data-key='remove page']").await;
    browser.click("dialog [value='yes']").await;
    browser.until("document.querySelector('#status').textContent.startsWith('page is removed')").await;
    browser.until("!document.querySelector(\"[data-key='remove page']\")").await;
}

/// The value of an answer of the browser.
fn value(answer: &Value) -> Value {
    answer["result"]["value"].clone()
}
