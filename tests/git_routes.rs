//! git through the proxy's routes: a real git without a credential, and a real server that requires one.

use std::path::Path;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_proxy::policy::{GitCredentials, GitLogin, GitRules, GitSettings, Grants, Tokens};
use coracle_proxy::token::TokenHash;
use coracle_proxy::{Port, Proxy, ProxySettings};
use coracle_types::{ProfileName, Secret};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpStream};

use crate::engines::{GitServer, Manner, git, tries_git};

const PASSWORD: &str = "canary-sesame";

#[derive(Debug)]
struct Login;

#[async_trait]
impl GitCredentials for Login {
    async fn login(&self, scheme: &str, _: &str, _: &str) -> Option<GitLogin> {
        // The server has no TLS, so it must not get credentials that are stored for https.
        (scheme == "http").then(|| GitLogin { username: "x-access-token".into(), password: Secret::from(PASSWORD) })
    }
}

/// A git whose URLs are rewritten to the routes, and the server behind them.
struct Bench {
    server: GitServer,
    proxy: Proxy,
    dir: TempDir,
    /// The address of the port that a container's relay would be.
    routes: String,
}

impl Bench {
    async fn new() -> Self {
        let server = GitServer::start();
        server.repository("owner/web", &[("README.md", "hello\n")]).await;
        git(&server.dir("owner/web"), &["config", "http.receivepack", "true"], "").await;
        server.requires("x-access-token", PASSWORD);
        let dir = tempfile::tempdir().unwrap();
        let settings = ProxySettings { log: Some(dir.path().join("proxy.jsonl")), ..ProxySettings::new("box") };
        let proxy = Proxy::new(settings).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let routes = format!("http://{}/proxy/v1/git/http", listener.local_addr().unwrap());
        tokio::spawn(relay(listener, proxy.clone()));
        Self { server, proxy, dir, routes }
    }

    fn allows(&self, push: &[&str], allow_private: bool) {
        let host = format!("127.0.0.1:{}", self.server.port());
        let settings = GitSettings {
            hosts: vec![format!("http://{host}")],
            repos: vec![format!("{host}/owner/*")],
            push: push.iter().copied().map(str::to_owned).collect(),
            allow_private,
            ..GitSettings::default()
        };
        let rules = GitRules::new(&settings, Arc::new(Login));
        let tokens = Tokens { net: Some(TokenHash::from_token(b"token")), llm: Vec::new() };
        let grants = Grants::new(ProfileName::parse("web").unwrap(), tokens);
        self.proxy.grant(Some(Grants { git: rules.ok(), ..grants }));
    }

    fn url(&self, name: &str) -> String {
        format!("{}/127.0.0.1:{}/{name}.git", self.routes, self.server.port())
    }

    async fn clone(&self, into: &str) -> Result<String, String> {
        tries_git(self.dir.path(), &["clone", "--quiet", "--", &self.url("owner/web"), into], "").await
    }

    async fn refs(&self) -> String {
        git(&self.server.dir("owner/web"), &["for-each-ref", "--format=%(refname)"], "").await
    }
}

/// Sends the token before each connection, like the guest in a container.
async fn relay(listener: TcpListener, proxy: Proxy) {
    loop {
        let (mut inside, _) = listener.accept().await.unwrap();
        let (mut near, far) = tokio::io::duplex(1 << 16);
        let proxy = proxy.clone();
        tokio::spawn(async move { proxy.serve(Port::Api, far).await });
        tokio::spawn(async move {
            near.write_all(b"CORACLE/1 token\n").await.unwrap();
            let _ = tokio::io::copy_bidirectional(&mut inside, &mut near).await;
        });
    }
}

async fn commit(at: &Path, file: &str, content: &str) {
    std::fs::write(at.join(file), content).unwrap();
    git(at, &["add", "-A"], "").await;
    let who = ["-c", "user.name=T", "-c", "user.email=t@example.com"];
    git(at, &[&who[..], &["commit", "--quiet", "-m", "more"]].concat(), "").await;
}

