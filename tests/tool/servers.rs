//! Purposes whose containers run a server: `create` publishes it, waits for it, and returns what a client needs.

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::person::step;
use super::{Tool, with_engine, with_rootful_engine, with_tool};
use crate::engines::{IMAGE, ran, skip, variable};
use crate::servers::websocket::WebSocket;

/// A page whose password is in a file, and which responds some time after its program has started.
fn config() -> String {
    let serve = "umask 077; mkdir -p /tmp/www && printf a-%s canary >~/password && echo hello >/tmp/www/page; sleep 1; exec httpd -f -p 8000 -h /tmp/www";
    format!(
        "[profiles.page]\nimage = \"{IMAGE}\"\npackages = []\n[profiles.page.server]\ncommand = {}\nport = 8000\npath = \"/page\"\npassword = \"password\"\n",
        json!(["/bin/sh", "-c", serve])
    )
}

/// The answer to a request, with its head.
async fn request(method: &str, url: &str) -> String {
    let (address, path) = url.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = TcpStream::connect(address).await.unwrap();
    let request = format!("{method} /{path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = Vec::new();
    while !is_whole(&answer) && stream.read_buf(&mut answer).await.unwrap() > 0 {}
    String::from_utf8(answer).unwrap()
}

/// Not every server closes the connection behind its answer.
fn is_whole(answer: &[u8]) -> bool {
    let text = String::from_utf8_lossy(answer).to_ascii_lowercase();
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head.lines().find_map(|it| it.strip_prefix("content-length:")?.trim().parse::<usize>().ok());
    length.is_some_and(|it| body.len() >= it)
}

async fn page(url: &str) -> String {
    request("GET", url).await
}

fn body(answer: &str) -> Value {
    serde_json::from_str(answer.split_once("\r\n\r\n").unwrap().1).unwrap()
}

fn url(answer: &Value) -> &str {
    answer["server"]["url"].as_str().unwrap_or_else(|| panic!("{answer:#}"))
}

#[tokio::test]
async fn the_server_of_a_purpose_answers_at_the_url_that_create_gives() {
    with_engine(&config(), async |tool: &Tool<'_>| {
        let call =
            json!({ "image": null, "purpose": "page", "name": "page", "if_exists": "reuse", "persistent": true });
        let answer = tool.made(call.clone()).await;
        assert_eq!(step(&answer, "main")["status"], "success", "{answer:#}");
        assert_eq!((&answer["main_job_id"], &answer["server"]["port"]), (&"main".into(), &8000.into()), "{answer:#}");
        assert!(url(&answer).starts_with("http://127.0.0.1:") && url(&answer).ends_with("/page"), "{answer:#}");
        assert!(page(url(&answer)).await.ends_with("hello\n"));
        assert_eq!(answer["server"]["password"], "a-canary");
        let again = tool.made(call).await;
        assert_eq!((&again["reused"], &again["server"]["password"]), (&true.into(), &Value::Null), "{again:#}");
        assert_eq!(url(&again), url(&answer), "the port is the same");
        let records: String = tool.records().iter().map(|it| std::fs::read_to_string(it).unwrap()).collect();
        assert!(records.contains("\"server\"") && !records.contains("a-canary"), "a secret is in no record: {records}");
    })
    .await;
}

#[tokio::test]
async fn the_program_of_a_call_takes_the_place_of_the_server() {
    with_tool(&config(), async |tool| {
        let main = json!(["/bin/sh", "-c", "sleep 600"]);
        let answer = tool.made(json!({ "image": null, "purpose": "page", "main": main })).await;
        assert_eq!((&answer["server"], &answer["ports"]), (&Value::Null, &json!([])), "{answer:#}");
        let alone = json!({ "image": null, "purpose": "page", "network": "none" });
        let answer = tool.made(alone).await;
        assert_eq!(answer["ports"], json!([]), "without a network no port is published: {answer:#}");
    })
    .await;
}

