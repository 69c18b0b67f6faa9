//! Connections to registries: name resolution, a rule about addresses, proxies and TLS, all within one time limit.

use std::error::Error;
use std::future::Future;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use std::{fmt, io};

use coracle_host::address::is_public;
use hyper::Uri;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder, MaybeHttpsStream};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::dns::Name;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tower_service::Service;

pub(super) type ConnectError = Box<dyn Error + Send + Sync>;
type BoxFuture<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// An idle connection is probed after this time, so that a dead one is noticed.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// Which addresses may be connected to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AddressRule {
    /// All: for the registry itself.
    Anywhere,
    /// Public ones: for redirects of a registry with a public address.
    PublicOnly,
}

/// An address that may not be connected to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ForbiddenAddress(pub(super) IpAddr);

impl fmt::Display for ForbiddenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the address {} is not public", self.0)
    }
}

impl Error for ForbiddenAddress {}

impl AddressRule {
    fn check(self, address: IpAddr) -> io::Result<()> {
        if self == Self::Anywhere || is_public(address) {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::PermissionDenied, ForbiddenAddress(address)))
    }

    /// Checks a name that a proxy resolves, possibly to other addresses than this machine. Refuses a name that resolves
    /// to a private address here. A name that only the proxy can resolve is allowed.
    async fn check_name(self, to: &Uri) -> io::Result<()> {
        if self == Self::Anywhere {
            return Ok(());
        }
        let host = to.host().unwrap_or_default().trim_matches(['[', ']']);
        match tokio::net::lookup_host((host, to.port_u16().unwrap_or(443))).await {
            Ok(mut found) => found.try_for_each(|it| self.check(it.ip())),
            Err(_) => Ok(()),
        }
    }
}

/// Resolves names and checks the addresses. Connections go to exactly these addresses.
#[derive(Clone)]
pub(super) struct NameResolver(AddressRule);

impl Service<Name> for NameResolver {
    type Response = std::vec::IntoIter<SocketAddr>;
    type Error = io::Error;
    type Future = BoxFuture<io::Result<Self::Response>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, name: Name) -> Self::Future {
        let rule = self.0;
        Box::pin(async move {
            // The connector sets the port.
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            found.iter().try_for_each(|it| rule.check(it.ip()))?;
            Ok(found.into_iter())
        })
    }
}

/// Opens a TCP connection, directly or through a proxy. Registries on this machine are reached without a proxy.
#[derive(Clone)]
pub(super) struct Dialer {
    rule: AddressRule,
    direct: HttpConnector<NameResolver>,
    to_proxy: HttpConnector<NameResolver>,
    proxies: Arc<Matcher>,
}

impl Service<Uri> for Dialer {
    type Response = TokioIo<TcpStream>;
    type Error = ConnectError;
    type Future = BoxFuture<Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        // The connector does not call the resolver if the host is an IP address.
        let literal = to.host().map(|it| it.trim_matches(['[', ']'])).and_then(|it| it.parse().ok());
        if let Some(Err(err)) = literal.map(|it| self.rule.check(it)) {
            return Box::pin(async move { Err(err.into()) });
        }
        let proxy = self.proxies.intercept(&to).filter(|_| to.scheme_str() == Some("https"));
        let Some(proxy) = proxy else {
            let connecting = self.direct.call(to);
            return Box::pin(async move { Ok(connecting.await?) });
        };
        let mut tunnel = Tunnel::new(proxy.uri().clone(), self.to_proxy.clone());
        if let Some(authorization) = proxy.basic_auth() {
            tunnel = tunnel.with_auth(authorization.clone());
        }
        let rule = self.rule;
        Box::pin(async move {
            rule.check_name(&to).await?;
            tunnel.call(to).await.map_err(|err| format!("through the proxy: {err}").into())
        })
    }
}

/// Connects within a time limit, which includes the proxy and the TLS handshake.
#[derive(Clone)]
pub(super) struct Connector {
    tls: HttpsConnector<Dialer>,
    within: Duration,
}

impl Connector {
    pub(super) fn new(tls: ClientConfig, proxies: Arc<Matcher>, rule: AddressRule, within: Duration) -> Self {
        let tcp = |rule: AddressRule| {
            let mut tcp = HttpConnector::new_with_resolver(NameResolver(rule));
            tcp.set_nodelay(true);
            tcp.set_keepalive(Some(KEEPALIVE));
            tcp
        };
        let mut direct = tcp(rule);
        direct.enforce_http(false);
        let dialer = Dialer { rule, direct, to_proxy: tcp(AddressRule::Anywhere), proxies };
        let tls = HttpsConnectorBuilder::new().with_tls_config(tls).https_or_http().enable_http1();
        Self { tls: tls.wrap_connector(dialer), within }
    }
}

impl Service<Uri> for Connector {
    type Response = MaybeHttpsStream<TokioIo<TcpStream>>;
    type Error = ConnectError;
    type Future = BoxFuture<Result<Self::Response, ConnectError>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), ConnectError>> {
        self.tls.poll_ready(cx)
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let (connecting, within) = (self.tls.call(to), self.within);
        Box::pin(async move {
            let late =
                || io::Error::new(io::ErrorKind::TimedOut, format!("no connection within {} s", within.as_secs()));
            timeout(within, connecting).await.unwrap_or_else(|_| Err(late().into()))
        })
    }
}
