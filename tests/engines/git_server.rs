//! A git server over HTTP: git's own CGI program behind a small listener.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use coracle_types::{Command as What, ContainerPath, Exec, Ids};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinHandle;

use super::{Lack, Way, with_real_engines};

/// A git server of one test. It ends when it is dropped.
#[derive(Debug)]
pub(crate) struct GitServer {
    shared: Arc<Shared>,
    port: u16,
    listens: JoinHandle<()>,
}

/// A request to the server.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// Path with query.
    pub(crate) path: String,
    /// Headers, by lower-case name.
    pub(crate) headers: BTreeMap<String, String>,
}

/// The behaviour of the server.
#[derive(Clone, Debug, Default)]
pub(crate) enum Manner {
    /// A regular git server.
    #[default]
    Honest,
    /// Sends the client elsewhere.
    Redirects(String),
    /// Accepts, and never answers.
    Silent,
}

#[derive(Debug)]
struct Shared {
    root: TempDir,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    manner: Manner,
    /// The header that a client has to send.
    authorization: Option<String>,
    requests: Vec<Request>,
}

impl GitServer {
    /// Listens on every address of this host, at a free port.
    pub(crate) fn start() -> Self {
        let listener = std::net::TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
        listener.set_nonblocking(true).unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let port = listener.local_addr().unwrap().port();
        let shared = Arc::new(Shared { root: tempfile::tempdir().unwrap(), state: Mutex::default() });
        let listens = tokio::spawn(accept(listener, shared.clone()));
        Self { shared, port, listens }
    }

    /// Creates a repository with one commit on `main`, and returns the commit's id. Files that begin with `#!` are
    /// executable.
    pub(crate) async fn repository(&self, name: &str, files: &[(&str, &str)]) -> String {
        git(self.shared.root.path(), &["init", "--quiet", "--bare", "--initial-branch=main", &dir_name(name)], "")
            .await;
        for (key, value) in [("uploadpack.allowFilter", "true"), ("uploadpack.allowAnySHA1InWant", "true")] {
            git(&self.dir(name), &["config", key, value], "").await;
        }
        self.commit(name, "main", files).await
    }

    /// Adds a branch with one commit without a parent, and returns the commit's id.
    pub(crate) async fn commit(&self, name: &str, branch: &str, files: &[(&str, &str)]) -> String {
        let mut stream = format!("commit refs/heads/{branch}\ncommitter Test <test@example.com> 1700000000 +0000\n");
        stream += "data 4\ntest\n";
        for (path, content) in files {
            let mode = if content.starts_with("#!") { "100755" } else { "100644" };
            stream += &format!("M {mode} inline {path}\ndata {}\n{content}\n", content.len());
        }
        git(&self.dir(name), &["fast-import", "--quiet", "--force"], &stream).await;
        git(&self.dir(name), &["rev-parse", &format!("refs/heads/{branch}")], "").await
    }

    /// Serves a bare repository that was created elsewhere. Moves it here.
    pub(crate) fn adopt(&self, name: &str, bare: &Path) {
        std::fs::rename(bare, self.dir(name)).unwrap();
    }

    /// The directory of a repository.
    pub(crate) fn dir(&self, name: &str) -> PathBuf {
        self.shared.root.path().join(dir_name(name))
    }

    /// The URL for a container.
    pub(crate) fn url(&self, name: &str) -> String {
        format!("http://{}/{}", SocketAddr::new(address(), self.port), dir_name(name))
    }

    /// The URL for this host only.
    pub(crate) fn local_url(&self, name: &str) -> String {
        format!("http://127.0.0.1:{}/{}", self.port, dir_name(name))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Requires this name and token from now on.
    pub(crate) fn requires(&self, user: &str, token: &str) {
        let header = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{token}")));
        self.shared.state.lock().unwrap().authorization = Some(header);
    }

    /// Sets the behaviour from now on.
    pub(crate) fn behaves(&self, manner: Manner) {
        self.shared.state.lock().unwrap().manner = manner;
    }

    /// All requests so far.
    pub(crate) fn requests(&self) -> Vec<Request> {
        self.shared.state.lock().unwrap().requests.clone()
    }
}

impl Drop for GitServer {
    fn drop(&mut self) {
        self.listens.abort();
    }
}

fn dir_name(name: &str) -> String {
    format!("{name}.git")
}

/// The address that this host has towards others. No packet is sent to find it.
fn address() -> IpAddr {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap();
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).unwrap();
    let address = socket.local_addr().unwrap().ip();
    assert!(!address.is_loopback() && !address.is_unspecified(), "this host has no address but its loopback");
    address
}

/// A git without the configuration of the user of the tests.
#[expect(clippy::disallowed_methods, reason = "a test's server is made of git's own programs")]
fn git_program(dir: &Path) -> Command {
    let mut command = Command::new("git");
    command
        .current_dir(dir)
        .env_clear()
        .env("PATH", "/usr/local/bin:/usr/bin:/bin")
        .env("HOME", dir)
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .kill_on_drop(true);
    command
}

