//! A listener on loopback addresses, and its connections.

use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle::{Code, Context, Failure};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap, HeaderValue, ORIGIN, WWW_AUTHENTICATE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::token::Token;

/// Bytes and number of its headers.
const HEAD: (usize, usize) = (32 * 1024, 64);

/// A head and a body have this long to come. Answers have all the time that the call takes.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Connections at once: each client has a few, and one without a token is refused soon.
const CONNECTIONS: usize = 256;

/// How the person wants a server's clients to connect.
#[derive(Clone, Debug)]
pub struct Http {
    /// The option, without its dashes.
    pub flag: &'static str,
    /// Its value.
    pub address: String,
    /// `--token-file`
    pub token_file: Option<PathBuf>,
}

/// A server that listens.
#[derive(Debug)]
pub struct Listener {
    /// The address, with the port that it has.
    pub address: SocketAddr,
    listener: TcpListener,
}

/// An answer, whole or as it comes.
pub type HttpResponse = Response<BoxBody<Bytes, Infallible>>;

/// What answers the requests of all connections.
pub trait HttpService: Send + Sync + 'static {
    /// Answers one.
    fn answer(&self, request: Request<Incoming>) -> impl Future<Output = HttpResponse> + Send;
}

impl Http {
    /// Reads the address, before anything is opened.
    ///
    /// # Errors
    /// An address that is none, or that others reach.
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

    /// Listens, with the token of its file; `default` is the file if the person named none.
    ///
    /// # Errors
    /// What keeps the server from listening.
    pub async fn listen(&self, cx: &Context, default: &Path) -> Result<(Listener, Token), Failure> {
        let token = Token::at(&self.token_file(cx, default), cx.host.uid)?;
        Ok((self.bind().await?, token))
    }

    /// The file of the token; `default` if the person named none.
    #[must_use]
    pub fn token_file(&self, cx: &Context, default: &Path) -> PathBuf {
        self.token_file.as_ref().map_or_else(|| default.to_owned(), |it| cx.host.path(it))
    }

    /// Listens.
    ///
    /// # Errors
    /// What keeps the server from listening.
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
    /// Takes connections until the process is to end; those that are still open then.
    pub async fn accept(self, service: &Arc<impl HttpService>, cx: &Context) -> OpenConnections {
        let (open, places) = (OpenConnections::default(), Arc::new(Semaphore::new(CONNECTIONS)));
        while let Some(accepted) = cx.call.cancel.run_until_cancelled(self.listener.accept()).await {
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(err) => {
                    tracing::warn!("no connection could be taken: {err}");
                    // Too many open files, most likely: some close in time.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    continue;
                }
            };
            // Closed at once: who holds all places holds no new ones up.
            let Ok(place) = places.clone().try_acquire_owned() else { continue };
            let connection = serve_connection(stream, service.clone(), open.ending.clone());
            open.tasks.spawn(async move {
                if let Err(err) = connection.await {
                    tracing::debug!("a connection broke: {err}");
                }
                drop(place);
            });
        }
        open
    }
}

/// Connections of a server that takes no new ones.
#[derive(Debug, Default)]
pub struct OpenConnections {
    tasks: TaskTracker,
    ending: CancellationToken,
}

impl OpenConnections {
    /// Lets requests that have begun be answered, and waits for that. A connection that was upgraded is not waited for.
    pub async fn shutdown(self) {
        self.ending.cancel();
        self.tasks.close();
        self.tasks.wait().await;
    }
}

async fn serve_connection(
    stream: TcpStream,
    service: Arc<impl HttpService>,
    ending: CancellationToken,
) -> hyper::Result<()> {
    // An answer is small and waited for.
    let _ = stream.set_nodelay(true);
    let answer = move |request| {
        let service = service.clone();
        async move { Ok::<_, Infallible>(service.answer(request).await) }
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

/// Whether a request means this machine: a page in a browser whose name was turned to a loopback address has another
/// `Host`, and a page of another site another `Origin`.
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

/// A loopback address, or the only name that means one: another name may be turned to any address. The address need not be
/// the one that is listened on, which a forwarded port does not know.
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

/// The answer to a request without the token.
#[must_use]
pub fn unauthorized() -> HttpResponse {
    let mut answer = refusal(StatusCode::UNAUTHORIZED, "send `Authorization: Bearer` with the server's token");
    answer.headers_mut().insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer realm=\"coracle\""));
    answer
}

/// A refusal that needs no more than a sentence.
#[must_use]
pub fn refusal(status: StatusCode, why: &'static str) -> HttpResponse {
    let mut answer = Response::new(Full::new(Bytes::from_static(why.as_bytes())).boxed());
    *answer.status_mut() = status;
    answer.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    answer
}

#[cfg(test)]
mod tests {
    use hyper::header::{HOST, HeaderMap, HeaderValue, ORIGIN};
    use insta::assert_snapshot;

    use super::{Http, is_local};

    fn check(address: &str) -> String {
        match (Http { flag: "http", address: address.to_owned(), token_file: None }).address() {
            Ok(address) => address.to_string(),
            Err(failure) => {
                format!("{}: {}\n{}", failure.code.word(), failure.message, failure.hint.as_deref().unwrap())
            }
        }
    }

    #[test]
    fn it_is_served_to_this_machine_only() {
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
    fn a_request_has_to_mean_this_machine() {
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
