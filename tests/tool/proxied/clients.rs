//! Clients of Debian's packages inside a container with `network: "proxy"`, to a server whose TLS the proxy ends. Each has
//! to work with the variables and certificates that the container has, or with the option that `docs/proxy.md` names.

use std::convert::Infallible;
use std::sync::Arc;

use coracle_types::EngineKind;
use futures_util::{SinkExt as _, StreamExt as _};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{HeaderMap, Request, Response, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::Role;

use super::super::debian::with_packages;
use super::super::person::Person;
use crate::engines::GitServer;

/// The server's name, which leads to this host.
const NAME: &str = "clients.localhost";

type Body = UnsyncBoxBody<Bytes, hyper::Error>;

fn full(text: impl Into<Bytes>) -> Body {
    Full::new(text.into()).map_err(|never: Infallible| match never {}).boxed_unsync()
}

/// A server with TLS that speaks HTTP/1.1, HTTP/2, WebSocket and gRPC, and has a repository and indexes of packages.
struct Site {
    port: u16,
    certificate: String,
    _git: GitServer,
}

impl Site {
    async fn start() -> Self {
        let git = GitServer::start();
        git.repository(
            "small",
            &[("Cargo.toml", "[package]\nname = \"small\"\nversion = \"1.0.0\"\n"), ("src/lib.rs", "")],
        )
        .await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, git_port) = (listener.local_addr().unwrap().port(), git.port());
        let made = rcgen::generate_simple_self_signed([NAME.to_owned()]).unwrap();
        let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let provider = Arc::new(tokio_rustls::rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = config.with_no_client_auth().with_single_cert(vec![made.cert.der().clone()], key);
        let mut config = config.unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        let acceptor = TlsAcceptor::from(Arc::new(config));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                    let (stream, service) = (TokioIo::new(stream), service_fn(move |it| answered(git_port, port, it)));
                    if http2 {
                        let http = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                        let _ = http.serve_connection(stream, service).await;
                    } else {
                        let http = hyper::server::conn::http1::Builder::new();
                        let _ = http.serve_connection(stream, service).with_upgrades().await;
                    }
                });
            }
        });
        Self { port, certificate: made.cert.pem(), _git: git }
    }
}

async fn answered(git: u16, port: u16, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let typed =
        |kind: &str, text: String| Ok(Response::builder().header("content-type", kind).body(full(text)).unwrap());
    match path.as_str() {
        "/ws" => Ok(echo(request)),
        "/echo.Echo/Say" => {
            assert_eq!(request.version(), Version::HTTP_2);
            let message = request.into_body().collect().await?.to_bytes();
            let trailers = HeaderMap::from_iter([("grpc-status".parse().unwrap(), "0".parse().unwrap())]);
            let frames = futures_util::stream::iter([Frame::data(message), Frame::trailers(trailers)].map(Ok));
            let answer = Response::builder().header("content-type", "application/grpc");
            Ok(answer.body(StreamBody::new(frames).boxed_unsync()).unwrap())
        }
        "/simple/tiny/" => typed(
            "text/html",
            "<!DOCTYPE html><a href=\"tiny-1.0-py3-none-any.whl\">tiny-1.0-py3-none-any.whl</a>".into(),
        ),
        "/tiny" => {
            let dist = json!({ "tarball": format!("https://{NAME}:{port}/tiny.tgz"), "shasum": "0".repeat(40) });
            let version = json!({ "name": "tiny", "version": "1.0.0", "dist": dist });
            let tiny = json!({ "name": "tiny", "dist-tags": { "latest": "1.0.0" }, "versions": { "1.0.0": version } });
            typed("application/json", tiny.to_string())
        }
        path if path.starts_with("/small.git/") => from_git(git, request).await,
        _ => typed("text/plain", format!("there by {:?}\n", request.version())),
    }
}

/// Changes to WebSocket, and sends each message back.
fn echo(mut request: Request<Incoming>) -> Response<Body> {
    let upgrade = hyper::upgrade::on(&mut request);
    tokio::spawn(async move {
        let stream = TokioIo::new(upgrade.await.unwrap());
        let mut socket = WebSocketStream::from_raw_socket(stream, Role::Server, None).await;
        while let Some(Ok(message)) = socket.next().await {
            let _ = socket.send(message).await;
        }
    });
    let accept = derive_accept_key(request.headers()["sec-websocket-key"].as_bytes());
    let answer = Response::builder().status(101).header("connection", "upgrade").header("upgrade", "websocket");
    answer.header("sec-websocket-accept", accept).body(full("")).unwrap()
}

