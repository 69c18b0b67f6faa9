//! A container without a network, and its relays to a proxy of the host: sandbox.md 4 and 5.

use std::net::IpAddr;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::link::wire::relay::{API_PORT, EGRESS_PORT, Probe};
use coracle_runtime::link::{LinkSettings, SocketAt, Way as By};
use coracle_runtime::{ContainerId, Error, Exec, Ids, Input, Inside, NetworkAct, ProcessId, Secret};
use coracle_sandbox::proxy::{
    EgressPolicy, FixedKey, GitCredentials, GitLogin, GitMode, GitRules, GitSettings, Grants, Listening, Outlets,
    Proxy, ProxySettings, Tokens, self_test,
};
use coracle_sandbox::proxy::{ProviderConfig, ProviderKind};
use coracle_sandbox::{Between, Code, ProfileName, TokenHash, fresh_token};
use futures_util::future::join_all;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::{AGENT, add_perl, argv, perl, sh, until};
use crate::engines::{Case, Running, Way, engine_program, guest_program, ran, with_real_engines};

const WORKER: Ids = Ids { uid: 10001, gid: 10001 };

const KEY: &str = "sk-canary-0123456789";

/// A container with the capabilities of a sandbox's, and the proxy that is its alone.
struct Room<'a> {
    running: Running<'a>,
    proxy: Proxy,
    listening: Option<Listening>,
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
        let listening = Some(Listening::open(&proxy, &sockets).unwrap());
        let id = started(case, (name, network), (&link, &sockets)).await;
        let pid1 = case.runtime.inspect(&(&id).into()).await.unwrap().pid.and_then(ProcessId::of);
        let socket = SocketAt { dir: link, pid1 };
        let guest = case.runtime.link(&id, Some(&socket), LinkSettings::default()).await.unwrap();
        until("the guest answers", async || guest.open().await.is_ok()).await;
        let running = Running { case, id, way: Way::Socket, inside: Inside::Guest(guest), socket };
        add_perl(&running).await;
        let room = Self { running, proxy, listening, sockets, net: fresh_token(), llm: fresh_token(), _dir: dir };
        room.proxy.grant(Some(room.grants()));
        room
    }

    fn grants(&self) -> Grants {
        let hash = |it: &Secret| Some(TokenHash::of(it.reveal()));
        let tokens = Tokens { llm: hash(&self.llm).into_iter().collect(), net: hash(&self.net) };
        let egress = Some(EgressPolicy::default());
        Grants { egress, ..Grants::new(ProfileName::parse("web").unwrap(), tokens) }
    }

    /// From now on its proxy leads to a model of this host, and to one more port.
    fn opens(&self, model: u16, page: u16) {
        let key = Arc::new(FixedKey(Arc::new(Secret::from(KEY))));
        let base = format!("http://127.0.0.1:{model}");
        let provider = ProviderConfig::new(ProviderKind::OpenAi, &base, key, &["gpt-*".to_owned()]).unwrap();
        let egress = EgressPolicy::parse(&[format!("ip:127.0.0.1:{page}")]).unwrap();
        self.proxy.grant(Some(Grants { provider: Some(provider), egress: Some(egress), ..self.grants() }));
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

    /// What a program of that user hears on a port of its loopback: the body of the answer, or that there is none.
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
        let heard = self.running.printed(exec).await;
        heard.split_once("\r\n\r\n").map_or("none".to_owned(), |it| it.1.to_owned())
    }

    async fn health(&self, user: Ids) -> String {
        self.hears(user, API_PORT, "GET /proxy/v1/health HTTP/1.1\r\nHost: proxy\r\n").await
    }
}

/// What a model answers.
const COMPLETION: &str = r#"{"usage":{"prompt_tokens":3,"completion_tokens":4}}"#;

const HEALTHY: &str = r#"{"profile":"web","status":"ok"}"#;

