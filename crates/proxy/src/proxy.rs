//! The proxy of one container: each connection, from its first line to its end.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use coracle_types::failure::Failure;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::approval::OptionalApprovals;
use crate::caller::{Caller, OptionalObserver, OptionalTokenSource, ProxyInner};
use crate::clients::Clients;
use crate::log::ProxyLog;
use crate::meter::{Meter, UsageTotals};
use crate::policy::Grants;
use crate::rate_limit::AuthRateLimiter;
use crate::record::Recorder;
use crate::replay::Replay;
use crate::response::Rejection;
use crate::settings::ProxySettings;
use crate::tls::{Authority, Tls};
use crate::token::{Scope, TokenHash};
use crate::{egress, proxy_header, routes};

/// The kind of destinations of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Models and repositories.
    Api,
    /// Allowed host names.
    Egress,
}

/// The proxy of one container. Clones share its state.
#[derive(Clone, Debug)]
pub struct Proxy(pub(crate) Arc<ProxyInner>);

/// Maximum number of connections from the container; more wait.
const MAX_CONNECTIONS: usize = 256;

/// Maximum number of concurrent attempts to connect to allowed host names; more wait.
const OPENING: usize = 16;

/// Maximum size of a request's head.
const MAX_HEAD: usize = 64 << 10;

impl Proxy {
    /// Creates a proxy that refuses everything until it gets [`Grants`].
    ///
    /// # Errors
    /// If the log or the record cannot be opened, or the host has no root certificates.
    pub fn new(settings: ProxySettings) -> Result<Self, Failure> {
        let ProxySettings {
            container,
            log,
            observer,
            already,
            resolver,
            pace,
            tokens,
            approvals,
            authority,
            roots,
            ..
        } = settings;
        let authority = authority.map_or_else(|| Authority::generate(&container).map(Arc::new), Ok)?;
        let tls = Tls::new(authority, &roots)?;
        let log = ProxyLog::open(log.as_deref()).map_err(Failure::internal)?;
        let recorder = settings.record.map(Recorder::start).transpose().map_err(Failure::internal)?;
        let replay = settings.replay.map(Replay::open).transpose()?.map(Arc::new);
        let clients = Clients::new(&resolver, pace)?;
        let (grants, _) = watch::channel(None);
        let (meter, observer, abuse) = (Meter::new(already), OptionalObserver(observer), AuthRateLimiter::default());
        let (tokens, approvals) = (OptionalTokenSource(tokens), OptionalApprovals(approvals));
        let (opening, places) = (Semaphore::new(OPENING), Arc::new(Semaphore::new(MAX_CONNECTIONS)));
        let shared = ProxyInner {
            container,
            grants,
            meter,
            log,
            observer,
            abuse,
            clients,
            resolver,
            opening,
            places,
            pace,
            tokens,
            approvals,
            tls,
            recorder,
            replay,
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Replaces the permissions of the container; `None` refuses everything. Closes connections that are no longer
    /// allowed.
    pub fn grant(&self, grants: Option<Grants>) {
        self.0.grants.send_replace(grants.map(Arc::new));
    }

    /// Returns the container's usage.
    #[must_use]
    pub fn metered(&self) -> UsageTotals {
        self.0.meter.metered()
    }

    /// Waits until all exchanges that have ended are in the record.
    pub async fn flush_record(&self) {
        if let Some(recorder) = &self.0.recorder {
            recorder.flush().await;
        }
    }

    /// Ends all connections, and waits until their exchanges are in the record.
    pub async fn end_record(&self) {
        self.grant(None);
        if let Some(recorder) = &self.0.recorder {
            recorder.end().await;
        }
    }

    /// Serves one connection. It ends early if its token is revoked.
    pub async fn serve(&self, port: Port, mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let Ok(_place) = Arc::clone(&self.0.places).acquire_owned().await else { return };
        let Ok(token) = proxy_header::read(&mut stream).await else { return };
        let known = token.filter(|it| self.0.knowing(|grants| grants.knows(Scope::Net, it)).is_some());
        let Some(token) = known else {
            self.0.count_bad_token();
            refuse(stream).await;
            return;
        };
        let closed = CancellationToken::new();
        // Closing the connection also cancels its requests to other hosts.
        let _closes = closed.clone().drop_guard();
        let caller = Caller { shared: self.0.clone(), net: TokenHash::from_token(&token), closed, once: None };
        tokio::select! {
            () = caller.revoked() => {}
            () = speak(port, stream, caller.clone()) => {}
        }
    }
}

/// Answers with the reason, and waits a moment for the client to read it.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = stream.write_all(&Rejection::Token.bytes()).await;
    let _ = stream.shutdown().await;
    let mut nowhere = tokio::io::sink();
    let drain = tokio::io::copy(&mut stream, &mut nowhere);
    let _ = tokio::time::timeout(Duration::from_secs(1), drain).await;
}

async fn speak(port: Port, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, caller: Caller) {
    let mut http = http1::Builder::new();
    // A client may close its sending side before it has the answer. For models, that counts as a disconnect.
    http.half_close(port == Port::Egress);
    http.timer(TokioTimer::new()).header_read_timeout(caller.shared.pace.silence).max_buf_size(MAX_HEAD);
    let stream = TokioIo::new(stream);
    let spoken = match port {
        Port::Api => http.serve_connection(stream, service_fn(|it| routes::answer(caller.clone(), it))).await,
        Port::Egress => {
            let tunnel = Arc::<egress::Tunnel>::default();
            let answers = service_fn(|it| egress::answer(caller.clone(), tunnel.clone(), it));
            let spoken = http.serve_connection(stream, answers).with_upgrades().await;
            let goes_on = tunnel.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(goes_on) = goes_on.filter(|_| spoken.is_ok()) {
                goes_on.await;
            }
            spoken
        }
    };
    if let Err(err) = spoken {
        tracing::debug!(%err, "a connection to the proxy failed");
    }
}