#[tokio::test]
async fn x57_git_fetches_and_pushes_what_it_may_without_a_credential() {
    let bench = Bench::new().await;
    bench.allows(&["refs/heads/coracle/*"], true);
    bench.clone("it").await.unwrap();
    let it = bench.dir.path().join("it");
    // More than is sent in one piece.
    let noise: String = (0..400_000_u64).map(|it| format!("{:x}", it.wrapping_mul(0x9E37_79B9_7F4A_7C15))).collect();
    commit(&it, "noise", &noise).await;
    for refspec in ["HEAD:refs/heads/coracle/x", "HEAD:refs/heads/coracle/y"] {
        git(&it, &["push", "--quiet", "origin", refspec], "").await;
    }
    for refused in [
        &["HEAD:refs/heads/main"][..],
        &[":refs/heads/coracle/x"],
        &["HEAD:refs/heads/coracle/z", "HEAD:refs/heads/main"],
        &["HEAD:refs/tags/v1"],
    ] {
        let words = [&["push", "--quiet", "origin"][..], refused].concat();
        let complaint = tries_git(&it, &words, "").await.unwrap_err();
        assert!(complaint.contains("403"), "{refused:?}: {complaint}");
    }
    assert_eq!(bench.refs().await, "refs/heads/coracle/x\nrefs/heads/coracle/y\nrefs/heads/main");
    git(&it, &["fetch", "--quiet", "origin"], "").await;
    let sent = bench.server.requests();
    let pushes = sent.iter().filter(|it| it.path.ends_with("/git-receive-pack") && it.method == "POST").count();
    // The server gets two requests to push, and a probe in addition, since the first push is large.
    assert!((2..=4).contains(&pushes), "{pushes}: {sent:?}");
    assert!(sent.iter().any(|it| it.headers.contains_key("git-protocol")));
    let log = std::fs::read_to_string(bench.dir.path().join("proxy.jsonl")).unwrap();
    assert!(log.contains("push_refused") && log.contains("git/receive-pack") && !log.contains(PASSWORD), "{log}");
}

#[tokio::test]
async fn x57_without_a_rule_it_is_fetch_only() {
    let bench = Bench::new().await;
    bench.allows(&[], true);
    bench.clone("it").await.unwrap();
    let it = bench.dir.path().join("it");
    commit(&it, "a", "a").await;
    let complaint = tries_git(&it, &["push", "origin", "HEAD:refs/heads/coracle/x"], "").await.unwrap_err();
    assert!(complaint.contains("403"), "{complaint}");
    assert!(bench.server.requests().iter().all(|it| !it.path.contains("receive-pack")));
}

#[tokio::test]
async fn only_allowed_repositories_are_requested() {
    let bench = Bench::new().await;
    bench.server.repository("other/web", &[("a", "a")]).await;
    bench.allows(&[], true);
    for url in [bench.url("other/web"), format!("{}/127.0.0.1:1/owner/web.git", bench.routes)] {
        let complaint = tries_git(bench.dir.path(), &["clone", "--", &url, "no"], "").await.unwrap_err();
        assert!(complaint.contains("403"), "{complaint}");
    }
    bench.server.behaves(Manner::Redirects("http://127.0.0.1:1/elsewhere".into()));
    assert!(bench.clone("no").await.unwrap_err().contains("502"));
    bench.server.behaves(Manner::Honest);
    bench.server.requires("x-access-token", "another");
    assert!(bench.clone("no").await.unwrap_err().contains("403"), "no password prompt appears inside");
    let requests = bench.server.requests().len();
    bench.allows(&[], false);
    assert!(bench.clone("no").await.is_err());
    assert_eq!(bench.server.requests().len(), requests, "a private address is a setting");
}

#[tokio::test]
async fn a_stranger_reaches_no_route() {
    let bench = Bench::new().await;
    bench.allows(&[], true);
    let (mut near, far) = tokio::io::duplex(1 << 16);
    let proxy = bench.proxy.clone();
    tokio::spawn(async move { proxy.serve(Port::Api, far).await });
    near.write_all(b"CORACLE/1 other\nGET /proxy/v1/health HTTP/1.1\r\n\r\n").await.unwrap();
    let mut answer = [0; 12];
    tokio::io::AsyncReadExt::read_exact(&mut near, &mut answer).await.unwrap();
    assert_eq!(&answer, b"HTTP/1.1 401");
    drop(TcpStream::connect(("127.0.0.1", bench.server.port())).await.unwrap());
    assert_eq!(bench.server.requests().len(), 0);
}