async fn started(case: &Case, (name, network): (&str, &str), (link, sockets): (&PathBuf, &PathBuf)) -> ContainerId {
    let (name, label) = (case.name(name), case.label());
    let mut run = engine_program(case.engine().as_str());
    run.args(["run", "--detach", "--pull=never", "--entrypoint=/.coracle/guest", "--user=0:0", "--cap-drop=ALL"]);
    run.args(["SETUID", "SETGID", "KILL", "CHOWN", "DAC_OVERRIDE"].map(|it| format!("--cap-add={it}")));
    run.args(["--security-opt=no-new-privileges", "--tmpfs=/.coracle/run:rw,noexec,nosuid,nodev,size=16m,mode=0755"]);
    run.arg(format!("--name={name}"))
        .arg(format!("--label={}={}", label.0, label.1))
        .arg(format!("--network={network}"));
    run.arg(format!("--volume={}:/.coracle/guest:ro", guest_program().display()));
    run.arg(format!("--volume={}:/.coracle/link", link.display()));
    run.arg(format!("--volume={}:/.coracle/proxy:ro", sockets.display()));
    let output = run.args([case.image.as_str(), "init"]).output().await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    ContainerId::parse(String::from_utf8(output.stdout).unwrap().trim()).unwrap()
}

/// A server on this host that answers every request with the same words.
async fn server(answer: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let mut heard = Vec::new();
                while !heard.windows(4).any(|it| it == b"\r\n\r\n") {
                    if stream.read_buf(&mut heard).await? == 0 {
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

#[tokio::test]
async fn x59_each_container_reaches_its_own_proxy_and_no_other() {
    with_real_engines(async |case| {
        let rooms = [Room::new(case, "one", "none").await, Room::new(case, "two", "none").await];
        let (model, page) = (server(COMPLETION).await, server("page").await);
        let room = &rooms[0];
        assert_eq!(room.health(AGENT).await, "none", "nobody listens before the token is there");
        room.relays().await;
        for user in [Ids::ROOT, WORKER, AGENT] {
            assert_eq!(room.health(user).await, HEALTHY, "{user:?}");
        }
        room.opens(model, page);
        room.asks_its_model("").await;
        let fetch = format!("GET http://127.0.0.1:{page}/ HTTP/1.1\r\nHost: x\r\n");
        assert!(room.hears(AGENT, EGRESS_PORT, &fetch).await.contains("page"));
        // The other container's own relay has the other token, and its sockets are its own.
        rooms[1].running.link().relay(By::Sockets, &room.net, "").await.unwrap();
        assert!(rooms[1].health(AGENT).await.contains("token_invalid"));
        rooms[1].relays().await;
        assert_eq!(rooms[1].health(AGENT).await, HEALTHY, "a second token takes the first one's place");
    })
    .await;
}

#[tokio::test]
async fn x59_by_its_link_a_container_gets_the_same_and_nobody_listens() {
    with_real_engines(async |case| {
        let mut rooms = [Room::new(case, "one", "none").await, Room::new(case, "two", "none").await];
        let mut outlets: Vec<_> = rooms.iter().map(|it| Outlets::open(&it.proxy, it.running.link())).collect();
        for room in &mut rooms {
            room.listening = None;
            room.running.link().relay(By::Link, &room.net, "").await.unwrap();
        }
        let room = &rooms[0];
        assert!(std::fs::read_dir(&room.sockets).unwrap().next().is_none(), "there is no socket");
        for user in [Ids::ROOT, WORKER, AGENT] {
            assert_eq!(room.health(user).await, HEALTHY, "{user:?}");
        }
        self_test(room.running.link(), Some(&[])).await.unwrap();
        let large: &'static str = Box::leak("x".repeat(3 << 20).into_boxed_str());
        let (model, page) = (server(COMPLETION).await, server(large).await);
        room.opens(model, page);
        room.asks_its_model(&"y".repeat(40 << 10)).await;
        let fetch = format!("GET http://127.0.0.1:{page}/ HTTP/1.1\r\nHost: x\r\n");
        let heard = join_all((0..20).map(|_| room.hears(AGENT, EGRESS_PORT, &fetch))).await;
        assert!(heard.iter().all(|it| it.bytes().filter(|it| *it == b'x').count() == 3 << 20));

        // The other container's way leads to its own proxy, which does not know this one's token.
        rooms[1].running.link().relay(By::Link, &room.net, "").await.unwrap();
        assert!(rooms[1].health(AGENT).await.contains("token_invalid"));
        rooms[1].running.link().relay(By::Link, &rooms[1].net, "").await.unwrap();
        assert_eq!(rooms[1].health(AGENT).await, HEALTHY);

        // With whoever keeps it the way goes, and comes back.
        outlets.remove(0);
        assert_eq!(room.health(AGENT).await, "none");
        outlets.push(Outlets::open(&room.proxy, room.running.link()));
        assert_eq!(room.health(AGENT).await, HEALTHY);
        room.proxy.grant(None);
        assert!(room.health(AGENT).await.contains("token_invalid"), "revoked");
    })
    .await;
}

/// A network without a way out, and the address that this host has on it.
async fn internal(case: &Case, name: &str) -> (String, Between) {
    let name = case.network_name(name);
    let labels = vec![case.label()];
    let make = NetworkAct::Create { name: name.clone(), labels, reach: true, internal: true };
    let made = case.runtime.network(make).await.unwrap().pop().unwrap();
    (made.name, Between { gateway: made.gateways[0], subnet: made.subnets[0] })
}

#[tokio::test]
async fn x59_by_a_network_of_its_own_a_container_gets_the_same_and_its_engine_lets_it_reach_more() {
    with_real_engines(async |case| {
        let nets = [internal(case, "one").await, internal(case, "two").await];
        let mut rooms = [Room::new(case, "one", &nets[0].0).await, Room::new(case, "two", &nets[1].0).await];
        let mut told = Vec::new();
        for (room, (_, between)) in rooms.iter_mut().zip(&nets) {
            let (listening, [api, egress]) = Listening::at(&room.proxy, *between, None).unwrap();
            let gateway = between.gateway;
            assert!(api.ip() == gateway && egress.ip() == gateway && api.port() != egress.port());
            room.listening = Some(listening);
            let way = By::Tcp { api, egress };
            room.running.link().relay(way, &room.net, "").await.unwrap();
            told.push(way);
        }
        let room = &rooms[0];
        for user in [Ids::ROOT, WORKER, AGENT] {
            assert_eq!(room.health(user).await, HEALTHY, "{user:?}");
        }
        let large: &'static str = Box::leak("x".repeat(3 << 20).into_boxed_str());
        let (model, page) = (server(COMPLETION).await, server(large).await);
        room.opens(model, page);
        room.asks_its_model(&"y".repeat(40 << 10)).await;
        let fetch = format!("GET http://127.0.0.1:{page}/ HTTP/1.1\r\nHost: x\r\n");
        let heard = join_all((0..20).map(|_| room.hears(AGENT, EGRESS_PORT, &fetch))).await;
        assert!(heard.iter().all(|it| it.bytes().filter(|it| *it == b'x').count() == 3 << 20));

        // With the other one's address it is at a door that its own token does not open, if it gets there at all: docker
        // 20.10 leads from one internal network to the gateway of another.
        room.running.link().relay(told[1], &room.net, "").await.unwrap();
        let heard = room.health(AGENT).await;
        assert!(heard == "none" || heard.contains("token_invalid"), "{heard}");
        rooms[1].running.link().relay(told[1], &room.net, "").await.unwrap();
        assert!(rooms[1].health(AGENT).await.contains("token_invalid"));
        rooms[1].running.link().relay(told[1], &rooms[1].net, "").await.unwrap();
        assert_eq!(rooms[1].health(AGENT).await, HEALTHY);
        room.running.link().relay(told[0], &room.net, "").await.unwrap();

        // Nothing outside is reached, and of this host more than the proxy is: what nobody listens on answers, too.
        self_test(room.running.link(), Some(&[])).await.unwrap();
        let failure = self_test(room.running.link(), Some(&[nets[0].1.gateway])).await.unwrap_err();
        assert_eq!(failure.code, Code::EgressNotEnforced, "{failure:?}");
        ran("x59", case.engine());
    })
    .await;
}

#[tokio::test]
async fn x59_by_the_link_more_connections_than_it_has_places_wait_their_turn() {
    with_real_engines(async |case| {
        let mut room = Room::new(case, "busy", "none").await;
        let _outlets = Outlets::open(&room.proxy, room.running.link());
        room.listening = None;
        room.running.link().relay(By::Link, &room.net, "").await.unwrap();
        // Each is held for longer than a connection waits where nobody is.
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let page = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                tokio::spawn(async move {
                    let _ = stream.read(&mut [0; 1024]).await?;
                    tokio::time::sleep(Duration::from_secs(3)).await;
                    stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\nConnection: close\r\n\r\npage").await
                });
            }
        });
        room.opens(page, page);
        let program = format!(
            "my @all; for (1..80) {{ my $s; socket($s, 2, 1, 0) and connect($s, pack('S n C4 x8', 2, {EGRESS_PORT}, 127, 0, 0, 1)) or next; \
             syswrite($s, \"GET http://127.0.0.1:{page}/ HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n\\r\\n\"); push @all, $s }} \
             my $n = 0; for my $s (@all) {{ my ($all, $it) = ('', ''); $all .= $it while sysread($s, $it, 65536); $n++ if $all =~ /page/ }} print $n"
        );
        assert_eq!(room.running.printed(Exec { user: AGENT, ..perl(&program) }).await, "80");
    })
    .await;
}

