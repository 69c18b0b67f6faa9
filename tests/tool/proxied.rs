//! `network: "proxy"` of `create`: the only way out is the proxy.

mod clients;
mod ways_out;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::mcp::Client;
use super::person::Person;
use super::with_limited_engine;
use crate::engines::IMAGE;

/// A server on an address of this host that is not its loopback.
pub(super) struct Served {
    at: SocketAddr,
    /// The first bytes of each request.
    requests: Arc<Mutex<Vec<String>>>,
}

impl Served {
    /// Answers each request with `there`.
    pub(super) fn here() -> Self {
        let probe = UdpSocket::bind("0.0.0.0:0").unwrap();
        // No packet is sent: the kernel selects the local address.
        probe.connect("192.0.2.1:9").unwrap();
        let listener = TcpListener::bind((probe.local_addr().unwrap().ip(), 0)).unwrap();
        let (at, requests) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<String>>>::default());
        let received = requests.clone();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let bytes = stream.read(&mut request).unwrap_or(0);
                received.lock().unwrap().push(String::from_utf8_lossy(&request[..bytes]).into_owned());
                let _ = stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nthere");
            }
        });
        Self { at, requests }
    }

    /// An address that no rule for this one allows.
    pub(super) fn elsewhere(&self) -> Self {
        Self { at: SocketAddr::new(self.at.ip(), self.at.port() ^ 1), requests: Arc::default() }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/", self.at)
    }

    /// The rule that allows it.
    pub(super) fn rule(&self) -> String {
        format!("ip:{}", self.at)
    }

    /// The number of requests for a path that it received. Containers of several engines use it at the same time.
    pub(super) fn requests(&self, path: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|it| it.contains(path)).count()
    }
}

/// A script that prints the answer to a request through the proxy.
pub(super) fn fetching(url: &str) -> String {
    format!("printf 'GET {url} HTTP/1.0\\r\\n\\r\\n' | /.coracle/guest pipe \"${{HTTP_PROXY#http://}}\"")
}

