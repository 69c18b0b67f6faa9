//! The host's side of a container's ways out: to models, to repositories, and to names that are allowed.
//!
//! A [`Proxy`] belongs to one container and listens for it alone. Each connection begins with a line that holds the
//! container's token, put there by its guest. What a container may do is its [`Grants`], replaced as a whole and looked at for
//! each connection and each request, so that a token that is revoked and a rule that is gone count at once.
//!
//! **Invariant:** without grants, or without a token in them, nothing is allowed.
//! **Invariant:** no key goes in: it is added on the way out, and taken out of what comes back.
//! **Invariant:** who is inside learns no address of a provider, and nothing is sent where it was not decided before.
//! **Invariant:** what it costs is counted here, whatever is said inside.

mod body;
mod clients;
mod egress;
mod git;
mod grants;
mod listener;
mod listeners_inside;
mod llm;
mod log;
mod meter;
mod private_subnet;
mod proxy_header;
mod rate_limit;
mod response;
mod routes;
mod selftest;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::clients::Clients;
pub use self::egress::{EgressPolicy, Resolver, SystemResolver};
pub use self::git::{GitCredentials, GitLogin, GitMode, GitRules, GitSettings, NoCredentials};
pub use self::grants::{FixedKey, Grants, KeySource, MAX_BODY, ProviderConfig, ProviderKind, Tokens, is_listed};
pub use self::listener::ProxyListener;
pub use self::listeners_inside::Listeners;
pub use self::log::ProxyEvent;
use self::log::ProxyLog;
use self::meter::Meter;
pub use self::meter::{Budget, UsageTotals};
pub use self::private_subnet::PrivateSubnet;
use self::rate_limit::AuthRateLimiter;
use self::response::Rejection;
pub use self::selftest::{LLM_URL, PROXY_ENV, ROUTES_ENV, self_test};
use crate::{Failure, Scope, TokenHash};

/// Where a connection leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Port {
    /// Models and repositories.
    Api,
    /// Names outside.
    Egress,
}

/// How long somebody else is waited for.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// To take a connection.
    pub connect: Duration,
    /// Between two bytes.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), silence: Duration::from_secs(300) }
    }
}

/// Takes what the person should see.
pub type Observer = Arc<dyn Fn(ProxyEvent) + Send + Sync>;

/// Tells the tokens of a container as they are now; nothing when it has none.
pub type TokenSource = Arc<dyn Fn() -> Option<Tokens> + Send + Sync>;

/// What a proxy is made with.
#[derive(Clone)]
pub struct ProxySettings {
    /// The container's name, for the log.
    pub container: String,
    /// The log; none keeps none.
    pub log: Option<PathBuf>,
    /// Takes what the person should see.
    pub observer: Option<Observer>,
    /// What was counted before: the host's process may have been another one then.
    pub already: UsageTotals,
    /// Finds addresses.
    pub resolver: Arc<dyn Resolver>,
    /// How long others are waited for.
    pub pace: Timeouts,
    /// Asked for the container's tokens with each connection and request: another process may have given or revoked one.
    pub tokens: Option<TokenSource>,
}

impl ProxySettings {
    /// A proxy for that container, with no log and the system's resolver.
    #[must_use]
    pub fn new(container: impl Into<String>) -> Self {
        let (already, pace) = (UsageTotals::default(), Timeouts::default());
        let resolver = Arc::new(SystemResolver);
        Self { container: container.into(), log: None, observer: None, already, resolver, pace, tokens: None }
    }
}

impl fmt::Debug for ProxySettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxySettings")
            .field("container", &self.container)
            .field("log", &self.log)
            .finish_non_exhaustive()
    }
}

/// The proxy of one container. A clone is the same proxy.
#[derive(Clone, Debug)]
pub struct Proxy(Arc<ProxyInner>);

#[derive(Debug)]
struct ProxyInner {
    container: String,
    grants: watch::Sender<Option<Arc<Grants>>>,
    meter: Meter,
    log: ProxyLog,
    observer: OptionalObserver,
    abuse: AuthRateLimiter,
    clients: Clients,
    resolver: Arc<dyn Resolver>,
    /// Connections to names outside that are being made.
    opening: Semaphore,
    /// Connections from inside.
    places: Arc<Semaphore>,
    pace: Timeouts,
    tokens: OptionalTokenSource,
}

struct OptionalTokenSource(Option<TokenSource>);

impl fmt::Debug for OptionalTokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionalTokenSource")
    }
}

struct OptionalObserver(Option<Observer>);

impl fmt::Debug for OptionalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionalObserver")
    }
}

/// Connections from inside at once; more wait.
const MOST: usize = 256;

/// Names outside that are connected to at once; more wait.
const OPENING: usize = 16;

/// Bytes of a request's head, at most.
const MAX_HEAD: usize = 64 << 10;

