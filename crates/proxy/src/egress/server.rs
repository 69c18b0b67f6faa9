//! The connections to the server behind one connection from the container.

use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};

use hyper::body::Incoming;
use hyper::client::conn::{TrySendError, http1, http2};
use hyper::header::{HOST, HeaderValue};
use hyper::{Request, Response, Uri, Version};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::connect::{EgressConnection, disallowed, reach};
use super::denial::EgressDenial;
use super::target::EgressTarget;
use crate::caller::Caller;
use crate::response::Body;

/// How a client speaks, and its server is spoken to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Protocol {
    pub(crate) tls: bool,
    /// With TLS, the server is also offered HTTP/1.1.
    pub(crate) http2: bool,
}

impl Protocol {
    /// The port of addresses without one.
    pub(crate) fn port(self) -> u16 {
        if self.tls { 443 } else { 80 }
    }

    /// The scheme of its addresses.
    pub(crate) fn scheme(self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }
}

/// A server.
pub(crate) struct Server {
    caller: Caller,
    target: EgressTarget,
    protocol: Protocol,
    /// The connection that was made before the client began.
    first: Mutex<Option<EgressConnection>>,
    senders: Mutex<Vec<Sender>>,
    /// Held while one connects, so that requests at the same time share a connection if the server can do that.
    connecting: tokio::sync::Mutex<()>,
}

enum Sender {
    Http1(http1::SendRequest<Body>),
    Http2(http2::SendRequest<Body>),
}

impl Server {
    pub(crate) fn new(caller: Caller, target: EgressTarget, protocol: Protocol, first: EgressConnection) -> Self {
        let (senders, connecting) = Default::default();
        Self { caller, target, protocol, first: Mutex::new(Some(first)), senders, connecting }
    }

    /// Sends a request, over a connection that is idle or a new one, and waits for the head of the answer.
    pub(crate) async fn send(&self, mut request: Request<Body>) -> Result<Response<Incoming>, EgressDenial> {
        loop {
            let (mut sender, is_new) = self.sender().await?;
            self.address(&mut request, matches!(sender, Sender::Http2(_)))?;
            let sent = timeout(self.caller.shared.pace.silence, sender.send(request)).await;
            match sent.map_err(|_| EgressDenial::CONNECT)? {
                Ok(response) => {
                    self.keep(sender);
                    return Ok(response);
                }
                // The server closed an idle connection before it got the request.
                Err(mut unsent) => match unsent.take_message().filter(|_| !is_new) {
                    Some(same) => request = same,
                    None => return Err(EgressDenial::CONNECT),
                },
            }
        }
    }

    /// Returns an idle connection, or a new one and `true`.
    async fn sender(&self) -> Result<(Sender, bool), EgressDenial> {
        if let Some(idle) = self.idle() {
            return Ok((idle, false));
        }
        let _one_at_a_time = self.connecting.lock().await;
        match self.idle() {
            Some(idle) => Ok((idle, false)),
            None => {
                let sender = self.connect().await?;
                if let Sender::Http2(shared) = &sender {
                    self.keep(Sender::Http2(shared.clone()));
                }
                Ok((sender, true))
            }
        }
    }

    /// Takes a connection that can have a request now.
    fn idle(&self) -> Option<Sender> {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        senders.retain(|it| !it.is_closed());
        let at = senders.iter().position(Sender::is_ready)?;
        match &senders[at] {
            Sender::Http2(shared) => Some(Sender::Http2(shared.clone())),
            Sender::Http1(_) => Some(senders.swap_remove(at)),
        }
    }

    /// Keeps a connection for the next request.
    fn keep(&self, sender: Sender) {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_there = matches!(sender, Sender::Http2(_)) && senders.iter().any(|it| matches!(it, Sender::Http2(_)));
        if !is_there {
            senders.push(sender);
        }
    }

    async fn connect(&self) -> Result<Sender, EgressDenial> {
        let first = self.first.lock().unwrap_or_else(PoisonError::into_inner).take();
        let EgressConnection { stream, at } = match first {
            Some(first) => first,
            None => reach(&self.caller, &self.target).await?,
        };
        if !self.protocol.tls {
            return self.begin(stream, self.protocol.http2, at).await;
        }
        let stream = self.with_tls(stream).await?;
        let http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        self.begin(stream, http2, at).await
    }

    async fn begin(
        &self,
        stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static,
        http2: bool,
        at: SocketAddr,
    ) -> Result<Sender, EgressDenial> {
        let stream = TokioIo::new(stream);
        let (caller, target) = (self.caller.clone(), self.target.clone());
        let ends = async move {
            tokio::select! {
                () = caller.closed.cancelled() => {}
                () = disallowed(&caller, &target, at) => {}
            }
        };
        if http2 {
            let made = http2::handshake(TokioExecutor::new(), stream).await;
            let (sender, connection) = made.map_err(|_| EgressDenial::CONNECT)?;
            tokio::spawn(async move {
                tokio::select! { _ = connection => {}, () = ends => {} }
            });
            return Ok(Sender::Http2(sender));
        }
        let (sender, connection) = http1::handshake(stream).await.map_err(|_| EgressDenial::CONNECT)?;
        tokio::spawn(async move {
            tokio::select! { _ = connection.with_upgrades() => {}, () = ends => {} }
        });
        Ok(Sender::Http1(sender))
    }

    async fn with_tls(&self, stream: TcpStream) -> Result<TlsStream<TcpStream>, EgressDenial> {
        let shared = &self.caller.shared;
        let name = ServerName::try_from(self.target.host.to_string()).map_err(|_| EgressDenial::CONNECT)?;
        let connecting = TlsConnector::from(shared.tls.client(self.protocol.http2)).connect(name, stream);
        let connected = timeout(shared.pace.connect, connecting).await.map_err(|_| EgressDenial::CONNECT)?;
        connected.map_err(|err| match err.get_ref().and_then(|it| it.downcast_ref()) {
            Some(rustls::Error::InvalidCertificate(_)) => EgressDenial::CERTIFICATE,
            _ => EgressDenial::CONNECT,
        })
    }

    /// Writes the address into a request as the protocol wants it.
    fn address(&self, request: &mut Request<Body>, http2: bool) -> Result<(), EgressDenial> {
        let path = request.uri().path_and_query().map_or("/", |it| it.as_str()).to_owned();
        let authority = self.target.authority(self.protocol.port());
        let scheme = if self.protocol.tls { "https" } else { "http" };
        let uri = if http2 { format!("{scheme}://{authority}{path}") } else { path };
        *request.uri_mut() = uri.parse::<Uri>().map_err(|_| EgressDenial::REQUEST)?;
        if http2 {
            *request.version_mut() = Version::HTTP_2;
            request.headers_mut().remove(HOST);
        } else {
            *request.version_mut() = Version::HTTP_11;
            let host = HeaderValue::from_str(&authority).map_err(|_| EgressDenial::REQUEST)?;
            request.headers_mut().insert(HOST, host);
        }
        Ok(())
    }
}

impl Sender {
    async fn send(&mut self, request: Request<Body>) -> Result<Response<Incoming>, TrySendError<Request<Body>>> {
        match self {
            Self::Http1(sender) => sender.try_send_request(request).await,
            Self::Http2(sender) => sender.try_send_request(request).await,
        }
    }

    fn is_ready(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_ready(),
            Self::Http2(sender) => sender.is_ready(),
        }
    }

    fn is_closed(&self) -> bool {
        match self {
            Self::Http1(sender) => sender.is_closed(),
            Self::Http2(sender) => sender.is_closed(),
        }
    }
}