/// Runs git, which has to succeed, and returns its output.
pub(crate) async fn git(dir: &Path, words: &[&str], stdin: &str) -> String {
    tries_git(dir, words, stdin).await.unwrap_or_else(|err| panic!("git {words:?}: {err}"))
}

/// Runs git, and returns its output or its errors.
pub(crate) async fn tries_git(dir: &Path, words: &[&str], stdin: &str) -> Result<String, String> {
    let mut command = git_program(dir);
    let (ok, stdout, stderr) = run(command.args(words).env("GIT_TERMINAL_PROMPT", "0"), stdin.as_bytes()).await;
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).trim_end().to_owned();
    if ok { Ok(text(stdout)) } else { Err(text(stderr)) }
}

async fn run(command: &mut Command, stdin: &[u8]) -> (bool, Vec<u8>, Vec<u8>) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = piped.spawn().unwrap();
    let mut pipe = child.stdin.take().unwrap();
    let feed = async {
        let _ = pipe.write_all(stdin).await;
        drop(pipe);
    };
    let (_, output) = tokio::join!(feed, child.wait_with_output());
    let output = output.unwrap();
    (output.status.success(), output.stdout, output.stderr)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    // Ends with the server and not before: a client may still use its connection.
    let mut served = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let shared = shared.clone();
        served.spawn(async move { drop(serve(stream, &shared).await) });
    }
}

/// Serves one request of a connection.
async fn serve(stream: TcpStream, shared: &Shared) -> std::io::Result<()> {
    let mut stream = BufReader::new(stream);
    let Some(request) = head(&mut stream).await? else { return Ok(()) };
    let body = body(&mut stream, &request).await?;
    let (manner, authorization) = {
        let mut state = shared.state.lock().unwrap();
        state.requests.push(request.clone());
        (state.manner.clone(), state.authorization.clone())
    };
    let answer = match manner {
        Manner::Silent => std::future::pending().await,
        Manner::Redirects(to) => plain("302 Found", &format!("Location: {to}\r\n")),
        Manner::Honest if authorization.is_some_and(|it| request.headers.get("authorization") != Some(&it)) => {
            plain("401 Unauthorized", "WWW-Authenticate: Basic realm=\"git\"\r\n")
        }
        Manner::Honest => answered(&shared.root, &request, &body).await,
    };
    stream.write_all(&answer).await?;
    stream.shutdown().await
}

async fn head(stream: &mut BufReader<TcpStream>) -> std::io::Result<Option<Request>> {
    let first = line(stream).await?;
    let mut words = first.split(' ').map(str::to_owned);
    let (Some(method), Some(path)) = (words.next(), words.next()) else { return Ok(None) };
    let mut headers = BTreeMap::new();
    while let Some((name, value)) = line(stream).await?.split_once(':') {
        headers.insert(name.to_ascii_lowercase(), value.trim().to_owned());
    }
    Ok(Some(Request { method, path, headers }))
}

async fn line(stream: &mut BufReader<TcpStream>) -> std::io::Result<String> {
    let mut line = String::new();
    stream.read_line(&mut line).await?;
    Ok(line.trim_end().to_owned())
}

/// The body of a request. A compressed one stays compressed, since git's program decompresses it.
async fn body(stream: &mut BufReader<TcpStream>, request: &Request) -> std::io::Result<Vec<u8>> {
    let header = |name: &str| request.headers.get(name).map_or("", String::as_str);
    if header("expect").eq_ignore_ascii_case("100-continue") {
        stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
    }
    if !header("transfer-encoding").eq_ignore_ascii_case("chunked") {
        let mut body = vec![0; header("content-length").parse().unwrap_or(0)];
        stream.read_exact(&mut body).await?;
        return Ok(body);
    }
    let mut body = vec![];
    loop {
        let size = usize::from_str_radix(&line(stream).await?, 16).map_err(std::io::Error::other)?;
        let mut chunk = vec![0; size];
        stream.read_exact(&mut chunk).await?;
        line(stream).await?;
        if size == 0 {
            return Ok(body);
        }
        body.extend(chunk);
    }
}

fn plain(status: &str, headers: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\n{headers}Content-Length: 0\r\nConnection: close\r\n\r\n").into_bytes()
}

/// The answer of git's own program.
async fn answered(root: &TempDir, request: &Request, body: &[u8]) -> Vec<u8> {
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    let mut command = git_program(root.path());
    command
        .arg("http-backend")
        .env("GIT_PROJECT_ROOT", root.path())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("REQUEST_METHOD", &request.method)
        .env("PATH_INFO", path)
        .env("QUERY_STRING", query)
        .env("CONTENT_LENGTH", body.len().to_string());
    for (header, variable) in [
        ("content-type", "CONTENT_TYPE"),
        ("content-encoding", "HTTP_CONTENT_ENCODING"),
        ("git-protocol", "GIT_PROTOCOL"),
    ] {
        if let Some(value) = request.headers.get(header) {
            command.env(variable, value);
        }
    }
    let (_, output, _) = run(&mut command, body).await;
    let Some(ends) = output.windows(4).position(|it| it == b"\r\n\r\n") else {
        return plain("500 Internal Server Error", "");
    };
    let head = String::from_utf8_lossy(&output[..ends]);
    let status = head.lines().find_map(|it| it.strip_prefix("Status: ")).unwrap_or("200 OK");
    let length = output.len() - ends - 4;
    let head = format!("HTTP/1.1 {status}\r\n{head}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n");
    [head.as_bytes(), &output[ends + 4..]].concat()
}

