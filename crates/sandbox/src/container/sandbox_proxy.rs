//! The proxy of one sandbox in this process, if no other one keeps it already.
//!
//! Sockets lie in a directory that the container sees. Whichever process comes first listens there, for as long as it
//! uses the sandbox: another one may know a key that this one does not. With the last use every way out is gone, until
//! the next one.
//!
//! By the link of the container only who has one is a way out, so a process whose own broke leaves its place to another.

mod network;

use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use coracle_client::Link;
use coracle_host::lock::Lock;
use coracle_host::state_file;
use coracle_proxy::listen::{Listeners, PrivateSubnet, ProxyListener};
use coracle_proxy::policy::{Grants, Tokens};
use coracle_proxy::record::RecordSettings;
use coracle_proxy::replay::ReplaySettings;
use coracle_proxy::{Approvals, Observer, Proxy, ProxySettings, UsageTotals};
use tokio::time::Instant;

pub(super) use self::network::OTHER_WAYS;
use self::network::is_here;
use crate::record::SandboxDir;
use crate::{Code, Failure, Result};

/// How often to check whether the listening process has ended or has no link. A container that just started waits at most 2 s
/// for a listener.
const LOOKS: Duration = Duration::from_millis(250);

/// A running call usually restores a broken link.
const LINKLESS: Duration = Duration::from_secs(1);

/// How often usage is recorded while it changes. A killed process loses the usage of one such period.
const NOTES: Duration = Duration::from_secs(5);

/// The way out of a sandbox.
pub struct SandboxProxy {
    dir: SandboxDir,
    /// What the container may do, apart from its tokens.
    grants: Grants,
    listeners: ProxyListeners,
    transport: Transport,
    record: Option<RecordSettings>,
    replay: Option<ReplaySettings>,
    state: Mutex<ProxyState>,
}

/// What a proxy reports refusals to.
#[derive(Clone, Default)]
pub struct ProxyListeners {
    /// Receives events for the user.
    pub observer: Option<Observer>,
    /// Decides requests that the policy refuses.
    pub approvals: Option<Arc<dyn Approvals>>,
}

impl fmt::Debug for ProxyListeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProxyListeners").finish_non_exhaustive()
    }
}

/// How a container reaches its proxy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// By sockets in a directory that it sees.
    #[default]
    Unix,
    /// By the link to its guest: nothing listens anywhere, and nothing of the host has to be seen inside.
    Link,
    /// By a network that it is alone on with this host.
    Tcp,
}

#[derive(Default)]
struct ProxyState {
    uses: usize,
    /// A task checks whether this process has to listen.
    looks: bool,
    /// A task writes down what is used.
    notes: bool,
    /// What was last written down or read.
    noted: UsageTotals,
    listens: Option<ActiveListener>,
    /// The container's, where it is the way.
    link: Option<Link>,
    /// Since when there is none.
    cut: Option<Instant>,
    /// The container's network, where that is the way.
    at: Option<PrivateSubnet>,
}

/// As long as this is there, this process is the one that listens.
struct ActiveListener {
    proxy: Proxy,
    _listening: Option<ProxyListener>,
    outlets: Option<Listeners>,
    _mine: Lock,
}

impl fmt::Debug for SandboxProxy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxProxy").field("key", self.dir.key()).finish_non_exhaustive()
    }
}

impl SandboxProxy {
    /// That of a sandbox, closed.
    #[must_use]
    pub fn new(dir: SandboxDir, grants: Grants, listeners: ProxyListeners) -> Self {
        let (record, replay) = (None, None);
        Self { dir, grants, listeners, transport: Transport::Unix, record, replay, state: Mutex::default() }
    }

    /// How the container reaches it.
    pub(super) fn transport(&self) -> Transport {
        self.transport
    }

    /// Reached that way.
    #[must_use]
    pub fn by(self, transport: Transport) -> Self {
        Self { transport, ..self }
    }

    /// Records the requests of the container.
    #[must_use]
    pub fn recording(self, record: Option<RecordSettings>) -> Self {
        Self { record, ..self }
    }

    /// Answers requests from a record in that directory, and sends none outside.
    #[must_use]
    pub fn replaying(self, record: PathBuf) -> Self {
        let replay = Some(ReplaySettings { record, log: self.dir.replay_log() });
        Self { replay, ..self }
    }

