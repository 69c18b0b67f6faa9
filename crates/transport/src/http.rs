//! A listener on loopback addresses, and its connections.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coracle_context::{Code, Context, Failure};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::http::request::Parts;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::token::Token;

/// Maximum size and number of headers.
const HEAD: (usize, usize) = (32 * 1024, 64);

/// Time limits for receiving a head and a body. Answers have no limit except that of the call.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Maximum number of connections: each client has a few.
const CONNECTIONS: usize = 256;

/// The options of a server for HTTP clients.
#[derive(Clone, Debug)]
pub struct Http {
    /// The option, without its dashes.
    pub flag: &'static str,
    /// Its value.
    pub address: String,
    /// `--token-file`
    pub token_file: Option<PathBuf>,
}

/// A listening server.
#[derive(Debug)]
pub struct Listener {
    /// The address, with the actual port.
    pub address: SocketAddr,
    listener: TcpListener,
}

/// A response, complete or streamed.
pub type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// Handles the requests of all connections.
pub trait HttpService: Send + Sync + 'static {
    /// The response to an unauthorised client, from the head of its request alone. A connection without an admitted
    /// request is closed when there are too many.
    fn refuse(&self, head: &Parts) -> Option<HttpResponse>;

    /// Handles a request that was not refused.
    fn respond(&self, request: Request<Incoming>) -> impl Future<Output = HttpResponse> + Send;
}

impl Http {
    /// Parses the address, before anything is opened.
    ///
    /// # Errors
    /// The address is invalid, or other machines can reach it.
    pub fn address(&self) -> Result<SocketAddr, Failure> {
        let text = &self.address;
        let local = text.strip_prefix("localhost:").and_then(|it| it.parse().ok());
        let address = local.map(|port| (Ipv4Addr::LOCALHOST, port).into()).or_else(|| text.parse::<SocketAddr>().ok());
        let address = address.ok_or_else(|| {
            Failure::new(Code::InvalidInput, format!("`{}` is not ADDRESS:PORT", text.escape_debug()))
                .hint(format!("write `--{} 127.0.0.1:8765`; port 0 takes one that is free", self.flag))
        })?;
        if address.ip().is_loopback() {
            return Ok(address);
        }
        let message = format!("{} can be reached from other machines", address.ip());
        Err(Failure::new(Code::PolicyDenied, message).detail("field", self.flag).hint(format!(
            "serve on `127.0.0.1:{0}` or `[::1]:{0}`; from another machine `ssh -L {0}:127.0.0.1:{0} HOST` leads there",
            address.port()
        )))
    }

    /// Listens, with the token from its file; `default` is the file if the options name none.
    ///
    /// # Errors
    /// Why the server cannot listen.
    pub async fn listen(&self, cx: &Context, default: &Path) -> Result<(Listener, Token), Failure> {
        let token = Token::at(&self.token_file(cx, default), cx.host.uid)?;
        Ok((self.bind().await?, token))
    }

    /// The file of the token; `default` if the options name none.
    #[must_use]
    pub fn token_file(&self, cx: &Context, default: &Path) -> PathBuf {
        self.token_file.as_ref().map_or_else(|| default.to_owned(), |it| cx.host.path(it))
    }

    /// Listens.
    ///
    /// # Errors
    /// Why the server cannot listen.
    pub async fn bind(&self) -> Result<Listener, Failure> {
        let address = self.address()?;
        let listener = TcpListener::bind(address).await.map_err(|err| self.unbound(address, &err))?;
        let address = listener.local_addr().map_err(Failure::internal)?;
        Ok(Listener { address, listener })
    }

    fn unbound(&self, address: SocketAddr, err: &std::io::Error) -> Failure {
        if err.kind() == std::io::ErrorKind::AddrInUse {
            let message = format!("port {} is taken by another program", address.port());
            return Failure::new(Code::PortTaken, message).hint("name another port; 0 takes one that is free");
        }
        Failure::new(Code::InvalidInput, format!("{address} cannot be listened on: {err}"))
            .hint(format!("write `--{} 127.0.0.1:8765`, with a port of 1024 or more", self.flag))
    }
}

impl Listener {
    /// Accepts connections until the process is to end; returns the connections that are still open.
    pub async fn accept(self, service: &Arc<impl HttpService>, cx: &Context) -> OpenConnections {
        self.accept_until(service, &cx.call.cancel).await
    }

