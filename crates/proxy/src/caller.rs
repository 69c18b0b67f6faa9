//! State that the connections of one proxy share, and the peer of each connection.

use std::fmt;
use std::sync::Arc;

use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use crate::approval::{Decision, OptionalApprovals};
use crate::clients::Clients;
use crate::log::{ProxyEvent, ProxyLog};
use crate::meter::Meter;
use crate::policy::{EgressPolicy, Grants};
use crate::rate_limit::AuthRateLimiter;
use crate::record::Recorder;
use crate::replay::Replay;
use crate::resolver::Resolver;
use crate::selftest::SELF_TEST;
use crate::settings::{Observer, Timeouts, TokenSource};
use crate::tls::Tls;
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
    /// Limits concurrent attempts to connect to names outside.
    pub(crate) opening: Semaphore,
    /// Limits connections from the container.
    pub(crate) places: Arc<Semaphore>,
    pub(crate) pace: Timeouts,
    pub(crate) tokens: OptionalTokenSource,
    pub(crate) approvals: OptionalApprovals,
    pub(crate) tls: Tls,
    pub(crate) recorder: Option<Arc<Recorder>>,
    /// Answers instead of servers.
    pub(crate) replay: Option<Arc<Replay>>,
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

/// The peer of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    pub(crate) shared: Arc<ProxyInner>,
    pub(crate) net: TokenHash,
    /// Cancelled when the connection closes, to end what it started.
    pub(crate) closed: CancellationToken,
    /// The rule by which the user has allowed this request, or this connection.
    pub(crate) once: Option<Arc<EgressPolicy>>,
}

impl Caller {
    /// Returns the current grants; none if the token is no longer the container's.
    pub(crate) fn grants(&self) -> Option<Arc<Grants>> {
        self.shared.refresh();
        let grants = self.shared.grants().filter(|it| it.tokens.net.as_ref() == Some(&self.net))?;
        let Some(once) = &self.once else { return Some(grants) };
        let egress = grants.egress.as_ref().map(|it| Arc::new(it.with(once)));
        Some(Arc::new(Grants { egress, ..Grants::clone(&grants) }))
    }

    /// Asks the user about a request that the rule would allow. Returns the caller with what is now allowed.
    pub(crate) async fn approved(&self, code: &'static str, target: String, rule: Option<&str>) -> Option<Self> {
        let (Some(approvals), Some(rule)) = (&self.shared.approvals.0, rule) else { return None };
        // The test after each start is refused, as it should be.
        let policy = EgressPolicy::parse(&[rule]).ok().filter(|_| target != SELF_TEST)?;
        let refused = self.shared.event(code, Some(target), Some(rule.to_owned()));
        let decision = tokio::select! {
            () = self.closed.cancelled() => Decision::Refused,
            decision = approvals.decide(&refused) => decision,
        };
        let once = match decision {
            Decision::Refused => return None,
            Decision::Once => Some(Arc::new(policy)),
            Decision::Allowed => self.once.clone(),
        };
        Some(Self { once, ..self.clone() })
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

    /// Returns the container's grants, if `knows` accepts its token.
    pub(crate) fn knowing(&self, knows: impl Fn(&Grants) -> bool) -> Option<Arc<Grants>> {
        self.refresh();
        self.grants().filter(|it| knows(it))
    }

    /// Reads the container's tokens again, and what the user has allowed. Without tokens it has none.
    pub(crate) fn refresh(&self) {
        let (source, approvals) = (&self.tokens.0, &self.approvals.0);
        self.grants.send_if_modified(|grants| {
            let Some(now) = grants else { return false };
            let tokens = source.as_ref().map_or_else(|| now.tokens.clone(), |it| it().unwrap_or_default());
            let egress = match (approvals, &now.egress) {
                (Some(approvals), Some(_)) => Some(approvals.policy()),
                (_, egress) => egress.clone(),
            };
            let is_same = match (&egress, &now.egress) {
                (Some(new), Some(old)) => Arc::ptr_eq(new, old),
                _ => true,
            };
            let changed = tokens != now.tokens || !is_same;
            if changed {
                *grants = Some(Arc::new(Grants { tokens, egress, ..Grants::clone(now) }));
            }
            changed
        });
    }

    /// Counts a bad token, and closes the proxy after too many.
    pub(crate) fn count_bad_token(&self) {
        if self.abuse.count() {
            tracing::warn!(container = self.container, "closed the proxy for a minute after too many bad tokens");
            self.report("proxy_abuse", None, None);
        }
    }

    pub(crate) fn report(&self, code: &'static str, target: Option<String>, rule: Option<String>) {
        if let OptionalObserver(Some(observer)) = &self.observer {
            observer(self.event(code, target, rule));
        }
    }

    fn event(&self, code: &'static str, target: Option<String>, rule: Option<String>) -> ProxyEvent {
        let policy_generation = self.grants().map_or(0, |it| it.generation);
        ProxyEvent { code, container: self.container.clone(), target, rule, policy_generation }
    }
}
