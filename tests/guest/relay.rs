//! A container without a network, and its relays to a proxy of the host.

mod git;
mod ways;

use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use coracle_client::{LinkSettings, SocketAt, Upstream as By};
use coracle_protocol::relay::{API_PORT, EGRESS_PORT, ProbeEgress};
use coracle_proxy::listen::ProxyListener;
use coracle_proxy::policy::{EgressPolicy, FixedKey, Grants, ProviderConfig, ProviderKind, Tokens};
use coracle_proxy::token::{TokenHash, fresh_token};
use coracle_proxy::{Proxy, ProxySettings, Wall, self_test};
use coracle_runtime::ExecTarget;
use coracle_sandbox::Code;
use coracle_types::{ContainerId, EngineKind, Error, Exec, Ids, ProcessId, ProfileName, Secret};
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{AGENT, add_perl, perl, sh, until};
use crate::engines::{Case, Running, Way, engine_program, guest_program, ran, with_real_engines};

const WORKER: Ids = Ids { uid: 10001, gid: 10001 };

const KEY: &str = "sk-canary-0123456789";

/// A container with the capabilities of a sandbox, and its own proxy.
struct Room<'a> {
    running: Running<'a>,
    proxy: Proxy,
    listening: Option<ProxyListener>,
    sockets: PathBuf,
    net: Secret,
    llm: Secret,
    _dir: TempDir,
}

impl<'a> Room<'a> {
    async fn new(case: &'a Case, name: &str, network: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [link, sockets] = ["link", "sock"].map(|it| dir.path().join(it));
        for dir in [&link, &sockets] {
            std::fs::DirBuilder::new().mode(0o700).create(dir).unwrap();
        }
        let proxy = Proxy::new(ProxySettings::new(name)).unwrap();
        let listening = Some(ProxyListener::open(&proxy, &sockets).unwrap());
        let id = started(case, (name, network), (&link, &sockets)).await;
        let pid1 = case.runtime.inspect(&(&id).into()).await.unwrap().pid.and_then(ProcessId::from_pid);
        let socket = SocketAt { dir: link, pid1 };
        let guest = case.runtime.link(&id, Some(socket.clone()), LinkSettings::default()).await.unwrap();
        until("the guest answers", async || guest.open().await.is_ok()).await;
        let running = Running { case, id, way: Way::Socket, inside: ExecTarget::Guest(guest), socket };
        add_perl(&running).await;
        let room = Self { running, proxy, listening, sockets, net: fresh_token(), llm: fresh_token(), _dir: dir };
        room.proxy.grant(Some(room.grants()));
        room
    }

    fn grants(&self) -> Grants {
        let hash = |it: &Secret| Some(TokenHash::from_token(it.reveal()));
        let tokens = Tokens { llm: hash(&self.llm).into_iter().collect(), net: hash(&self.net) };
        let egress = Some(EgressPolicy::default().into());
        Grants { egress, ..Grants::new(ProfileName::parse("web").unwrap(), tokens) }
    }

    /// Connects its proxy to a model of this host, and to one more port.
    fn opens(&self, model: u16, page: u16) {
        let key = Arc::new(FixedKey(Arc::new(Secret::from(KEY))));
        let base = format!("http://127.0.0.1:{model}");
        let provider = ProviderConfig::new(ProviderKind::OpenAi, &base, key, &["gpt-*".to_owned()]).unwrap();
        let egress = EgressPolicy::parse(&[format!("ip:127.0.0.1:{page}")]).unwrap();
        self.proxy.grant(Some(Grants { provider: Some(provider), egress: Some(egress.into()), ..self.grants() }));
    }

