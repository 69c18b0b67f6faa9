//! What a proxy is made with.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::log::ProxyEvent;
use crate::meter::UsageTotals;
use crate::policy::Tokens;
use crate::resolver::{Resolver, SystemResolver};

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
