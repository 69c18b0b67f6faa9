//! Network access of a workspace to allowed host names.

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::time::{Duration, Instant};

use coracle_types::ProcessId;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::{Agent, with_agent, with_real_agent};
use crate::engines::ran;
use crate::tool::eventually;
use crate::tool::mcp::Client;

const PROJECT: &str = "[project]\nname = \"small\"\nversion = \"0.1.0\"\nrequires-python = \">=3.9\"\n\
    dependencies = [\"iniconfig\"]\n[dependency-groups]\ndev = [\"pytest\"]\n";

const TEST: &str = "import iniconfig\n\ndef test_it():\n    assert iniconfig.IniConfig\n";

/// The addresses of a name from the host's resolver. Behind a company's mirror they are private.
fn addresses(names: &[&str]) -> String {
    let all = names.iter().flat_map(|it| (*it, 443).to_socket_addrs().unwrap());
    let all: BTreeSet<IpAddr> = all.map(|it| it.ip()).filter(IpAddr::is_ipv4).collect();
    all.iter().map(|it| format!(", \"ip:{it}\"")).collect()
}

/// W03: without a registry the default image is built here, which only the first answer reports.
async fn tells_of_a_stand_in(agent: &Agent<'_>, first: &Value) {
    assert_eq!(first["success"], true, "{first:#}");
    let python = agent.sh("python -c 'import platform; print(platform.python_version(), end=str())'").await;
    let python = python["stdout"].as_str().unwrap();
    let record = agent.tool.slot_container(agent.process.context.call.session.as_str(), "workspace").unwrap();
    let made = record["image"].as_str().unwrap();
    let warning = first["warnings"].as_array().unwrap().iter().find(|it| it["code"] == "bootstrap_image");
    if made.ends_with("python:3.12-bookworm") {
        assert_eq!(warning, None, "it was here, or a registry gave it");
        return;
    }
    let details = &warning.unwrap_or_else(|| panic!("{made}: {first:#}"))["details"];
    assert_eq!((&details["image"], &details["stand_in"]), (&"python:3.12-bookworm".into(), &made.into()), "{first:#}");
    let message = warning.unwrap()["message"].as_str().unwrap();
    for gap in details["gaps"].as_array().unwrap() {
        assert!(message.contains(gap.as_str().unwrap()), "{first:#}");
    }
    assert!(message.contains(&format!("python {python}")), "{python} is what was found in it: {first:#}");
    ran("w03", agent.engine());
}

#[tokio::test]
async fn w43_dependencies_of_a_project_install_by_the_proxy_and_its_tests_pass() {
    if !coracle_skips::may_download() {
        return;
    }
    let mirror = addresses(&["pypi.org", "files.pythonhosted.org"]);
    let config = format!(
        "[workspace]\nimage = \"python:3.12-bookworm\"\nnetwork = \"proxy\"\n[workspace.egress]\nallow = [\"pypi\"{mirror}]\n"
    );
    with_real_agent(&config, async |agent| {
        let first = agent.call("write_file", json!({ "file_path": "pyproject.toml", "content": PROJECT })).await;
        tells_of_a_stand_in(agent, &first).await;
        let second = agent.call("write_file", json!({ "file_path": "test_it.py", "content": TEST })).await;
        assert_eq!((&second["success"], &second["warnings"]), (&true.into(), &json!([])), "{second:#}");
        for command in [
            vec!["sh", "-c", "pip install --quiet --disable-pip-version-check six && python -c 'import six'"],
            vec!["python3", "-m", "venv", "tools"],
            vec!["tools/bin/pip", "install", "--quiet", "uv"],
            vec!["tools/bin/uv", "run", "pytest", "-q"],
        ] {
            let env = json!({ "UV_CACHE_DIR": "/workspace/.cache" });
            let call = json!({ "command": command, "timeout_seconds": 120, "env": env });
            let ran = agent.value("shell_execute", call).await;
            assert_eq!(ran["exit_code"], 0, "{command:?}: {ran:#}");
        }
        ran("w43", agent.engine());
    })
    .await;
}

/// Answers requests on an address of this host that is not its loopback.
fn served() -> Option<(IpAddr, u16)> {
    let probe = UdpSocket::bind("0.0.0.0:0").ok()?;
    // No packet is sent: the kernel selects the local address.
    probe.connect("192.0.2.1:9").ok()?;
    let listener = TcpListener::bind((probe.local_addr().ok()?.ip(), 0)).ok()?;
    let at = listener.local_addr().ok()?;
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let mut stream = stream;
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nthere");
        }
    });
    Some((at.ip(), at.port()))
}

impl Agent<'_> {
    /// The answer that a program inside gets through the proxy.
    async fn fetched(&self, url: &str) -> Value {
        self.sh(&fetching(url)).await
    }
}

/// A script that prints answers through the proxy.
fn fetching(url: &str) -> String {
    format!("printf 'GET {url} HTTP/1.0\\r\\n\\r\\n' | /.coracle/guest pipe \"${{HTTP_PROXY#http://}}\"")
}