    /// The container that runs is reached by that link, which may be its way out.
    ///
    /// # Errors
    /// When this process is to listen, and cannot.
    pub(super) fn reached_by(&self, link: &Link) -> Result<()> {
        let mut state = self.state();
        state.cut = None;
        if !state.link.as_ref().is_some_and(|it| it.is_same(link)) {
            state.link = Some(link.clone());
            if let Some(listens) = &mut state.listens {
                listens.outlets = Some(Listeners::open(&listens.proxy, link));
            }
        }
        // An unused proxy is opened by the next use.
        if state.uses > 0 { self.listen(&mut state) } else { Ok(()) }
    }

    /// Ensures that a proxy listens as long as the result is held: of this process, unless another one listens, whose
    /// place it takes when that ends.
    ///
    /// # Errors
    /// When the sockets cannot be made.
    pub fn open(self: &Arc<Self>) -> Result<ProxyLease> {
        let mut state = self.state();
        if self.has_a_way(&state) {
            self.listen(&mut state)?;
        }
        if !self.is_settled(&state) && !state.looks {
            state.looks = true;
            tokio::spawn(watch_listener(Arc::downgrade(self)));
        }
        if !state.notes {
            state.notes = true;
            tokio::spawn(note_usage(Arc::downgrade(self)));
        }
        state.uses += 1;
        Ok(ProxyLease(Arc::clone(self)))
    }

    fn listen(&self, state: &mut ProxyState) -> Result<()> {
        if state.listens.is_none()
            && let Some(mine) = Lock::try_take(&self.dir.root().join("proxy.lock")).map_err(Failure::internal)?
        {
            let proxy = self.proxy()?;
            let listening = match (self.transport, state.at) {
                (Transport::Unix, _) => {
                    Some(ProxyListener::open(&proxy, &self.dir.sockets()).map_err(Failure::internal)?)
                }
                (Transport::Tcp, Some(at)) => Some(self.listen_at(&proxy, at)?),
                _ => None,
            };
            let outlets = state.link.as_ref().map(|it| Listeners::open(&proxy, it));
            state.noted = proxy.metered();
            state.listens = Some(ActiveListener { proxy, _listening: listening, outlets, _mine: mine });
        }
        Ok(())
    }

    /// Whether the container reaches this process, if it listens.
    fn has_a_way(&self, state: &ProxyState) -> bool {
        match self.transport {
            Transport::Unix => true,
            Transport::Link => state.link.as_ref().is_some_and(|it| it.transport().is_some()),
            // Its network may be gone, and another one be made by another process.
            Transport::Tcp => state.at.is_some_and(|it| is_here(it.gateway)),
        }
    }

    /// Whether it stays as it is, as long as it is used.
    fn is_settled(&self, state: &ProxyState) -> bool {
        self.transport == Transport::Unix && state.listens.is_some()
    }