    /// A worker asks the model of [`opens`](Self::opens), and the proxy counts what that took.
    async fn asks_its_model(&self, more: &str) {
        let token = String::from_utf8(self.llm.reveal().to_vec()).unwrap();
        let body = format!(r#"{{"model":"gpt-x","x":"{more}"}}"#);
        let chat = format!(
            "POST /proxy/v1/chat/completions HTTP/1.1\r\nHost: proxy\r\nX-Coracle-Token: {token}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n{body}",
            body.len()
        );
        let answer = self.says(WORKER, API_PORT, &chat).await;
        assert!(answer.contains("prompt_tokens"), "{answer}");
        until("it is counted", async || self.proxy.metered().tokens() == 7).await;
    }

    async fn relays(&self) {
        self.running.link().relay(By::Sockets, &self.net, "").await.unwrap();
    }

    /// The body of the answer that a program of that user gets on a port of its loopback, or that there is none.
    async fn hears(&self, user: Ids, port: u16, request: &str) -> String {
        let request = format!("{request}Connection: close\r\n\r\n");
        self.says(user, port, &request).await
    }

    async fn says(&self, user: Ids, port: u16, request: &str) -> String {
        let program = format!(
            "socket(S, 2, 1, 0) and connect(S, pack('S n C4 x8', 2, {port}, 127, 0, 0, 1)) or exit; \
             syswrite(S, pack('H*', '{}')); while (sysread(S, $it, 65536)) {{ print $it }}",
            hex::encode(request)
        );
        let exec = Exec { user, keep_bytes: 8 << 20, ..perl(&program) };
        let received = self.running.printed(exec).await;
        received.split_once("\r\n\r\n").map_or("none".to_owned(), |it| it.1.to_owned())
    }

    async fn health(&self, user: Ids) -> String {
        self.hears(user, API_PORT, "GET /proxy/v1/health HTTP/1.1\r\nHost: proxy\r\n").await
    }

    /// Twenty programs inside each get all of the [`large_page`] on that port.
    async fn fetches_at_once(&self, page: u16) {
        let fetch = format!("GET http://127.0.0.1:{page}/ HTTP/1.1\r\nHost: x\r\n");
        let received = join_all((0..20).map(|_| self.hears(AGENT, EGRESS_PORT, &fetch))).await;
        assert!(received.iter().all(|it| it.bytes().filter(|it| *it == b'x').count() == LARGE));
    }
}

/// Size of a page that does not fit in any pipe or window on the way.
const LARGE: usize = 3 << 20;

/// The answer of a model.
const COMPLETION: &str = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;

const HEALTHY: &str = r#"{"profile":"web","status":"ok"}"#;

/// What the self-test expects of a container.
fn behind(gateways: &[IpAddr], has_network: bool) -> Option<Wall<'_>> {
    Some(Wall { gateways, has_network })
}

async fn started(case: &Case, (name, network): (&str, &str), (link, sockets): (&PathBuf, &PathBuf)) -> ContainerId {
    let (name, label) = (case.name(name), case.label());
    let mut run = engine_program(case.engine().as_str());
    run.args(["run", "--detach", "--pull=never", "--entrypoint=/.coracle/guest", "--user=0:0", "--cap-drop=ALL"]);
    run.args(["SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE"].map(|it| format!("--cap-add={it}")));
    run.args(["--security-opt=no-new-privileges", "--tmpfs=/.coracle/run:rw,noexec,nosuid,nodev,size=16m,mode=0755"]);
    run.arg(format!("--name={name}"))
        .arg(format!("--label={}={}", label.0, label.1))
        .arg(format!("--network={network}"));
    // Docker's and Podman's internal networks lead to this host; the embedded engine's do if it is named.
    if case.engine() == EngineKind::Embedded && network != "none" {
        run.arg("--add-host=host.docker.internal:host-gateway");
    }
    run.arg(format!("--volume={}:/.coracle/guest:ro", guest_program().display()));
    run.arg(format!("--volume={}:/.coracle/link", link.display()));
    run.arg(format!("--volume={}:/.coracle/proxy:ro", sockets.display()));
    let output = run.args([case.image.as_str(), "init"]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ContainerId::parse(String::from_utf8(output.stdout).unwrap().trim()).unwrap()
}

/// A server on this host that answers every request with the same text.
async fn server(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut received = Vec::new();
                while !received.windows(4).any(|it| it == b"\r\n\r\n") {
                    if stream.read_buf(&mut received).await? == 0 {
                        break;
                    }
                }
                let length = answer.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
                stream.write_all(&[head.as_bytes(), answer.as_bytes()].concat()).await
            });
        }
    });
    port
}

/// A server of a page of that size.
async fn large_page() -> u16 {
    server(Box::leak("x".repeat(LARGE).into_boxed_str())).await
}

#[tokio::test]
async fn x11_x56_a_token_is_in_no_file_and_no_environment() {
    with_real_engines(async |case| {
        let room = Room::new(case, "quiet", "none").await;
        room.relays().await;
        assert_eq!(room.health(AGENT).await, HEALTHY);
        let token = String::from_utf8(room.net.reveal().to_vec()).unwrap();
        let search = format!(
            "grep -rsl -- {token} /.coracle/run /tmp /etc /home; cat /proc/[0-9]*/environ /proc/1/cmdline 2>/dev/null | \
             grep -c -- {token}"
        );
        assert_eq!(room.running.ran(sh(&search)).await.stdout.text(), "0\n");
        let engine = case.engine();
        let reported = engine_program(engine.as_str()).args(["inspect", room.running.id.as_str()]).output().await.unwrap();
        assert!(!String::from_utf8_lossy(&reported.stdout).contains(&token));
    })
    .await;
}