/// Clones `url` as a user does.
async fn cloned(url: &str) -> Result<TempDir, String> {
    let dir = tempfile::tempdir().unwrap();
    tries_git(dir.path(), &["clone", "--quiet", "--", url, "it"], "").await.map(|_| dir)
}

#[tokio::test]
async fn a_repository_is_cloned_by_both_addresses() {
    let server = GitServer::start();
    let commit = server.repository("web", &[("README.md", "hello\n"), ("bin/run", "#!/bin/sh\n")]).await;
    for url in [server.url("web"), server.local_url("web")] {
        let dir = cloned(&url).await.unwrap();
        let it = dir.path().join("it");
        assert_eq!(std::fs::read_to_string(it.join("README.md")).unwrap(), "hello\n");
        assert_eq!(git(&it, &["rev-parse", "HEAD"], "").await, commit);
        assert!(rustix::fs::access(it.join("bin/run"), rustix::fs::Access::EXEC_OK).is_ok());
    }
    let requests = server.requests();
    assert!(requests.iter().any(|it| it.method == "POST" && it.path == "/web.git/git-upload-pack"), "{requests:?}");
    assert!(!requests.iter().any(|it| it.headers.contains_key("authorization")));
}

#[tokio::test]
async fn containers_reach_it() {
    let server = GitServer::start();
    server.repository("web", &[("README.md", "hello\n")]).await;
    with_real_engines(async |case| {
        if case.lacks(Lack::HostAddress) {
            return;
        }
        let asks = format!("wget -q -O - '{}/info/refs?service=git-upload-pack'", server.url("web"));
        let exec = Exec::new(What::Shell(asks), Ids::ROOT, ContainerPath::root());
        let answer = case.runs_with_network(Way::Plain).await.printed(exec).await;
        assert!(answer.contains("refs/heads/main"), "{answer}");
    })
    .await;
}

#[tokio::test]
async fn a_private_repository_wants_its_token() {
    let server = GitServer::start();
    server.repository("web", &[("README.md", "hello\n")]).await;
    server.requires("x-access-token", "sesame");
    assert!(cloned(&server.local_url("web")).await.is_err());
    let url = server.local_url("web");
    cloned(&url.replace("http://", "http://x-access-token:sesame@")).await.unwrap();
    assert!(cloned(&url.replace("http://", "http://x-access-token:wrong@")).await.is_err());
}

#[tokio::test]
async fn a_long_request_arrives_compressed_and_in_pieces() {
    let server = GitServer::start();
    server.repository("web", &[("README.md", "hello\n")]).await;
    let dir = cloned(&server.local_url("web")).await.unwrap();
    let it = dir.path().join("it");
    // The client sends the server a list of its commits: many unknown ones make a long body.
    let commit = |n: usize| {
        format!(
            "commit refs/heads/own-{n}\ncommitter T <t@example.com> {} +0000\ndata 1\n{}\n",
            1_700_000_000 + n,
            n % 10
        )
    };
    let own: String = (0..600).map(commit).collect();
    git(&it, &["fast-import", "--quiet"], &own).await;
    let second = server.commit("web", "second", &[("b", "b\n")]).await;
    git(&it, &["fetch", "--quiet", "origin", "second"], "").await;
    assert_eq!(git(&it, &["rev-parse", "FETCH_HEAD"], "").await, second);
    assert!(server.requests().iter().any(|it| it.headers.contains_key("content-encoding")));
    let ask = "POST /web.git/git-upload-pack HTTP/1.1\r\nGit-Protocol: version=2\r\nTransfer-Encoding: chunked\r\n";
    let ask = format!("{ask}Content-Type: application/x-git-upload-pack-request\r\n\r\n");
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).await.unwrap();
    stream.write_all(format!("{ask}A\r\n0014comman\r\nE\r\nd=ls-refs\n0000\r\n0\r\n\r\n").as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK") && answer.contains("refs/heads/second"), "{answer}");
}

#[tokio::test]
async fn a_server_is_rude_on_demand() {
    let server = GitServer::start();
    server.repository("web", &[("README.md", "hello\n")]).await;
    server.behaves(Manner::Redirects("http://127.0.0.1:1/elsewhere".into()));
    assert!(cloned(&server.local_url("web")).await.is_err());
    server.behaves(Manner::Silent);
    let late = tokio::time::timeout(Duration::from_millis(300), cloned(&server.local_url("web"))).await;
    assert!(late.is_err());
}
