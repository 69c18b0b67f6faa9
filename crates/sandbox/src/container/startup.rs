//! Prepares a sandbox's container once after each start, and records that it is ready.

mod steps;

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coracle_client::{Link, Upstream};

pub(super) use self::steps::set_env;
pub use self::steps::{StartHook, StartupOptions};
use self::steps::{not_ready, prepare};
use super::sandbox_proxy::{OTHER_WAYS, SandboxProxy, Transport};
use crate::record::{SandboxDir, SandboxRecord, StartRecord};
use crate::{Code, Failure, Result, RunningContainer};
use coracle_types::ProfileName;

/// Number of checks whether the proxy listens, and the time between two of them.
const LOOKS: u32 = 40;
const LOOK: Duration = Duration::from_millis(50);

/// Prepares one container after each of its starts.
#[derive(Clone, Debug)]
pub struct Startup {
    pub(super) dir: SandboxDir,
    pub(super) profile: ProfileName,
    pub(super) options: StartupOptions,
    /// The proxy, if the container reaches it over its link or a network.
    proxy: Option<Arc<SandboxProxy>>,
}

/// The error for a container that is on no network that leads to its proxy.
fn nowhere(spec_pending: bool) -> Failure {
    if spec_pending {
        let message =
            "The sandbox has no network of its own: it was created with another `proxy.transport`, and is in use.";
        return Failure::new(Code::ProxyUnreachable, message)
            .hint("wait until nothing runs in it, or restore the earlier value of `proxy.transport`");
    }
    let message = "The engine reports no gateway or no subnet for the sandbox's network.";
    Failure::new(Code::ProxyUnreachable, message).hint(OTHER_WAYS)
}

impl Startup {
    /// Prepares the container that is recorded in `dir`.
    #[must_use]
    pub fn new(dir: SandboxDir, profile: ProfileName, options: StartupOptions) -> Self {
        Self { dir, profile, options, proxy: None }
    }

    /// Sets the proxy that the container reaches, by the proxy's transport.
    #[must_use]
    pub fn with_proxy(mut self, proxy: Arc<SandboxProxy>) -> Self {
        if proxy.transport() == Transport::Link {
            self.options.way = Upstream::Link;
        }
        Self { proxy: Some(proxy), ..self }
    }

    fn proxy_by(&self, transport: Transport) -> Option<&Arc<SandboxProxy>> {
        self.proxy.as_ref().filter(|it| it.transport() == transport)
    }

    /// Lets the proxy listen on the network of the running container.
    pub(super) fn check_proxy_address(&self, held: &RunningContainer) -> Result<()> {
        let Some(proxy) = self.proxy_by(Transport::Tcp) else { return Ok(()) };
        proxy.reached_at(held.subnet.ok_or_else(|| nowhere(held.info.spec_pending))?)
    }

    /// Further addresses that must not be reachable; none without network isolation.
    pub(super) fn wall(&self) -> Option<Vec<IpAddr>> {
        let own = self.proxy_by(Transport::Tcp).and_then(|it| it.address());
        Some(self.options.wall()?.iter().copied().chain(own).collect())
    }

    /// Whether the container has a network although it has no way out but its proxy.
    pub(super) fn has_network(&self) -> bool {
        self.options.has_network() || self.proxy_by(Transport::Tcp).is_some()
    }

    /// Returns the options with the proxy's current addresses; waits until it listens.
    async fn options(&self) -> Result<StartupOptions> {
        let Some(proxy) = self.proxy_by(Transport::Tcp) else { return Ok(self.options.clone()) };
        // Another process may be about to listen.
        let mut looks = 0;
        let [api, egress] = loop {
            match proxy.places() {
                Some(places) => break places,
                None if looks == LOOKS => return Err(not_ready("proxy", "no process listens for it")),
                None => looks += 1,
            }
            tokio::time::sleep(LOOK).await;
        };
        let gateways = self.wall().unwrap_or_default();
        Ok(StartupOptions { way: Upstream::Tcp { api, egress }, gateways, ..self.options.clone() })
    }

    /// Lets the proxy listen on the link of the running container.
    pub(super) fn listen_on_link(&self, link: &Link) -> Result<()> {
        self.proxy_by(Transport::Link).map_or(Ok(()), |it| it.reached_by(link))
    }

    /// Ensures that the running container with this id has its relays and no other way out. Its proxy must listen
    /// already.
    ///
    /// # Errors
    /// `sandbox_not_ready` with the step that failed, or `egress_not_enforced`. The caller then removes the container.
    pub async fn ensure(&self, link: &Link, id: &str) -> Result<()> {
        self.listen_on_link(link)?;
        if self.is_proven(link, id).await? {
            return Ok(());
        }
        let _alone = self.dir.lock().await?;
        if self.is_proven(link, id).await? {
            return Ok(());
        }
        self.prove(link, id).await
    }

    /// Prepares and tests the container, and records the result. The caller holds the record's lock.
    pub(super) async fn prove(&self, link: &Link, id: &str) -> Result<()> {
        let (key, profile) = (self.dir.key().clone(), self.profile.clone());
        let remember = |ready| self.dir.save(&SandboxRecord { key: key.clone(), profile: profile.clone(), ready });
        let mut given = None;
        let options = self.options().await?;
        let prepared = prepare(link, id, &options, async |prepared| {
            given = Some(prepared.clone());
            remember(Some(prepared))
        });
        match prepared.await {
            Ok(()) => remember(given.map(|it| StartRecord { proven: true, ..it })),
            Err(failure) => {
                remember(None)?;
                Err(failure)
            }
        }
    }

    pub(super) async fn is_proven(&self, link: &Link, id: &str) -> Result<bool> {
        let Some(ready) = self.dir.record()?.and_then(|it| it.ready).filter(|it| it.proven) else { return Ok(false) };
        let run = link.run_id().await.map_err(|err| not_ready("guest", err))?;
        // The user may have configured isolation since the container was tested. And the proxy addresses that it was
        // given must still be valid.
        let knows_proxy = self
            .proxy_by(Transport::Tcp)
            .is_none_or(|it| ready.proxy_addresses.is_some() && ready.proxy_addresses == it.places());
        Ok(knows_proxy && ready.holds(id, &run, self.options.wall().is_some()))
    }
}