    async fn accept_until(self, service: &Arc<impl HttpService>, cancel: &CancellationToken) -> OpenConnections {
        let (open, places) = (OpenConnections::default(), Arc::new(ConnectionQueue::default()));
        while let Some(accepted) = cancel.run_until_cancelled(self.listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(err) => {
                    tracing::warn!("no connection could be taken: {err}");
                    // Usually there are too many open files: some close in time.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Without a free place it is closed at once.
            let Some(place) = places.take() else { continue };
            let connection = serve_connection(stream, service.clone(), place.clone(), open.ending.clone());
            let places = places.clone();
            open.tasks.spawn(async move {
                match place.gives_way.run_until_cancelled(connection).await {
                    Some(Err(err)) => tracing::debug!("a connection broke: {err}"),
                    Some(Ok(())) => {}
                    None => tracing::debug!("a connection without an admitted request gave way to a new one"),
                }
                places.give_back(&place);
            });
        }
        open
    }
}

/// The open connections, oldest first. Any local user can use all places, so a connection without an admitted request
/// is closed for a new one.
#[derive(Debug, Default)]
struct ConnectionQueue(Mutex<Vec<Arc<ConnectionState>>>);

/// One open connection.
#[derive(Debug, Default)]
struct ConnectionState {
    /// Whether one of its requests was admitted.
    is_admitted: AtomicBool,
    gives_way: CancellationToken,
}

impl ConnectionQueue {
    /// Reserves a place for a new connection; `None` if all others are admitted.
    fn take(&self) -> Option<Arc<ConnectionState>> {
        let mut places = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if places.len() >= CONNECTIONS {
            let oldest = places.iter().position(|place| !place.is_admitted.load(Ordering::Relaxed))?;
            places.remove(oldest).gives_way.cancel();
        }
        let place = Arc::new(ConnectionState::default());
        places.push(place.clone());
        Some(place)
    }

    fn give_back(&self, place: &Arc<ConnectionState>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).retain(|other| !Arc::ptr_eq(other, place));
    }
}

