//! The settings of a proxy.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls_pki_types::CertificateDer;

use crate::approval::Approvals;
use crate::log::ProxyEvent;
use crate::meter::UsageTotals;
use crate::policy::Tokens;
use crate::record::RecordSettings;
use crate::replay::ReplaySettings;
use crate::resolver::{Resolver, SystemResolver};
use crate::tls::Authority;

/// Timeouts for other parties.
#[derive(Clone, Copy, Debug)]
pub struct Timeouts {
    /// For a connection attempt.
    pub connect: Duration,
    /// Between two bytes.
    pub silence: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self { connect: Duration::from_secs(30), silence: Duration::from_secs(300) }
    }
}

/// Receives events for the user.
pub type Observer = Arc<dyn Fn(ProxyEvent) + Send + Sync>;

/// Returns the current tokens of a container; none if it has none.
pub type TokenSource = Arc<dyn Fn() -> Option<Tokens> + Send + Sync>;

/// The settings of a proxy.
#[derive(Clone)]
pub struct ProxySettings {
    /// The container's name, for the log.
    pub container: String,
    /// The path of the log; none disables it.
    pub log: Option<PathBuf>,
    /// Receives events for the user.
    pub observer: Option<Observer>,
    /// Usage that an earlier process has counted.
    pub already: UsageTotals,
    /// Resolves names.
    pub resolver: Arc<dyn Resolver>,
    /// Timeouts for other parties.
    pub pace: Timeouts,
    /// Provides the container's tokens for each connection and request: another process may have issued or revoked one.
    pub tokens: Option<TokenSource>,
    /// Decides requests that the policy refuses; without it, they stay refused.
    pub approvals: Option<Arc<dyn Approvals>>,
    /// Signs the certificates with which the proxy ends TLS; without it a new one, which no container trusts.
    pub authority: Option<Arc<Authority>>,
    /// Authorities of servers, beside those that the host trusts.
    pub roots: Vec<CertificateDer<'static>>,
    /// Records the requests to allowed hosts. The proxy ends TLS for all of them then.
    pub record: Option<RecordSettings>,
    /// Answers from a record, and sends nothing outside.
    pub replay: Option<ReplaySettings>,
}

impl ProxySettings {
    /// Creates settings for that container, without a log and with the system's resolver.
    #[must_use]
    pub fn new(container: impl Into<String>) -> Self {
        let (already, pace) = (UsageTotals::default(), Timeouts::default());
        let resolver = Arc::new(SystemResolver);
        let (log, observer, tokens, approvals, authority, record, replay) = Default::default();
        let (container, roots) = (container.into(), Vec::new());
        Self { container, log, observer, already, resolver, pace, tokens, approvals, authority, roots, record, replay }
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