async fn from_git(port: u16, request: Request<Incoming>) -> Result<Response<Body>, hyper::Error> {
    let stream = TokioIo::new(TcpStream::connect(("127.0.0.1", port)).await.unwrap());
    let (mut sender, connection) = hyper::client::conn::http1::handshake(stream).await?;
    tokio::spawn(connection);
    let (mut parts, body) = request.into_parts();
    parts.uri = parts.uri.path_and_query().unwrap().as_str().parse().unwrap();
    parts.version = Version::HTTP_11;
    parts.headers.insert("host", "127.0.0.1".parse().unwrap());
    let body = body.collect().await?.to_bytes();
    let answer = sender.send_request(Request::from_parts(parts, Full::new(body))).await?;
    let (parts, body) = answer.into_parts();
    let mut whole = Response::new(full(body.collect().await?.to_bytes()));
    *whole.status_mut() = parts.status;
    let kind = parts.headers.get("content-type");
    kind.into_iter().for_each(|it| drop(whole.headers_mut().insert("content-type", it.clone())));
    Ok(whole)
}

/// Clients that each engine is tried with. `AT` is the server.
const NARROW: &[(&str, &str)] = &[
    ("curl", "curl -sS AT/x"),
    ("curl with HTTP/2", "curl -sS --http2 AT/x | grep HTTP/2.0"),
    ("git", "git ls-remote AT/small.git | sed 's|refs/heads/main|there|'"),
    ("urllib", "python3 -c \"import urllib.request as u; print(u.urlopen('AT/x').read().decode())\""),
    ("requests", "python3 -c \"import requests; print(requests.get('AT/x').text)\""),
    ("httpx", "python3 -c \"import httpx; print(httpx.get('AT/x').text)\""),
];

const WIDE: &[(&str, &str)] = &[
    ("wget", "wget -qO- AT/x"),
    ("aiohttp", AIOHTTP),
    ("websockets", WEBSOCKETS),
    ("gRPC", GRPC),
    ("pip", "python3 -m pip index versions tiny --index-url AT/simple/ 2>&1 | sed 's/tiny (1.0)/there/'"),
    ("npm", "npm view tiny version --registry AT/ 2>&1 | sed 's/^1.0.0/there/'"),
    ("Node's fetch", "/opt/node/bin/node -e \"fetch('AT/x').then(it => it.text()).then(console.log)\""),
    ("Node's https", "/opt/node/bin/node -e \"require('https').get('AT/x', it => it.pipe(process.stdout))\""),
    ("Go", "/opt/client AT/x"),
    ("Java", "cd /tmp && java /opt/Client.java AT/x"),
    ("cargo", CARGO),
    ("gh", "GH_ENTERPRISE_TOKEN=x GH_HOST=$(echo AT | cut -d/ -f3) gh api user"),
    ("apt", "/usr/lib/apt/apt-helper -q download-file AT/x /tmp/apt > /dev/null && cat /tmp/apt"),
    ("ruby", "ruby -ropen-uri -e 'puts URI.open(\"AT/x\").read'"),
    (
        "php",
        "php -r 'echo file_get_contents(\"AT/x\", false, stream_context_create([\"http\" => [\"proxy\" => \"tcp://127.0.0.1:3128\", \"request_fulluri\" => true]]));'",
    ),
    (
        "perl",
        "perl -MLWP::UserAgent -e 'my $it = LWP::UserAgent->new; $it->env_proxy; print $it->get(\"AT/x\")->decoded_content'",
    ),
];

const AIOHTTP: &str = r#"python3 -c "
import aiohttp, asyncio
async def main():
    async with aiohttp.ClientSession(trust_env=True) as session:
        async with session.get('AT/x') as answer:
            print(await answer.text())
asyncio.run(main())""#;

/// Its version in Debian leaves the way through a proxy to the caller.
const WEBSOCKETS: &str = r#"python3 -c "
import asyncio, os, socket, ssl, urllib.parse, websockets
at, proxy = (urllib.parse.urlsplit(it) for it in ('AT/ws', os.environ['HTTPS_PROXY']))
tunnel = socket.create_connection((proxy.hostname, proxy.port))
tunnel.sendall(f'CONNECT {at.netloc} HTTP/1.1\r\nHost: {at.netloc}\r\n\r\n'.encode())
assert b' 200 ' in tunnel.recv(4096)
async def main():
    tls = ssl.create_default_context()
    async with websockets.connect(f'wss://{at.netloc}/ws', sock=tunnel, ssl=tls, server_hostname=at.hostname) as it:
        await it.send('there')
        print(await it.recv())
