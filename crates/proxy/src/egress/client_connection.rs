//! A connection from the container whose requests the proxy sees: it ends TLS if there is any.

use std::convert::Infallible;
use std::io::Cursor;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::denial::EgressDenial;
use super::server::Protocol;
use super::target::EgressTarget;
use crate::caller::Caller;
use crate::policy::EgressHost;
use crate::response::Body;

/// How long a client may take for its part of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);

/// Maximum size of a request's head.
const MAX_HEAD: usize = 64 << 10;

/// Maximum number of concurrent requests of one connection.
const MAX_REQUESTS: u32 = 100;

/// Such a connection, after the handshake.
pub(crate) struct ClientConnection {
    stream: Box<dyn ClientStream>,
    pub(crate) protocol: Protocol,
}

trait ClientStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<S: AsyncRead + AsyncWrite + Send + Unpin> ClientStream for S {}

impl ClientConnection {
    /// Takes a connection, of which `begins` was read.
    pub(crate) async fn accept(
        caller: &Caller,
        target: &EgressTarget,
        tls: bool,
        inside: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        begins: Vec<u8>,
    ) -> Result<Self, EgressDenial> {
        let http2 = begins.starts_with(b"PRI ");
        let (read, write) = tokio::io::split(inside);
        let stream = tokio::io::join(Cursor::new(begins).chain(read), write);
        if !tls {
            return Ok(Self { stream: Box::new(stream), protocol: Protocol { tls, http2 } });
        }
        let EgressHost::Name(name) = &target.host else { return Err(EgressDenial::NO_TLS) };
        let config = caller.shared.tls.server(name).map_err(|err| {
            tracing::warn!(%err, name, "a host has a name that no certificate can have");
            EgressDenial::CONNECT
        })?;
        let accepted = timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await;
        let Ok(Ok(stream)) = accepted else { return Err(EgressDenial::UNTRUSTED) };
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(Self { stream: Box::new(stream), protocol: Protocol { tls, http2 } })
    }

    /// Answers its requests until it ends. `silence` is how long it may send nothing.
    pub(crate) async fn serve<A>(self, silence: Duration, answer: impl Fn(Request<Incoming>) -> A) -> hyper::Result<()>
    where
        A: Future<Output = Response<Body>> + Send + 'static,
    {
        let service = service_fn(|request| {
            let answering = answer(request);
            async move { Ok::<_, Infallible>(answering.await) }
        });
        let stream = TokioIo::new(self.stream);
        if self.protocol.http2 {
            let mut http = http2::Builder::new(TokioExecutor::new());
            http.timer(TokioTimer::new()).keep_alive_interval(Some(silence)).max_concurrent_streams(MAX_REQUESTS);
            http.serve_connection(stream, service).await
        } else {
            let mut http = http1::Builder::new();
            http.timer(TokioTimer::new()).header_read_timeout(silence).max_buf_size(MAX_HEAD);
            http.serve_connection(stream, service).with_upgrades().await
        }
    }
}