#[tokio::test]
async fn x62_the_proxy_ends_and_returns_with_its_host_process() {
    with_real_engines(async |case| {
        let mut room = Room::new(case, "back", "none").await;
        room.relays().await;
        for _ in 0..2 {
            assert_eq!(room.health(AGENT).await, HEALTHY);
            room.listening = None;
            assert_eq!(room.health(AGENT).await, "none");
            room.listening = Some(ProxyListener::open(&room.proxy, &room.sockets).unwrap());
        }
        room.proxy.grant(None);
        assert!(room.health(AGENT).await.contains("token_invalid"), "revoked");
    })
    .await;
}

#[tokio::test]
async fn x60_x08_without_a_network_only_the_proxy_answers_and_with_one_that_is_found_out() {
    with_real_engines(async |case| {
        let room = Room::new(case, "none", "none").await;
        let gateways: [IpAddr; 2] = ["172.17.0.1".parse().unwrap(), "10.88.0.1".parse().unwrap()];
        let failure = self_test(room.running.link(), behind(&gateways, false)).await.unwrap_err();
        assert_eq!(failure.code, Code::ProxyUnreachable, "no relay yet: {failure:?}");
        room.relays().await;
        self_test(room.running.link(), behind(&gateways, false)).await.unwrap();
        let tcp = [
            "1.1.1.1:443",
            "172.17.0.1:22",
            "172.17.0.1:80",
            "10.88.0.1:53",
            "192.168.1.1:80",
            "10.0.0.1:443",
            "169.254.169.254:80",
            "100.100.100.200:80",
            "[2606:4700:4700::1111]:443",
            "[fe80::1]:80",
            "[fd00::1]:80",
            "8.8.8.8:853",
        ];
        let udp = [
            "1.1.1.1:53",
            "8.8.8.8:53",
            "172.17.0.1:53",
            "10.88.0.1:53",
            "224.0.0.251:5353",
            "[2606:4700:4700::1111]:53",
        ];
        let texts = |it: &[&str]| it.iter().copied().map(str::to_owned).collect();
        let probe = ProbeEgress { tcp: texts(&tcp), udp: texts(&udp), name: "x.invalid:443".into(), within_ms: 1000 };
        let probed = room.running.link().probe(probe).await.unwrap();
        assert_eq!((probed.reached, probed.egress, probed.api), (vec![], Some(403), Some(200)));
        let ping = sh("ping -c 1 -w 1 1.1.1.1 >/dev/null 2>&1 && echo reached; ls /sys/class/net");
        assert_eq!(room.running.printed(ping).await, "lo\n");
        let bridged =
            Room::new(case, "bridged", if case.engine().as_str() == "podman" { "podman" } else { "bridge" }).await;
        bridged.relays().await;
        let gateway = bridged.running.printed(sh("ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'")).await;
        let gateway: IpAddr = gateway.trim().parse().unwrap();
        let failure = self_test(bridged.running.link(), behind(&[gateway], true)).await.unwrap_err();
        assert_eq!(failure.code, Code::EgressNotEnforced, "{failure:?}");
        // Wherever the network leads: the addresses of the test may be out of reach of this host, too.
        let failure = self_test(bridged.running.link(), behind(&[], false)).await.unwrap_err();
        assert!(failure.details["reached"].to_string().contains("interface eth0"), "{failure:?}");
    })
    .await;
}

#[tokio::test]
async fn many_connections_at_once_and_large_answers_arrive() {
    with_real_engines(async |case| {
        let room = Room::new(case, "many", "none").await;
        room.relays().await;
        let page = large_page().await;
        let egress = EgressPolicy::parse(&[format!("ip:127.0.0.1:{page}")]).unwrap();
        room.proxy.grant(Some(Grants { egress: Some(egress.into()), ..room.grants() }));
        room.fetches_at_once(page).await;
    })
    .await;
}

#[tokio::test]
async fn an_invalid_token_is_refused() {
    with_real_engines(async |case| {
        let room = Room::new(case, "odd", "none").await;
        for invalid in ["", "a b", "a\nb", &"x".repeat(101)] {
            let refused = room.running.link().relay(By::Sockets, &Secret::from(invalid), "").await;
            assert!(matches!(refused, Err(Error::Refused(_))), "{invalid}: {refused:?}");
        }
    })
    .await;
}