#[tokio::test]
async fn x11_x56_a_token_lies_in_no_file_and_no_environment() {
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
        let told = engine_program(engine.as_str()).args(["inspect", room.running.id.as_str()]).output().await.unwrap();
        assert!(!String::from_utf8_lossy(&told.stdout).contains(&token));
    })
    .await;
}

#[tokio::test]
async fn x62_with_its_host_process_the_way_out_goes_and_comes_back() {
    with_real_engines(async |case| {
        let mut room = Room::new(case, "back", "none").await;
        room.relays().await;
        for _ in 0..2 {
            assert_eq!(room.health(AGENT).await, HEALTHY);
            room.listening = None;
            assert_eq!(room.health(AGENT).await, "none");
            room.listening = Some(Listening::open(&room.proxy, &room.sockets).unwrap());
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
        let failure = self_test(room.running.link(), Some(&gateways)).await.unwrap_err();
        assert_eq!(failure.code, Code::ProxyUnreachable, "no relay yet: {failure:?}");
        room.relays().await;
        self_test(room.running.link(), Some(&gateways)).await.unwrap();
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
        let probe = Probe { tcp: texts(&tcp), udp: texts(&udp), name: "x.invalid:443".into(), within_ms: 1000 };
        let probed = room.running.link().probe(probe).await.unwrap();
        assert_eq!((probed.reached, probed.egress, probed.api), (vec![], Some(403), Some(200)));
        let ping = sh("ping -c 1 -w 1 1.1.1.1 >/dev/null 2>&1 && echo reached; ls /sys/class/net");
        assert_eq!(room.running.printed(ping).await, "lo\n");
        let bridged =
            Room::new(case, "bridged", if case.engine().as_str() == "podman" { "podman" } else { "bridge" }).await;
        bridged.relays().await;
        let gateway = bridged.running.printed(sh("ip route | sed -n 's/^default via \\([^ ]*\\).*/\\1/p'")).await;
        let gateway: IpAddr = gateway.trim().parse().unwrap();
        let failure = self_test(bridged.running.link(), Some(&[gateway])).await.unwrap_err();
        assert_eq!(failure.code, Code::EgressNotEnforced, "{failure:?}");
    })
    .await;
}

#[derive(Debug)]
struct Login;

#[async_trait]
impl GitCredentials for Login {
    async fn login(&self, scheme: &str, _: &str, path: &str) -> Option<GitLogin> {
        let password = || Secret::from(format!("for-{path}").as_str());
        (scheme == "https").then(|| GitLogin { username: "u".into(), password: password() })
    }
}

#[tokio::test]
async fn x58_git_inside_is_given_a_credential_only_where_that_is_the_mode() {
    with_real_engines(async |case| {
        let room = Room::new(case, "git", "none").await;
        let rules = |mode| {
            let settings = GitSettings {
                mode,
                hosts: vec!["github.com".into()],
                repos: vec!["github.com/owner/*".into()],
                ..GitSettings::default()
            };
            GitRules::new(&settings, Arc::new(Login)).unwrap()
        };
        let config = rules(GitMode::Proxy).config();
        room.running.link().relay(By::Sockets, &room.net, &config).await.unwrap();
        let shown = Exec { user: AGENT, ..sh("cat /.coracle/run/gitconfig; touch /.coracle/run/gitconfig") };
        let shown = room.running.ran(shown).await;
        assert_eq!(shown.stdout.text(), config);
        assert!(shown.stderr.text().contains("denied"), "{shown:?}");
        let asks = async |act: &str, host: &str, path: &str| {
            let text = format!("protocol=https\nhost={host}\npath={path}\n");
            let exec = argv(&["/.coracle/guest", "git-credential", act]);
            let exec = Exec { user: AGENT, stdin: Some(Input::Bytes(text.into_bytes())), ..exec };
            let it = room.running.ran(exec).await;
            (it.stdout.text(), it.stderr.text())
        };
        let nothing = |why: &str| ("quit=true\n".to_owned(), format!("coracle: no credential: {why}\n"));
        let granted = |mode| Grants { git: Some(rules(mode)), ..room.grants() };
        room.proxy.grant(Some(granted(GitMode::Proxy)));
        assert_eq!(asks("get", "github.com", "owner/web.git").await, nothing("route_not_allowed"));
        room.proxy.grant(Some(granted(GitMode::Credential)));
        let given = "username=u\npassword=for-owner/web.git\n".to_owned();
        assert_eq!(asks("get", "github.com", "owner/web.git").await, (given, String::new()));
        for (host, path) in [("evil.com", "owner/web.git"), ("github.com", "other/web.git"), ("github.com", "")] {
            assert_eq!(asks("get", host, path).await, nothing("git_host_not_allowed"), "{host}/{path}");
        }
        for act in ["store", "erase"] {
            assert_eq!(asks(act, "github.com", "owner/web.git").await, (String::new(), String::new()));
        }
    })
    .await;
}

#[tokio::test]
async fn many_connections_at_once_and_large_answers_arrive() {
    with_real_engines(async |case| {
        let room = Room::new(case, "many", "none").await;
        room.relays().await;
        let large: &'static str = Box::leak("x".repeat(3 << 20).into_boxed_str());
        let port = server(large).await;
        let egress = EgressPolicy::parse(&[format!("ip:127.0.0.1:{port}")]).unwrap();
        room.proxy.grant(Some(Grants { egress: Some(egress), ..room.grants() }));
        let fetch = format!("GET http://127.0.0.1:{port}/ HTTP/1.1\r\nHost: x\r\n");
        let heard = join_all((0..20).map(|_| room.hears(AGENT, EGRESS_PORT, &fetch))).await;
        assert!(heard.iter().all(|it| it.bytes().filter(|it| *it == b'x').count() == 3 << 20));
    })
    .await;
}

#[tokio::test]
async fn what_is_no_token_is_refused() {
    with_real_engines(async |case| {
        let room = Room::new(case, "odd", "none").await;
        for odd in ["", "a b", "a\nb", &"x".repeat(101)] {
            let refused = room.running.link().relay(By::Sockets, &Secret::from(odd), "").await;
            assert!(matches!(refused, Err(Error::Refused(_))), "{odd}: {refused:?}");
        }
    })
    .await;
}