impl Proxy {
    /// A proxy that denies all until it is given [`Grants`].
    ///
    /// # Errors
    /// When its log cannot be written, or this machine has no certificates to know others by.
    pub fn new(settings: ProxySettings) -> Result<Self, Failure> {
        let ProxySettings { container, log, observer, already, resolver, pace, tokens } = settings;
        let log = ProxyLog::open(log.as_deref()).map_err(Failure::internal)?;
        let clients = Clients::new(&resolver, pace)?;
        let (grants, _) = watch::channel(None);
        let (meter, observer, abuse) = (Meter::new(already), OptionalObserver(observer), AuthRateLimiter::default());
        let tokens = OptionalTokenSource(tokens);
        let (opening, places) = (Semaphore::new(OPENING), Arc::new(Semaphore::new(MOST)));
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
        };
        Ok(Self(Arc::new(shared)))
    }

    /// Replaces what the container may do; `None` denies all. Connections that are no longer allowed are closed.
    pub fn grant(&self, grants: Option<Grants>) {
        self.0.grants.send_replace(grants.map(Arc::new));
    }

    /// What the container spent.
    #[must_use]
    pub fn metered(&self) -> UsageTotals {
        self.0.meter.metered()
    }

    /// Serves one connection, from its first line to its end. It ends early when its token is revoked.
    pub async fn serve(&self, port: Port, mut stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) {
        let Ok(_place) = Arc::clone(&self.0.places).acquire_owned().await else { return };
        let Ok(token) = proxy_header::read(&mut stream).await else { return };
        let known = token.filter(|it| self.0.knowing(|grants| grants.knows(Scope::Net, it)).is_some());
        let Some(token) = known else {
            self.0.misused();
            refuse(stream).await;
            return;
        };
        let closed = CancellationToken::new();
        // What a connection began elsewhere ends with it.
        let _closes = closed.clone().drop_guard();
        let caller = Caller { shared: self.0.clone(), net: TokenHash::from_token(&token), closed };
        tokio::select! {
            () = caller.revoked() => {}
            () = speak(port, stream, caller.clone()) => {}
        }
    }
}

/// Says why, and waits a moment for it to be read.
async fn refuse(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let _ = stream.write_all(&Rejection::Token.bytes()).await;
    let _ = stream.shutdown().await;
    let mut nowhere = tokio::io::sink();
    let drain = tokio::io::copy(&mut stream, &mut nowhere);
    let _ = tokio::time::timeout(Duration::from_secs(1), drain).await;
}

async fn speak(port: Port, stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static, caller: Caller) {
    let mut http = http1::Builder::new();
    // A program may say that it is done asking before it has its answer. Who asks a model and goes is not waited for.
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
        tracing::debug!(%err, "a connection to the proxy broke");
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
struct Caller {
    shared: Arc<ProxyInner>,
    net: TokenHash,
    /// Ends what the connection began.
    closed: CancellationToken,
}

impl Caller {
    /// What it may do now; nothing when its token is no longer the container's.
    fn grants(&self) -> Option<Arc<Grants>> {
        self.shared.look_again();
        self.shared.grants().filter(|it| it.tokens.net.as_ref() == Some(&self.net))
    }

    /// Waits until its token is no longer the container's.
    async fn revoked(&self) {
        let mut changes = self.shared.grants.subscribe();
        while self.grants().is_some() && changes.changed().await.is_ok() {}
    }
}

impl ProxyInner {
    fn grants(&self) -> Option<Arc<Grants>> {
        self.grants.borrow().clone()
    }

    /// What the container may do, if `knows` says that a token is its own.
    fn knowing(&self, knows: impl Fn(&Grants) -> bool) -> Option<Arc<Grants>> {
        self.look_again();
        self.grants().filter(|it| knows(it))
    }

    /// Takes over the container's tokens as they are now. Where they cannot be told it has none.
    fn look_again(&self) {
        let Some(source) = &self.tokens.0 else { return };
        self.grants.send_if_modified(|grants| {
            let Some(now) = grants else { return false };
            let tokens = source().unwrap_or_default();
            let changed = tokens != now.tokens;
            if changed {
                *grants = Some(Arc::new(Grants { tokens, ..Grants::clone(now) }));
            }
            changed
        });
    }

    /// Somebody came with a bad token.
    fn misused(&self) {
        if self.abuse.count() {
            tracing::warn!(container = self.container, "bad tokens close the proxy for a while");
            self.report("proxy_abuse", None);
        }
    }

    fn report(&self, code: &'static str, target: Option<String>) {
        if let OptionalObserver(Some(observer)) = &self.observer {
            let policy_generation = self.grants().map_or(0, |it| it.generation);
            observer(ProxyEvent { code, container: self.container.clone(), target, policy_generation });
        }
    }
}
