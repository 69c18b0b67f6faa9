//! Resolves a name and connects. The policy checks the address that is then connected to, so a second lookup cannot
//! differ.

use std::net::SocketAddr;
use std::time::Duration;

use coracle_host::address::is_public;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::denial::EgressDenial;
use super::target::EgressTarget;
use crate::caller::Caller;
use crate::policy::{Denial, EgressHost};

/// How long a lookup may take before the name counts as missing.
const LOOKUP: Duration = Duration::from_secs(10);

/// Maximum number of a name's addresses to try.
const TRIES: usize = 4;

/// A connection, and the address that it is connected to.
#[derive(Debug)]
pub(crate) struct EgressConnection {
    pub(crate) stream: TcpStream,
    pub(crate) at: SocketAddr,
}

/// Connects, if the policy allows it.
pub(crate) async fn reach(caller: &Caller, target: &EgressTarget) -> Result<EgressConnection, EgressDenial> {
    if caller.shared.replay.is_some() {
        return Err(EgressDenial::HOST_NOT_RECORDED);
    }
    may_ask(caller, target)?;
    let Ok(_place) = caller.shared.opening.acquire().await else { return Err(EgressDenial::CONNECT) };
    let found = match &target.host {
        EgressHost::Address(it) => vec![*it],
        EgressHost::Name(name) => {
            let found = timeout(LOOKUP, caller.shared.resolver.resolve(name)).await;
            found.ok().and_then(Result::ok).filter(|it| !it.is_empty()).ok_or(EgressDenial::NAME)?
        }
    };
    let found = found.into_iter().map(|it| SocketAddr::new(it, target.port));
    let found: Vec<_> = found.filter(|at| allowed(caller, target, *at).is_ok()).collect();
    if found.is_empty() {
        may_ask(caller, target)?;
        return Err(EgressDenial::PRIVATE);
    }
    for at in found.into_iter().take(TRIES) {
        if let Ok(Ok(stream)) = timeout(caller.shared.pace.connect, TcpStream::connect(at)).await {
            let _ = stream.set_nodelay(true);
            // The policy may have been replaced meanwhile.
            return allowed(caller, target, at).map(|()| EgressConnection { stream, at });
        }
    }
    Err(EgressDenial::CONNECT)
}

/// Whether the policy allows the name.
fn may_ask(caller: &Caller, target: &EgressTarget) -> Result<(), EgressDenial> {
    let grants = caller.grants().ok_or(EgressDenial::TOKEN)?;
    let policy = grants.egress.as_ref().ok_or(EgressDenial::POLICY)?;
    policy.check(&target.host, target.port).map_err(|no| match no {
        Denial::Host => EgressDenial::HOST,
        Denial::Port => EgressDenial::PORT,
        Denial::Ip => EgressDenial::IP,
    })
}

/// Whether the current policy allows the connection.
pub(crate) fn allowed(caller: &Caller, target: &EgressTarget, at: SocketAddr) -> Result<(), EgressDenial> {
    may_ask(caller, target)?;
    let grants = caller.grants().ok_or(EgressDenial::TOKEN)?;
    let named = grants.egress.as_ref().is_some_and(|it| it.names(at));
    if named || is_public(at.ip()) { Ok(()) } else { Err(EgressDenial::PRIVATE) }
}

/// Waits until the connection is no longer allowed.
pub(crate) async fn disallowed(caller: &Caller, target: &EgressTarget, at: SocketAddr) {
    let mut changes = caller.shared.grants.subscribe();
    while allowed(caller, target, at).is_ok() && changes.changed().await.is_ok() {}
}

impl Caller {
    /// Whether the proxy has to see the requests to a destination.
    pub(crate) fn sees_requests(&self, target: &EgressTarget) -> bool {
        self.grants().is_some_and(|it| it.sees_requests(&target.host, target.port))
    }
}
