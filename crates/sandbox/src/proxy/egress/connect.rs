//! From a name to a connection: what is allowed is looked up once, and that very address is connected to.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::rules::Denial;
use super::{Host, Refusal, Target, is_global};
use crate::proxy::Caller;

/// A resolver answers by then, or the name counts as missing.
const LOOKUP: Duration = Duration::from_secs(10);

/// Addresses of one name that are tried, at most.
const TRIES: usize = 4;

/// Finds the addresses of a name, on the host.
#[async_trait]
pub trait Resolver: fmt::Debug + Send + Sync {
    /// All of them.
    ///
    /// # Errors
    /// When there is no such name.
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>>;
}

/// The system's own.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait]
impl Resolver for SystemResolver {
    async fn resolve(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        Ok(tokio::net::lookup_host((name, 0)).await?.map(|it| it.ip()).collect())
    }
}

/// A connection, and where it leads.
#[derive(Debug)]
pub(super) struct Reached {
    pub(super) stream: TcpStream,
    pub(super) at: SocketAddr,
}

/// Connects, if it may be.
pub(super) async fn reach(caller: &Caller, target: &Target) -> Result<Reached, Refusal> {
    may_ask(caller, target)?;
    let Ok(_place) = caller.shared.opening.acquire().await else { return Err(Refusal::CONNECT) };
    let found = match &target.host {
        Host::Address(it) => vec![*it],
        Host::Name(name) => {
            let found = timeout(LOOKUP, caller.shared.resolver.resolve(name)).await;
            found.ok().and_then(Result::ok).filter(|it| !it.is_empty()).ok_or(Refusal::NAME)?
        }
    };
    let found = found.into_iter().map(|it| SocketAddr::new(it, target.port));
    let found: Vec<_> = found.filter(|at| allowed(caller, target, *at).is_ok()).collect();
    if found.is_empty() {
        may_ask(caller, target)?;
        return Err(Refusal::PRIVATE);
    }
    for at in found.into_iter().take(TRIES) {
        if let Ok(Ok(stream)) = timeout(caller.shared.pace.connect, TcpStream::connect(at)).await {
            let _ = stream.set_nodelay(true);
            // It may have been replaced meanwhile.
            return allowed(caller, target, at).map(|()| Reached { stream, at });
        }
    }
    Err(Refusal::CONNECT)
}

/// Whether the policy names it.
fn may_ask(caller: &Caller, target: &Target) -> Result<(), Refusal> {
    let grants = caller.grants().ok_or(Refusal::TOKEN)?;
    let policy = grants.egress.as_ref().ok_or(Refusal::POLICY)?;
    policy.judge(&target.host, target.port).map_err(|no| match no {
        Denial::Host => Refusal::HOST,
        Denial::Port => Refusal::PORT,
        Denial::Ip => Refusal::IP,
    })
}

/// Whether the policy, as it is now, lets this connection be.
pub(super) fn allowed(caller: &Caller, target: &Target, at: SocketAddr) -> Result<(), Refusal> {
    may_ask(caller, target)?;
    let grants = caller.grants().ok_or(Refusal::TOKEN)?;
    let named = grants.egress.as_ref().is_some_and(|it| it.names(at));
    if named || is_global(at.ip()) { Ok(()) } else { Err(Refusal::PRIVATE) }
}