/// Connections of a server that accepts no new ones.
#[derive(Debug, Default)]
pub struct OpenConnections {
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl OpenConnections {
    /// Waits until started requests are answered. Upgraded connections are not awaited.
    pub async fn shutdown(self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: Arc<impl HttpService>,
    place: Arc<ConnectionState>,
    ending: CancellationToken,
) -> hyper::Result<()> {
    // An answer is small, and its client waits for it.
    let _ = stream.set_nodelay(true);
    let answer = move |request: Request<Incoming>| {
        let (service, place) = (service.clone(), place.clone());
        async move {
            let (head, body) = request.into_parts();
            if let Some(refused) = service.refuse(&head) {
                return Ok::<_, Infallible>(refused);
            }
            place.is_admitted.store(true, Ordering::Relaxed);
            Ok(service.respond(Request::from_parts(head, body)).await)
        }
    };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(PATIENCE)
        .max_buf_size(HEAD.0)
        .max_headers(HEAD.1)
        .serve_connection(TokioIo::new(stream), service_fn(answer))
        .with_upgrades();
    let mut connection = std::pin::pin!(connection);
    if let Some(ended) = ending.run_until_cancelled(connection.as_mut()).await {
        return ended;
    }
    connection.as_mut().graceful_shutdown();
    connection.await
}

/// Whether a request is for this machine: a web page whose domain resolves to a loopback address has another `Host`,
/// and a page of another site another `Origin`.
#[must_use]
pub fn is_local(headers: &HeaderMap) -> bool {
    let name = |value: &HeaderValue| value.to_str().ok().and_then(host_name).is_some_and(is_this_machine);
    let mut hosts = headers.get_all(HOST).iter();
    let is_host_local = hosts.next().is_some_and(name) && hosts.next().is_none();
    let is_origin_local = headers.get_all(ORIGIN).iter().all(|it| {
        let text = it.to_str().unwrap_or_default();
        let site = text.strip_prefix("http://").or_else(|| text.strip_prefix("https://"));
        site.and_then(host_name).is_some_and(is_this_machine)
    });
    is_host_local && is_origin_local
}

/// A loopback address or `localhost`; other names may resolve to any address. The address may differ from that of the
/// listener, because a forwarded port does not know it.
fn is_this_machine(name: &str) -> bool {
    let address = name.strip_prefix('[').and_then(|it| it.strip_suffix(']')).unwrap_or(name);
    let is_bracketed = address.len() < name.len();
    let is_loopback = |it: IpAddr| it.is_loopback() && it.is_ipv6() == is_bracketed;
    name == "localhost" || address.parse::<IpAddr>().is_ok_and(is_loopback)
}

/// The name in `NAME` or `NAME:PORT`.
fn host_name(authority: &str) -> Option<&str> {
    match authority.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => port.parse::<u16>().is_ok().then_some(name),
        _ => Some(authority),
    }
}

/// The response to a request that is for another machine, is from another site, or has no token.
#[must_use]
pub fn refuse_stranger(token: &Token, head: &Parts) -> Option<HttpResponse> {
    if !is_local(&head.headers) {
        return Some(refusal(StatusCode::FORBIDDEN, "the request is for another machine, or comes from another site"));
    }
    (!token.opens(&head.headers)).then(unauthorized)
}

/// The response to a request without the token.
#[must_use]
pub fn unauthorized() -> HttpResponse {
    let mut answer = refusal(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer` with the server's token");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"coracle\""));
    answer
}

/// A refusal with one sentence.
#[must_use]
pub fn refusal(status: StatusCode, why: &'static str) -> HttpResponse {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::header::AUTHORIZATION;
    use insta::assert_snapshot;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::sync::Notify;

    use super::*;

    /// Admits requests with an `Authorization`. Those for `/slow` wait for a notification.
    #[derive(Default)]
    struct Slow(Notify);

    impl HttpService for Slow {
        fn refuse(&self, head: &Parts) -> Option<HttpResponse> {
            (!head.headers.contains_key(AUTHORIZATION)).then(unauthorized)
        }

        async fn respond(&self, request: Request<Incoming>) -> HttpResponse {
            if request.uri().path() == "/slow" {
                self.0.notified().await;
            }
            refusal(StatusCode::OK, "answered")
        }
    }

    /// Sends a request with the token.
    async fn send_get(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: yes\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        stream
    }

    /// The first line of the response; empty if the server closed the connection.
    async fn answered(stream: &mut TcpStream) -> String {
        let mut bytes = [0; 15];
        let read = tokio::time::timeout(Duration::from_secs(10), stream.read(&mut bytes)).await.unwrap();
        String::from_utf8_lossy(&bytes[..read.unwrap_or(0)]).into_owned()
    }

    #[tokio::test]
    async fn idle_unauthenticated_connections_do_not_block_clients() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (service, cancel) = (Arc::new(Slow::default()), CancellationToken::new());
        let server = tokio::spawn({
            let (service, cancel) = (service.clone(), cancel.clone());
            async move { Listener { address, listener }.accept_until(&service, &cancel).await.shutdown().await }
        });
        let mut running = send_get(address, "/slow").await;
        let mut first = TcpStream::connect(address).await.unwrap();
        let mut idle = Vec::new();
        for number in 0..2 * CONNECTIONS {
            let mut stream = TcpStream::connect(address).await.unwrap();
            // Some send no token, some start a request without ending it, others send nothing.
            let sent: &[u8] = [b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(), b"GET ", b""][number % 3];
            let _ = stream.write_all(sent).await;
            idle.push(stream);
        }
        assert_eq!(answered(&mut send_get(address, "/").await).await, "HTTP/1.1 200 OK");
        assert_eq!(answered(&mut first).await, "", "the oldest was closed");
        service.0.notify_waiters();
        assert_eq!(answered(&mut running).await, "HTTP/1.1 200 OK", "a running call is not closed");
        drop(idle);
        cancel.cancel();
        server.await.unwrap();
    }

    fn check(address: &str) -> String {
        match (Http { flag: "http", address: address.to_owned(), token_file: None }).address() {
            Ok(address) => address.to_string(),
            Err(failure) => {
                format!("{}: {}\n{}", failure.code.word(), failure.message, failure.hint.as_deref().unwrap())
            }
        }
    }

    #[test]
    fn only_loopback_addresses_are_accepted() {
        assert_eq!(check("127.0.0.1:0"), "127.0.0.1:0");
        assert_eq!(check("127.8.8.8:80"), "127.8.8.8:80");
        assert_eq!(check("[::1]:8765"), "[::1]:8765");
        assert_eq!(check("localhost:8765"), "127.0.0.1:8765");
        assert_snapshot!(check("0.0.0.0:8765"), @r"
        policy_denied: 0.0.0.0 can be reached from other machines
        serve on `127.0.0.1:8765` or `[::1]:8765`; from another machine `ssh -L 8765:127.0.0.1:8765 HOST` leads there
        ");
        for other in ["[::]:1", "192.168.0.1:1", "[::ffff:10.0.0.1]:1", "169.254.169.254:80"] {
            assert!(check(other).starts_with("policy_denied"), "{other}");
        }
        for wrong in ["", "8765", "127.0.0.1", "localhost", "localhost:x", "example.org:80", "127.0.0.1:65536"] {
            assert!(check(wrong).starts_with("invalid_input"), "{wrong}");
        }
    }

    fn local(host: &str, origin: Option<&str>) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(HOST, HeaderValue::from_str(host).unwrap());
        if let Some(origin) = origin {
            headers.insert(ORIGIN, HeaderValue::from_str(origin).unwrap());
        }
        is_local(&headers)
    }

    #[test]
    fn a_request_must_name_this_machine() {
        for host in ["localhost", "localhost:80", "127.0.0.1:8765", "127.8.8.8:80", "[::1]", "[::1]:8765"] {
            assert!(local(host, None), "{host}");
            assert!(local(host, Some("http://localhost:3000")), "{host}");
        }
        for host in ["example.org", "example.org:80", "localhost.example.org", "", "127.0.0.1:x", "localhost:80:80"] {
            assert!(!local(host, None), "{host}");
        }
        for host in ["10.0.0.1:80", "::1", "[::]", "[127.0.0.1]", "127.0.0.1.example.org"] {
            assert!(!local(host, None), "{host}");
        }
        for origin in ["http://example.org", "null", "file://", "https://localhost.example.org"] {
            assert!(!local("localhost", Some(origin)), "{origin}");
        }
        assert!(!is_local(&HeaderMap::new()));
    }
}
