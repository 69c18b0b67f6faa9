//! Chromium without a window, driven over its DevTools protocol.
#![expect(clippy::disallowed_methods, reason = "the browser is what is driven")]

use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use futures_util::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;

use super::super::eventually;
use super::value;
use crate::engines::is_root;

/// Time limit for a step of a test, on a busy machine too.
const PATIENCE_MS: u32 = 60_000;

const WIDTHS: [u32; 3] = [390, 768, 1280];

/// Numbers that break within, and controls that are cut off.
const BROKEN: &str = "[...document.querySelectorAll('.num, time, .state')].filter((it) => it.offsetParent && \
    (getComputedStyle(it).whiteSpace !== 'nowrap' || it.getBoundingClientRect().right > innerWidth)) \
    .map((it) => it.textContent).join(', ')";

/// One tab.
pub(crate) struct Browser {
    child: Child,
    _profile: TempDir,
    socket: WebSocketStream<TcpStream>,
    session: String,
    calls: u64,
}

impl Browser {
    /// `None`, with a message, if there is no browser.
    pub(crate) async fn start() -> Option<Self> {
        let profile = tempfile::tempdir().unwrap();
        let mut command = Command::new("chromium");
        command
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run"])
            .args(["--disable-background-networking", "--disable-component-update", "--disable-sync"])
            .args([
                "--remote-debugging-port=0",
                &format!("--user-data-dir={}", profile.path().display()),
                "about:blank",
            ])
            .env("HOME", profile.path())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        let Ok(child) = command.spawn() else {
            coracle_skips::skip(coracle_skips::NEEDS_CHROMIUM);
            return None;
        };
        let file = profile.path().join("DevToolsActivePort");
        let lines = || std::fs::read_to_string(&file).ok().filter(|it| it.lines().count() == 2);
        eventually("the browser says where it listens", Duration::from_secs(30), async || lines().is_some()).await;
        let lines = lines().unwrap();
        let (port, path) = lines.split_once('\n').unwrap();
        let stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).await.unwrap();
        let address = format!("ws://127.0.0.1:{port}{}", path.trim());
        let (socket, _) = tokio_tungstenite::client_async(address, stream).await.unwrap();
        let mut browser = Self { child, _profile: profile, socket, session: String::new(), calls: 0 };
        let target = browser.call("Target.createTarget", json!({ "url": "about:blank" })).await;
        let attach = json!({ "targetId": target["targetId"], "flatten": true });
        let attached = browser.call("Target.attachToTarget", attach).await;
        attached["sessionId"].as_str().unwrap().clone_into(&mut browser.session);
        for domain in ["Network", "Page", "Runtime", "Log", "Accessibility"] {
            browser.call(&format!("{domain}.enable"), json!({})).await;
        }
        Some(browser)
    }

    /// Ends the browser, and all processes that it started.
    pub(crate) async fn end(mut self) {
        self.session.clear();
        self.call("Browser.close", json!({})).await;
        let _ = tokio::time::timeout(Duration::from_secs(20), self.child.wait()).await;
    }

    /// A call of the protocol. Events that arrive in between must be harmless.
    async fn call(&mut self, method: &str, params: Value) -> Value {
        self.calls += 1;
        let mut call = json!({ "id": self.calls, "method": method, "params": params });
        if !self.session.is_empty() {
            call["sessionId"] = self.session.clone().into();
        }
        self.socket.send(Message::text(call.to_string())).await.unwrap();
        loop {
            let message = self.socket.next().await.expect("the browser is there").unwrap();
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == self.calls {
                assert!(message["error"].is_null(), "{method}: {message:#}");
                return message["result"].clone();
            }
            check(&message);
        }
    }

    async fn evaluate(&mut self, expression: &str) -> Value {
        let params = json!({ "expression": expression, "awaitPromise": true, "returnByValue": true });
        let answer = self.call("Runtime.evaluate", params).await;
        assert!(answer["exceptionDetails"].is_null(), "{expression}: {answer:#}");
        value(&answer)
    }

    pub(crate) async fn open(&mut self, address: &str) {
        self.call("Page.navigate", json!({ "url": address })).await;
    }

    /// Another page of the same document.
    pub(crate) async fn go(&mut self, hash: &str) {
        self.evaluate(&format!("void (location.hash = {})", json!(hash))).await;
    }

    /// Waits until the expression is true.
    pub(crate) async fn until(&mut self, expression: &str) {
        let waiting = format!(
            "new Promise((done) => {{ const began = Date.now(); const look = () => {{ \
             if ({expression}) done(''); \
             else if (Date.now() - began > {PATIENCE_MS}) done(document.body.innerText); \
             else setTimeout(look, 50); }}; look(); }})"
        );
        // A navigation ends what waits in the old document, and so does the page when it loads again what a change of the
        // network broke off.
        for _ in 0..20 {
            let params = json!({ "expression": waiting, "awaitPromise": true, "returnByValue": true });
            self.calls += 1;
            let call = json!({
                "id": self.calls, "method": "Runtime.evaluate", "params": params, "sessionId": self.session,
            });
            self.socket.send(Message::text(call.to_string())).await.unwrap();
            let answer = self.answer().await;
            if answer["error"].is_null() {
                assert_eq!(value(&answer["result"]), "", "never: {expression}");
                return;
            }
        }
        panic!("the document changed again and again: {expression}");
    }

    async fn answer(&mut self) -> Value {
        loop {
            let message = self.socket.next().await.expect("the browser is there").unwrap();
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            if message["id"] == self.calls {
                return message;
            }
            check(&message);
        }
    }

    pub(crate) async fn click(&mut self, selector: &str) {
        let element = format!("document.querySelector({})", json!(selector));
        self.until(&format!("{element} && !{element}.disabled")).await;
        self.evaluate(&format!("{element}.click()")).await;
    }

    pub(crate) async fn fill(&mut self, selector: &str, text: &str) {
        let element = format!("document.querySelector({})", json!(selector));
        self.evaluate(&format!("{element}.focus(), {element}.select()")).await;
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Presses the key of each character.
    pub(crate) async fn type_keys(&mut self, text: &str) {
        for key in text.chars() {
            let (key, text) =
                if key == '\r' { ("Enter".to_owned(), "\r".to_owned()) } else { (key.into(), key.into()) };
            let code = if key == "Enter" { 13 } else { 0 };
            let press = json!({ "type": "keyDown", "key": key, "text": text, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", press).await;
            self.call("Input.dispatchKeyEvent", json!({ "type": "keyUp", "key": key })).await;
        }
    }

    /// Presses one key that is no character.
    pub(crate) async fn press(&mut self, key: &str) {
        let code = match key {
            "Escape" => 27,
            "ArrowLeft" => 37,
            "ArrowUp" => 38,
            "ArrowDown" => 40,
            _ => panic!("the code of {key} is not known"),
        };
        for kind in ["rawKeyDown", "keyUp"] {
            let press = json!({ "type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code });
            self.call("Input.dispatchKeyEvent", press).await;
        }
    }

    /// Inserts text at the focus without key events, like dictation or an emoji picker.
    pub(crate) async fn insert_text(&mut self, text: &str) {
        self.call("Input.insertText", json!({ "text": text })).await;
    }

    /// Holds requests that the expression of `path` and `options` selects, until [`release`](Self::release).
    pub(crate) async fn hold(&mut self, which: &str) {
        let hold = format!(
            "(() => {{ const real = fetch; const held = []; globalThis.fetch = (path, options) => ({which}) \
             ? new Promise((done) => held.push(() => done(real(path, options)))) : real(path, options); \
             globalThis.waiting = () => held.length; globalThis.release = () => {{ globalThis.fetch = real; held.forEach((it) => it()); return held.length; }}; \
             return true; }})()"
        );
        self.until(&hold).await;
    }

    /// Releases held requests, as soon as there is one.
    pub(crate) async fn release(&mut self) {
        self.until("globalThis.waiting() > 0").await;
        self.evaluate("globalThis.release()").await;
    }

    /// Requires that the expression is true, or becomes true as a promise.
    pub(crate) async fn holds(&mut self, expression: &str) {
        assert_eq!(self.evaluate(expression).await, true, "{expression}");
    }

    /// Opens one of the actions of a menu by its text.
    pub(crate) async fn choose(&mut self, menu: &str, action: &str) {
        self.click(menu).await;
        let item = format!(
            "[...document.querySelectorAll('[role=menuitem]')].find((it) => it.textContent === {})",
            json!(action)
        );
        self.until(&item).await;
        self.evaluate(&format!("{item}.click()")).await;
    }

    /// Controls without an accessible name.
    async fn nameless(&mut self) -> Vec<String> {
        let tree = self.call("Accessibility.getFullAXTree", json!({})).await;
        let controls =
            ["button", "link", "textbox", "searchbox", "checkbox", "combobox", "tab", "menuitem", "dialog", "table"];
        let is_nameless = |node: &&Value| {
            let role = node["role"]["value"].as_str().unwrap_or_default();
            let name = node["name"]["value"].as_str().unwrap_or_default();
            node["ignored"] == false && controls.contains(&role) && name.trim().is_empty()
        };
        tree["nodes"].as_array().unwrap().iter().filter(is_nameless).map(ToString::to_string).collect()
    }

    /// Pictures of the page in both themes at three widths. None scrolls sideways, numbers do not break, and all that can be
    /// operated has a name.
    pub(crate) async fn screenshots(&mut self, name: &str) {
        std::fs::create_dir_all(directory()).unwrap();
        assert_eq!(self.nameless().await, [""; 0], "{name}");
        for theme in ["light", "dark"] {
            let feature = json!({ "name": "prefers-color-scheme", "value": theme });
            self.call("Emulation.setEmulatedMedia", json!({ "features": [feature] })).await;
            for width in WIDTHS {
                let size = json!({ "width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false });
                self.call("Emulation.setDeviceMetricsOverride", size).await;
                let is_wide = "document.documentElement.scrollWidth > document.documentElement.clientWidth";
                assert_eq!(self.evaluate(is_wide).await, false, "{name} at {width} scrolls sideways");
                assert_eq!(self.evaluate(BROKEN).await, "", "{name} at {width}");
                let height = self.evaluate("document.documentElement.scrollHeight").await;
                let clip = json!({ "x": 0, "y": 0, "width": width, "height": height, "scale": 1 });
                let picture = json!({ "format": "png", "captureBeyondViewport": true, "clip": clip });
                let answer = self.call("Page.captureScreenshot", picture).await;
                let bytes = BASE64_STANDARD.decode(answer["data"].as_str().unwrap()).unwrap();
                // The directory is root's, whose run saves the same pictures.
                let saved = std::fs::write(directory().join(format!("{name}-{width}-{theme}.png")), bytes);
                assert!(saved.is_ok() || !rustix::process::geteuid().is_root(), "{saved:?}");
            }
        }
    }
}

/// Checks that no request leaves this machine, and that the page has no errors.
fn check(event: &Value) {
    let params = &event["params"];
    let address = match event["method"].as_str().unwrap_or_default() {
        "Network.requestWillBeSent" => &params["request"]["url"],
        "Network.webSocketCreated" => &params["url"],
        "Runtime.exceptionThrown" => panic!("the page fails: {event:#}"),
        // Containers of other tests come and go, and their network interfaces with them.
        "Log.entryAdded" if params["entry"]["text"].as_str().is_some_and(|it| it.ends_with("ERR_NETWORK_CHANGED")) => {
            return;
        }
        "Log.entryAdded" if params["entry"]["level"] == "error" => panic!("the page has an error: {event:#}"),
        _ => return,
    };
    let address = address.as_str().unwrap();
    let local = ["http://127.0.0.1:", "ws://127.0.0.1:", "about:", "data:"];
    assert!(local.iter().any(|it| address.starts_with(it)), "a request left this machine: {address}");
}

/// The directory for screenshots of a run.
fn directory() -> PathBuf {
    if !is_root() {
        // Another account may have built the tests, and write nothing beside them.
        return coracle_skips::of_account("screenshots");
    }
    // target/<profile>/deps/<this program>
    std::env::current_exe().unwrap().ancestors().nth(3).unwrap().join("screenshots")
}