asyncio.run(main())""#;

const GRPC: &str = r#"python3 -c "
import grpc
channel = grpc.secure_channel('AT'.removeprefix('https://'), grpc.ssl_channel_credentials())
say = channel.stream_stream('/echo.Echo/Say', request_serializer=bytes, response_deserializer=bytes)
print(*(it.decode() for it in say(iter([b'there']), timeout=60)))""#;

/// Its own git leaves the port out of `Host`.
const CARGO: &str = "rm -rf /tmp/project && mkdir -p /tmp/project/src && cd /tmp/project && touch src/lib.rs && \
    printf '[package]\\nname = \"it\"\\nversion = \"1.0.0\"\\n[dependencies]\\nsmall = { git = \"AT/small.git\" }\\n' >Cargo.toml && \
    CARGO_NET_GIT_FETCH_WITH_CLI=true CARGO_HOME=/tmp/cargo cargo fetch 2>&1 && grep -q small.git Cargo.lock && echo there";

const PACKAGES: &str = "curl git wget python3-requests python3-httpx";
const ALL_PACKAGES: &str = "curl git wget python3-requests python3-httpx python3-aiohttp python3-websockets python3-grpcio python3-pip npm \
    golang-go openjdk-17-jdk-headless cargo gh ruby php-cli libwww-perl liblwp-protocol-https-perl";

/// A Node that reads variables, and the sources of clients, one of them compiled.
const INSTALL: &str = r#"set -e
npm install --silent --no-fund --no-audit --prefix /opt/node-package node@24
mkdir -p /opt/node/bin && cp "$(find /opt/node-package -path '*/bin/node' -type f -size +1M | head -1)" /opt/node/bin/node
cat >/opt/client.go <<'X'
package main

import ("fmt"; "io"; "net/http"; "os")

func main() {
	answer, err := http.Get(os.Args[1])
	if err != nil { fmt.Println(err); os.Exit(1) }
	text, _ := io.ReadAll(answer.Body)
	fmt.Println(string(text))
}
X
GOCACHE=/tmp/go-cache HOME=/tmp go build -o /opt/client /opt/client.go
rm -rf /tmp/go-cache
cat >/opt/Client.java <<'X'
import java.net.URI;
import java.net.http.*;

public class Client {
    public static void main(String[] words) throws Exception {
        var request = HttpRequest.newBuilder(URI.create(words[0])).build();
        System.out.println(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
    }
}
X
"#;

#[tokio::test]
async fn clients_reach_a_server_whose_tls_the_proxy_ends() {
    // The image is made of packages.
    if !coracle_skips::may_download() {
        return;
    }
    let site = Site::start().await;
    let (port, certificate) = (site.port, tempfile::NamedTempFile::new().unwrap());
    std::fs::write(certificate.path(), &site.certificate).unwrap();
    let rules = json!([format!("GET,POST {NAME}:{port}/**"), format!("ip:127.0.0.1:{port}")]);
    let person = Person::new(format!("[security.egress]\nallow = {rules}\n"))
        .with_env("SSL_CERT_FILE", certificate.path().display().to_string());
    person
        .on_real_engines(async |tool| {
            let is_wide = tool.case.engine() == EngineKind::Embedded;
            let (what, image, packages, script) = match is_wide {
                true => ("clients", "localhost/coracle-test-clients:1", ALL_PACKAGES, INSTALL),
                false => ("few-clients", "localhost/coracle-test-few-clients:1", PACKAGES, "true"),
            };
            with_packages(tool, what, image, packages, script).await;
            let made = tool.made(json!({ "network": "proxy", "image": image })).await;
            let mut failed = Vec::new();
            for (client, command) in NARROW.iter().chain(WIDE.iter().filter(|_| is_wide)) {
                // The server is on this host, whose names do not go to a proxy otherwise.
                let call = json!({ "operation": "exec", "container": made["container"], "timeout": 180,
                    "command": command.replace("AT", &format!("https://{NAME}:{port}")),
                    "env": { "NO_PROXY": "", "no_proxy": "" }, "as_root": *client == "apt" });
                let ran = tool.call(call).await;
                if ran["exit_code"] != 0 || !ran["stdout"].as_str().unwrap_or_default().contains("there") {
                    failed.push(format!("{client}: {ran:#}"));
                }
            }
            assert!(failed.is_empty(), "{}: {}", tool.case.engine(), failed.join("\n"));
        })
        .await;
}
