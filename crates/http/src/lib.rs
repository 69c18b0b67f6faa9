//! An HTTPS client whose caller decides each address that a request goes to.
//!
//! [`HttpClient`] connects to the addresses that a [`Lookup`] finds, within a limit that covers the TLS handshake. It
//! serves providers of models, git hosts and registries of features.
//!
//! **Invariant:** it follows no redirect, uses no proxy of the environment, and keeps no cookie.
//! **Invariant:** an error never contains the address of the request.
//!
//! ```
//! use std::sync::Arc;
//! use std::time::Duration;
//!
//! use coracle_http::{Body, HttpClient, HttpError, request};
//! use hyper::{HeaderMap, Method};
//!
//! # async fn status() -> Result<(), HttpError> {
//! let client = HttpClient::new(
//!     Arc::new(|name| Box::pin(async move { Ok(tokio::net::lookup_host((name, 0)).await?.map(|at| at.ip()).collect()) })),
//!     Duration::from_secs(10),
//! )?;
//! let url = "https://example.com/".parse().expect("an address");
//! let response = client.send(request(Method::GET, &url, HeaderMap::new(), Body::default())?).await?;
//! println!("{}", response.status());
//! # Ok(())
//! # }
//! ```

#![warn(missing_docs)]

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::combinators::UnsyncBoxBody;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ACCEPT, HeaderValue};
use hyper::{HeaderMap, Method, Request, Response, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::{self, Client};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;
use url::Url;

/// Any error of a body.
pub type BoxError = Box<dyn Error + Send + Sync>;
/// A future on the heap.
pub type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// What a request sends, all at once or as it comes.
pub type Body = UnsyncBoxBody<Bytes, BoxError>;

/// Finds the addresses of a name that may be connected to.
pub type Lookup = Arc<dyn Fn(String) -> BoxFuture<io::Result<Vec<IpAddr>>> + Send + Sync>;

/// A connection that carries nothing is probed after that long, so that a dead one is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Sends requests and keeps connections for the next ones.
#[derive(Clone)]
pub struct HttpClient(Client<Connector, Body>);

impl HttpClient {
    /// A client that connects within `connect`, TLS included, to addresses that `lookup` finds.
    ///
    /// # Errors
    /// When this machine has no certificates to know others by.
    pub fn new(lookup: Lookup, connect: Duration) -> Result<Self, HttpError> {
        let mut tcp = HttpConnector::new_with_resolver(Resolver(lookup));
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(KEEPALIVE));
        let provider = rustls::crypto::ring::default_provider();
        let tls = HttpsConnectorBuilder::new().with_provider_and_platform_verifier(provider);
        let tls =
            tls.map_err(|err| HttpError::Failed(err.to_string()))?.https_or_http().enable_http1().wrap_connector(tcp);
        let connector = Connector { tls, within: connect };
        Ok(Self(Client::builder(TokioExecutor::new()).pool_timer(TokioTimer::new()).build(connector)))
    }

    /// Sends a request and waits for the head of its response.
    ///
    /// # Errors
    /// When there is no response.
    pub async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, HttpError> {
        request.headers_mut().entry(ACCEPT).or_insert(HeaderValue::from_static("*/*"));
        self.0.request(request).await.map_err(HttpError::from)
    }
}

impl fmt::Debug for HttpClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HttpClient").finish_non_exhaustive()
    }
}

/// A request to that address.
///
/// # Errors
/// When HTTP cannot name the address.
pub fn request(method: Method, url: &Url, headers: HeaderMap, body: Body) -> Result<Request<Body>, HttpError> {
    let uri = Uri::try_from(url.as_str()).map_err(|err| HttpError::Failed(err.to_string()))?;
    let mut request = Request::new(body);
    (*request.method_mut(), *request.uri_mut(), *request.headers_mut()) = (method, uri, headers);
    Ok(request)
}

/// Why a request got no response. The reason never contains the address.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HttpError {
    /// Nothing came in time.
    #[error("{0}")]
    TimedOut(String),
    /// Nothing was sent.
    #[error("{0}")]
    Unreachable(String),
    /// Anything else.
    #[error("{0}")]
    Failed(String),
}

impl From<legacy::Error> for HttpError {
    fn from(err: legacy::Error) -> Self {
        let reason = innermost(&err);
        match &err {
            _ if is_timeout(&err) => Self::TimedOut(reason),
            _ if err.is_connect() => Self::Unreachable(reason),
            _ => Self::Failed(reason),
        }
    }
}

fn causes<'a>(err: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(err), |it: &&'a (dyn Error + 'static)| (*it).source())
}

fn is_timeout(err: &(dyn Error + 'static)) -> bool {
    causes(err).any(|it| {
        it.downcast_ref::<io::Error>().is_some_and(|it| it.kind() == io::ErrorKind::TimedOut)
            || it.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_timeout)
    })
}

/// The last of the causes: those before it only say that something failed.
#[must_use]
pub fn innermost(err: &(dyn Error + 'static)) -> String {
    causes(err).last().map(ToString::to_string).unwrap_or_default()
}

#[derive(Clone)]
struct Resolver(Lookup);

impl Service<Name> for Resolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let found = (self.0)(name.as_str().to_owned());
        // The connector sets the port.
        let with_port = |it: IpAddr| SocketAddr::new(it, 0);
        Box::pin(async move { Ok(found.await?.into_iter().map(with_port).collect::<Vec<_>>().into_iter()) })
    }
}

/// Connects within a time that covers the TLS handshake, which a connector of hyper's own does not bound.
#[derive(Clone)]
struct Connector {
    tls: HttpsConnector<HttpConnector<Resolver>>,
    within: Duration,
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = BoxError;
    type Future = BoxFuture<Result<Self::Response, BoxError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.tls.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, within) = (self.tls.call(to), self.within);
        Box::pin(async move {
            let late = || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {within:?}"));
            timeout(within, connecting).await.unwrap_or_else(|_| Err(late().into()))
        })
    }
}