    /// Listens if it can, and leaves that to another process if this one cannot be reached.
    fn keep(&self, state: &mut ProxyState) {
        if self.has_a_way(state) {
            state.cut = None;
            if let Err(err) = self.listen(state) {
                tracing::warn!(%err, "the proxy of a sandbox cannot listen");
            }
        } else if state.cut.get_or_insert_with(Instant::now).elapsed() >= LINKLESS {
            self.note_of(state);
            state.listens = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, ProxyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of what the container used: this process's own count, or what the last one wrote down.
    #[must_use]
    pub fn metered(&self) -> UsageTotals {
        match &self.state().listens {
            Some(listens) => listens.proxy.metered(),
            None => state_file::read(&self.meter()).ok().flatten().unwrap_or_default(),
        }
    }

    /// Writes down what was used, for the next process.
    pub fn note(&self) {
        self.note_of(&mut self.state());
    }

    fn note_of(&self, state: &mut ProxyState) {
        let Some(listens) = &state.listens else { return };
        let metered = listens.proxy.metered();
        // Without a record the sandbox is removed, and what it used does not count for the next one.
        if metered == state.noted || matches!(self.dir.record(), Ok(None)) {
            return;
        }
        match state_file::write(&self.meter(), &metered) {
            Ok(()) => state.noted = metered,
            Err(err) => tracing::warn!(%err, "what a sandbox used cannot be written down"),
        }
    }

    /// The sandbox is removed: the next one with its key begins at zero, and what the user allowed ends with it.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn forget(&self) -> Result<()> {
        state_file::remove(&self.dir.approvals())?;
        state_file::remove(&self.meter())
    }

    /// Closes the proxy of this process.
    pub fn close(&self) {
        let mut state = self.state();
        self.note_of(&mut state);
        (state.listens, state.link, state.at) = (None, None, None);
    }

    fn meter(&self) -> PathBuf {
        self.dir.root().join("metered.json")
    }

    fn proxy(&self) -> Result<Proxy> {
        let dir = self.dir.clone();
        let proxy = Proxy::new(ProxySettings {
            log: Some(self.dir.root().join("proxy.jsonl")),
            observer: self.listeners.observer.clone(),
            approvals: self.listeners.approvals.clone(),
            already: self.metered_before()?,
            tokens: Some(Arc::new(move || tokens(&dir))),
            // Without destinations, there is no TLS to end.
            authority: self.grants.egress.as_ref().map(|_| self.dir.authority()).transpose()?,
            record: self.record.clone(),
            replay: self.replay.clone(),
            ..ProxySettings::new(self.dir.key().as_str())
        })?;
        let tokens = tokens(&self.dir).unwrap_or_default();
        proxy.grant(Some(Grants { tokens, ..self.grants.clone() }));
        Ok(proxy)
    }

    /// What was used before; nothing if its record is damaged.
    ///
    /// # Errors
    /// `newer_version` for a record that a newer version wrote: its limits would begin again.
    fn metered_before(&self) -> Result<UsageTotals> {
        match state_file::read(&self.meter()) {
            Ok(totals) => Ok(totals.unwrap_or_default()),
            Err(err) if err.code == Code::NewerVersion => Err(err),
            Err(_) => Ok(UsageTotals::default()),
        }
    }
}

/// Checks until this process listens for good, or the sandbox is unused.
async fn watch_listener(proxy: Weak<SandboxProxy>) {
    loop {
        tokio::time::sleep(LOOKS).await;
        let Some(proxy) = proxy.upgrade() else { return };
        let mut state = proxy.state();
        if state.uses > 0 {
            proxy.keep(&mut state);
        }
        if state.uses == 0 || proxy.is_settled(&state) {
            state.looks = false;
            return;
        }
    }
}

/// Writes down what is used, for as long as the sandbox is in use.
async fn note_usage(proxy: Weak<SandboxProxy>) {
    loop {
        tokio::time::sleep(NOTES).await;
        let Some(proxy) = proxy.upgrade() else { return };
        let mut state = proxy.state();
        if state.uses == 0 {
            state.notes = false;
            return;
        }
        proxy.note_of(&mut state);
    }
}

/// What the host remembers of the container's tokens. A record that cannot be read grants nothing.
fn tokens(dir: &SandboxDir) -> Option<Tokens> {
    let ready = dir.record().ok().flatten()?.ready?;
    Some(Tokens { llm: ready.llm, net: Some(ready.net) })
}

/// A use of a sandbox's way out.
#[derive(Debug)]
pub struct ProxyLease(Arc<SandboxProxy>);

impl ProxyLease {
    /// Waits until the requests that have ended are in the record, if this process listens and records.
    pub async fn flush_record(&self) {
        let proxy = self.0.state().listens.as_ref().map(|it| it.proxy.clone());
        if let Some(proxy) = proxy {
            proxy.flush_record().await;
        }
    }

    /// Ends all connections, and waits until their requests are in the record.
    pub async fn end_record(&self) {
        let proxy = self.0.state().listens.as_ref().map(|it| it.proxy.clone());
        if let Some(proxy) = proxy {
            proxy.end_record().await;
        }
    }
}

impl Drop for ProxyLease {
    fn drop(&mut self) {
        let mut state = self.0.state();
        state.uses -= 1;
        if state.uses == 0 {
            self.0.note_of(&mut state);
            (state.listens, state.link, state.at) = (None, None, None);
        }
    }
}

#[cfg(test)]
mod tests;