/// Building the image takes minutes and needs the network, so it is built only if `CORACLE_COOK` names it.
fn is_built(purpose: &str) -> bool {
    let named = variable("CORACLE_COOK").unwrap_or_default();
    let named = named.split(',').any(|it| it == purpose);
    if !named {
        skip("takes minutes; CORACLE_COOK names what is built");
    }
    named
}

#[tokio::test]
async fn a_client_of_this_host_drives_the_browser_of_a_container() {
    if !is_built("browser") {
        return;
    }
    with_rootful_engine("", async |tool| {
        for user in ["0:0", "1000:1000"] {
            let answer = tool.made(json!({ "image": null, "purpose": "browser", "user": user })).await;
            let name = answer["container"].as_str().unwrap();
            assert_eq!(step(&answer, "main")["status"], "success", "{answer:#}");
            assert!(body(&page(url(&answer)).await)["Browser"].to_string().contains("Chrome/"));
            let serve = "mkdir -p /tmp/www && echo '<title>Of the container</title><h1>Hello</h1>' >/tmp/www/index.html; cd /tmp/www && exec python3 -m http.server 8000";
            let served = json!({ "operation": "exec_background", "container": name, "command": serve });
            let job = tool.call(served).await["job_id"].clone();
            let wait = json!({ "operation": "job_wait", "container": name, "job_id": job, "until": "port", "port": 8000 });
            assert_eq!(tool.call(wait).await["reason"], "port");
            let address = url(&answer).strip_prefix("http://").unwrap().split('/').next().unwrap().to_owned();
            let opened = body(&request("PUT", &format!("http://{address}/json/new?http://127.0.0.1:8000/")).await);
            let path = opened["webSocketDebuggerUrl"].as_str().unwrap().strip_prefix(&format!("ws://{address}")).unwrap();
            let mut tab = WebSocket::open(&address, path, "").await;
            let loaded = "new Promise(it => document.readyState == 'complete' ? it() : addEventListener('load', it)).then(() => document.title)";
            let title = json!({ "expression": loaded, "awaitPromise": true });
            assert_eq!(tab.call("Runtime.evaluate", title).await["result"]["value"], "Of the container");
            let picture = tab.call("Page.captureScreenshot", json!({})).await;
            assert!(picture["data"].as_str().unwrap().starts_with("iVBORw0KGgo"), "it is a PNG");
            let launches = "from playwright.sync_api import sync_playwright as s\nwith s() as p: print(p.chromium.launch().new_page().evaluate('6 * 7'))";
            assert_eq!(tool.prints(name, &format!("python3 -c \"{launches}\"")).await, "42");
        }
        ran("browser", tool.case.engine());
    })
    .await;
}

#[tokio::test]
async fn the_desktop_of_a_container_is_a_page_that_asks_for_the_password() {
    if !is_built("desktop") {
        return;
    }
    with_rootful_engine("", async |tool| {
        for user in ["0:0", "1000:1000"] {
            let answer = tool.made(json!({ "image": null, "purpose": "desktop", "user": user })).await;
            let name = answer["container"].as_str().unwrap();
            assert_eq!(step(&answer, "main")["status"], "success", "{answer:#}");
            assert!(page(url(&answer)).await.contains("noVNC"));
            assert_eq!(answer["server"]["password"].as_str().unwrap().len(), 8, "{answer:#}");
            let address = url(&answer).strip_prefix("http://").unwrap().split('/').next().unwrap();
            let mut screen = WebSocket::open(address, "/websockify", "Sec-WebSocket-Protocol: binary\r\n").await;
            assert_eq!(screen.bytes(b"").await, b"RFB 003.008\n");
            // One kind of authentication, by the password.
            assert_eq!(screen.bytes(b"RFB 003.008\n").await, [1, 2]);
            assert_eq!(screen.bytes(&[2]).await.len(), 16, "the challenge");
            assert_eq!(screen.bytes(&[0; 16]).await[..4], [0, 0, 0, 1], "no other password opens it");
            assert_eq!(tool.prints(name, "xdotool search --sync --onlyvisible --class xterm | wc -l").await, "1");
        }
        ran("desktop", tool.case.engine());
    })
    .await;
}
