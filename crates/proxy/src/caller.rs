//! What the connections of one proxy share, and who is at the other end of each.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::clients::Clients;
use crate::log::{ProxyEvent, ProxyLog};
use crate::meter::Meter;
use crate::policy::Grants;
use crate::rate_limit::AuthRateLimiter;
use crate::resolver::Resolver;
use crate::settings::{Observer, Timeouts, TokenSource};
use crate::token::TokenHash;

#[derive(Debug)]
pub(crate) struct ProxyInner {
    pub(crate) container: String,
    pub(crate) grants: watch::Sender<Option<Arc<Grants>>>,
    pub(crate) meter: Meter,
    pub(crate) log: ProxyLog,
    pub(crate) observer: OptionalObserver,
    pub(crate) abuse: AuthRateLimiter,
    pub(crate) clients: Clients,
    pub(crate) resolver: Arc<dyn Resolver>,
    /// Connections to names outside that are being made.
    pub(crate) opening: Semaphore,
    /// Connections from inside.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) pace: Timeouts,
    pub(crate) tokens: OptionalTokenSource,
}

pub(crate) struct OptionalTokenSource(pub(crate) Option<TokenSource>);

impl fmt::Debug for OptionalTokenSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionalTokenSource")
    }
}

pub(crate) struct OptionalObserver(pub(crate) Option<Observer>);

impl fmt::Debug for OptionalObserver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OptionalObserver")
    }
}

/// Who is at the other end of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) shared: Arc<ProxyInner>,
    pub(crate) net: TokenHash,
    /// Ends what the connection began.
    pub(crate) closed: CancellationToken,
}

impl Caller {
    /// What it may do now; nothing when its token is no longer the container's.
    pub(crate) fn grants(&self) -> Option<Arc<Grants>> {
        self.shared.look_again();
        self.shared.grants().filter(|it| it.tokens.net.as_ref() == Some(&self.net))
    }

    /// Waits until its token is no longer the container's.
    pub(crate) async fn revoked(&self) {
        let mut changes = self.shared.grants.subscribe();
        while self.grants().is_some() && changes.changed().await.is_ok() {}
    }
}

impl ProxyInner {
    pub(crate) fn grants(&self) -> Option<Arc<Grants>> {
        self.grants.borrow().clone()
    }

    /// What the container may do, if `knows` says that a token is its own.
    pub(crate) fn knowing(&self, knows: impl Fn(&Grants) -> bool) -> Option<Arc<Grants>> {
        self.look_again();
        self.grants().filter(|it| knows(it))
    }

    /// Takes over the container's tokens as they are now. Where they cannot be told it has none.
    pub(crate) fn look_again(&self) {
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
    pub(crate) fn misused(&self) {
        if self.abuse.count() {
            tracing::warn!(container = self.container, "bad tokens close the proxy for a while");
            self.report("proxy_abuse", None);
        }
    }

    pub(crate) fn report(&self, code: &'static str, target: Option<String>) {
        if let OptionalObserver(Some(observer)) = &self.observer {
            let policy_generation = self.grants().map_or(0, |it| it.generation);
            observer(ProxyEvent { code, container: self.container.clone(), target, policy_generation });
        }
    }
}