#[tokio::test]
async fn a_workspace_reaches_the_names_of_its_list_and_loses_them_with_the_setting() {
    let (ip, port) = served().expect("this host has a network");
    let config = format!("[workspace]\nnetwork = \"proxy\"\n[workspace.egress]\nallow = [\"ip:{ip}:{port}\"]\n");
    with_real_agent(&config, async |agent| {
        let there = format!("http://{ip}:{port}/");
        let got = agent.fetched(&there).await;
        assert!(got["stdout"].as_str().is_some_and(|it| it.ends_with("there")), "{got:#}");
        let other = agent.fetched(&format!("http://{ip}:{}/", port ^ 1)).await;
        assert!(other["stdout"].as_str().is_some_and(|it| it.contains("403")), "{other:#}");
        // The proxy cannot be bypassed.
        let direct = agent.sh(&format!("/.coracle/guest pipe {ip}:{port} </dev/null")).await;
        assert_eq!(direct["exit_code"], 1, "{direct:#}");

        // The process that ran the proxy has ended; the session's next process runs it again.
        let before = agent.container("workspace");
        let later = Agent::new(agent.tool, agent.process.context.call.session.as_str());
        let got = later.fetched(&there).await;
        assert!(got["stdout"].as_str().is_some_and(|it| it.ends_with("there")), "{got:#}");
        assert_eq!(later.container("workspace"), before);

        let file = agent.tool.root.path().join("config.toml");
        let config = std::fs::read_to_string(&file).unwrap();
        let closed = config.replacen("[security]\n", "[security]\nnetwork = \"none\"\n", 1);
        let own = if closed == config { "security.network = \"none\"\n" } else { "" };
        std::fs::write(file, format!("{own}{closed}")).unwrap();
        let refused = Agent::new(agent.tool, agent.process.context.call.session.as_str()).call("ls", json!({})).await;
        assert_eq!((&refused["code"], &refused["details"]["rule"]), (&json!("policy_denied"), &json!("network.open")));
    })
    .await;
}

#[tokio::test]
async fn a_proxy_is_taken_over_when_its_process_is_killed() {
    let (ip, port) = served().expect("this host has a network");
    let config = format!("[workspace]\nnetwork = \"proxy\"\n[workspace.egress]\nallow = [\"ip:{ip}:{port}\"]\n");
    with_real_agent(&config, async |agent| {
        let there = format!("http://{ip}:{port}/");
        let got = |it: &Value| it["stdout"].as_str().is_some_and(|it| it.ends_with("there"));
        let mut server =
            Client::start(&mut agent.tool.command(["--session", agent.process.context.call.session.as_str(), "mcp"]))
                .await;
        let call = json!({ "name": "shell_execute", "arguments": { "command": ["sh", "-c", fetching(&there)] } });
        server.send(json!({ "jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call })).await;
        let first = server.answer().await["result"]["structuredContent"]["value"].take();
        assert!(got(&first), "{first:#}");
        let before = agent.container("workspace").expect("the server made it");

        // Another process of the session uses the first one's proxy.
        assert!(got(&agent.fetched(&there).await));
        server.child.kill().await.unwrap();
        let begun = Instant::now();
        eventually("the way out is open again", Duration::from_secs(10), async || got(&agent.fetched(&there).await))
            .await;
        eprintln!("taken over within {:?}", begun.elapsed());
        let other = agent.fetched(&format!("http://{ip}:{}/", port ^ 1)).await;
        assert!(other["stdout"].as_str().is_some_and(|it| it.contains("403")), "{other:#}");
        assert_eq!(agent.container("workspace"), Some(before), "in the same container");
    })
    .await;
}

#[tokio::test]
async fn a_pruned_session_container_is_reported_and_leaves_no_proxy() {
    // On the fake the certificates of the proxy belong to the user of the test.
    if !coracle_skips::has_root() {
        return;
    }
    with_agent("[workspace]\nnetwork = \"proxy\"\n\n[workspace.egress]\nallow = [\"pypi\"]\n", async |agent| {
        agent.sh("true").await;
        let dir = agent.tool.state().join("sessions").join("agent-1");
        assert!(dir.join("proxy").is_dir() && agent.container("workspace").is_some());
        // Its process died long ago.
        let file = dir.join("workspace.json");
        let mut record: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
        record["expires_at"] = "2001-01-01T00:00:00Z".into();
        let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
        record["owner"] = serde_json::to_value(dead).unwrap();
        record.as_object_mut().unwrap().remove("sum");
        record["sum"] = hex::encode(Sha256::digest(record.to_string())).into();
        std::fs::write(&file, record.to_string()).unwrap();
        let prune = json!({ "operation": "prune", "kinds": ["containers"], "dry_run": false });
        let pruned = agent.tool.call(prune).await;
        let items = pruned["items"].as_array().unwrap();
        assert!(items.iter().any(|it| it["removed"] == true && it["name"] == record["name"]), "{pruned:#}");
        assert_eq!((agent.container("workspace"), dir.join("proxy").exists()), (None, false));
        let reported = std::fs::read_to_string(dir.join("events.jsonl")).unwrap();
        let ended =
            reported.lines().map(|it| serde_json::from_str::<Value>(it).unwrap()).find(|it| it["event"] == "ended");
        assert_eq!(ended.unwrap()["reason"], "lease_expired", "{reported}");
    })
    .await;
}