#[tokio::test]
async fn a_container_reaches_the_allowed_hosts_by_its_proxy_and_nothing_else() {
    let served = Served::here();
    let config = format!(
        "[security.egress]\nallow = [\"{}\"]\n[secrets.MY_TOKEN]\nhosts = [\"api.example.com\"]\n\
         [secrets.GITHUB_TOKEN]\n",
        served.rule()
    );
    let person = Person::new(config).with_env("MY_TOKEN", "canary-of-the-host").with_env("GITHUB_TOKEN", "ghp_canary");
    person
        .on_real_engines(async |tool| {
            let create = json!({ "operation": "create", "image": IMAGE, "network": "proxy", "mount_cwd": false,
                "env_passthrough": ["MY_TOKEN"] });
            let made = tool.call(create).await;
            assert_eq!((&made["success"], &made["network"]), (&true.into(), &"proxy".into()), "{made:#}");
            let name = made["container"].as_str().unwrap();
            let step = made["provisioning_report"].as_array().unwrap().iter().find(|it| it["name"] == "proxy").unwrap();
            assert_eq!(step["detail"], "1 rule and 2 secrets through the proxy");
            let ran = async |script: &str| {
                tool.call(json!({ "operation": "exec", "container": name, "command": script })).await
            };
            let exec = async |script: &str| ran(script).await["stdout"].as_str().unwrap().to_owned();
            let (there, elsewhere) = (served.url(), served.elsewhere());
            assert!(exec(&fetching(&there)).await.ends_with("there"));
            let refused = ran(&fetching(&elsewhere.url())).await;
            let (other, rule) = (refused["stdout"].as_str().unwrap(), elsewhere.rule());
            assert!(other.contains("403") && other.contains("port_not_allowed"), "{other}");
            assert!(other.contains(&format!("\"rule\":\"{rule}\"")), "{other}");
            let warning = refused["warnings"].as_array().unwrap().iter().find(|it| it["code"] == "request_refused");
            assert!(
                warning.unwrap()["message"].as_str().unwrap().contains(&format!("the rule `{rule}`")),
                "{refused:#}"
            );
            let direct = exec(&format!("/.coracle/guest pipe {} </dev/null; echo $?", served.at)).await;
            assert_eq!(direct.trim(), "1", "past the proxy");
            let inside = exec("env; cat /proc/1/environ").await;
            assert!(!inside.contains("canary"), "{inside}");
            let placeholder = inside.lines().find_map(|it| it.strip_prefix("MY_TOKEN=")).unwrap().to_owned();
            assert!(placeholder.len() == 40 && inside.contains("GITHUB_TOKEN=ghp_"), "{inside}");
            let status = tool.call(json!({ "operation": "status", "container": name })).await;
            assert_eq!(status["network"], "proxy");

            // Another process uses the proxy as well.
            let mut server = Client::start(&mut tool.command(["mcp", "--toolsets", "classic"])).await;
            let job = json!({ "operation": "exec_background", "container": name,
                "command": format!("for i in 1 2 3; do {}; done", fetching(&there)) });
            let started = server.result("containers", &job).await["structuredContent"].take();
            let wait =
                json!({ "operation": "job_wait", "container": name, "job_id": started["job_id"], "timeout": 30 });
            assert_eq!(tool.call(wait).await["exit_code"], 0, "{started:#}");
            let poll = json!({ "operation": "exec_poll", "container": name, "job_id": started["job_id"] });
            let output = tool.call(poll).await["output"].take();
            assert_eq!(output.as_str().unwrap().matches("there").count(), 3, "{output:#}");
            server.end().await;

            let log = tool.run(["audit", "log", "--operation", "request", "--json"], b"").await;
            let log = String::from_utf8(log.stdout).unwrap();
            assert!(log.contains(&elsewhere.at.to_string()) && log.contains("port_not_allowed"), "{log}");

            let destroyed = tool.call(json!({ "operation": "destroy", "container": name })).await;
            assert_eq!(destroyed["success"], true, "{destroyed:#}");
            assert_eq!(std::fs::read_dir(tool.state().join("proxy")).unwrap().count(), 0, "nothing of it stays");
        })
        .await;
}

#[tokio::test]
async fn the_configuration_decides_what_a_proxy_is_for() {
    let person = Person::new("[security]\nnetwork = \"proxy\"\n".to_owned());
    person
        .on_every_engine(async |tool| {
            let create = |network: Option<&str>| {
                let mut call = json!({ "operation": "create", "image": IMAGE, "mount_cwd": false });
                network.into_iter().for_each(|it| call["network"] = it.into());
                call
            };
            let refused = tool.call(create(Some("bridge"))).await;
            assert_eq!(
                (&refused["code"], &refused["details"]["rule"]),
                (&"policy_denied".into(), &"network.open".into())
            );
            let made = tool.call(create(None)).await;
            assert_eq!((&made["success"], &made["network"]), (&true.into(), &"proxy".into()), "{made:#}");
            let name = made["container"].as_str().unwrap();
            tool.call(json!({ "operation": "destroy", "container": name })).await;
        })
        .await;
}

#[tokio::test]
async fn under_strict_the_proxy_is_the_only_network() {
    let served = Served::here();
    let config = format!(
        "policy = \"strict\"\n[security]\nnetwork = \"proxy\"\n[security.egress]\nallow = [\"{}\"]\n",
        served.rule()
    );
    with_limited_engine(&config, async |tool| {
        let made = tool.call(json!({ "operation": "create", "image": IMAGE })).await;
        assert_eq!((&made["success"], &made["network"]), (&true.into(), &"proxy".into()), "{made:#}");
        let name = made["container"].as_str().unwrap();
        let script = format!("{}; ls -l \"$SSL_CERT_FILE\"", fetching(&served.url()));
        let ran = tool.call(json!({ "operation": "exec", "container": name, "command": script })).await;
        let output = ran["stdout"].as_str().unwrap();
        assert!(output.contains("there") && output.contains("/.coracle/run/ca-certificates.crt"), "{ran:#}");
        tool.call(json!({ "operation": "destroy", "container": name })).await;
    })
    .await;
}
