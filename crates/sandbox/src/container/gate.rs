//! The proxy of one sandbox in this process, if no other one keeps it already.
//!
//! Sockets lie in a directory that the container sees. Whichever process comes first listens there, for as long as it uses the
//! sandbox: another one may know a key that this one does not. With the last use every way out is gone, until the next one.

use std::fmt;
use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use super::record::SandboxDir;
use crate::proxy::{Grants, Listening, Metered, Observer, Proxy, ProxySettings, Tokens};
use crate::{Failure, Result, files};

/// How often it is looked whether the one that listens has ended.
const LOOKS: Duration = Duration::from_millis(500);

/// The way out of a sandbox.
pub struct Gate {
    dir: SandboxDir,
    /// What the container may do, apart from its tokens.
    grants: Grants,
    observer: Option<Observer>,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    uses: usize,
    /// Somebody looks whether the one that listens has ended.
    waits: bool,
    listens: Option<Listens>,
}

/// As long as this is there, this process is the one that listens.
struct Listens {
    proxy: Proxy,
    _listening: Listening,
    _mine: File,
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("key", self.dir.key()).finish_non_exhaustive()
    }
}

impl Gate {
    /// That of a sandbox, closed.
    #[must_use]
    pub fn new(dir: SandboxDir, grants: Grants, observer: Option<Observer>) -> Self {
        Self { dir, grants, observer, kept: Mutex::default() }
    }

    /// Sees to it that somebody listens as long as the answer is held: this process, unless another one does, whose place it
    /// takes when that ends.
    ///
    /// # Errors
    /// When the sockets cannot be made.
    pub fn open(self: &Arc<Self>) -> Result<InUse> {
        let mut kept = self.kept();
        self.listen(&mut kept)?;
        if kept.listens.is_none() && !kept.waits {
            kept.waits = true;
            tokio::spawn(take_over(Arc::downgrade(self)));
        }
        kept.uses += 1;
        Ok(InUse(Arc::clone(self)))
    }

    fn listen(&self, kept: &mut Kept) -> Result<()> {
        if kept.listens.is_none()
            && let Some(mine) = self.take()?
        {
            let proxy = self.proxy()?;
            let listening = Listening::open(&proxy, &self.dir.sockets()).map_err(Failure::internal)?;
            kept.listens = Some(Listens { proxy, _listening: listening, _mine: mine });
        }
        Ok(())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells of what the container used: this process's own count, or what the last one wrote down.
    #[must_use]
    pub fn metered(&self) -> Metered {
        match &self.kept().listens {
            Some(listens) => listens.proxy.metered(),
            None => files::read(&self.meter()).ok().flatten().unwrap_or_default(),
        }
    }

    /// Writes down what was used, for the next process.
    pub fn note(&self) {
        self.note_of(&self.kept());
    }

    fn note_of(&self, kept: &Kept) {
        if let Some(listens) = &kept.listens
            && let Err(err) = files::write(&self.meter(), &listens.proxy.metered())
        {
            tracing::warn!(%err, "what a sandbox used cannot be written down");
        }
    }

    /// Nobody gets out any more by this process.
    pub fn close(&self) {
        let mut kept = self.kept();
        self.note_of(&kept);
        kept.listens = None;
    }

    fn meter(&self) -> PathBuf {
        self.dir.root().join("metered.json")
    }

    /// The lock of the one that listens, unless another process has it.
    fn take(&self) -> Result<Option<File>> {
        let mut options = File::options();
        let options = options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let file = options.open(self.dir.root().join("proxy.lock")).map_err(Failure::internal)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(file)),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(err)) => Err(Failure::internal(err)),
        }
    }

    fn proxy(&self) -> Result<Proxy> {
        let dir = self.dir.clone();
        let proxy = Proxy::new(ProxySettings {
            log: Some(self.dir.root().join("proxy.jsonl")),
            observer: self.observer.clone(),
            already: self.metered_before(),
            tokens: Some(Arc::new(move || tokens(&dir))),
            ..ProxySettings::new(self.dir.key().as_str())
        })?;
        let tokens = tokens(&self.dir).unwrap_or_default();
        proxy.grant(Some(Grants { tokens, ..self.grants.clone() }));
        Ok(proxy)
    }

    fn metered_before(&self) -> Metered {
        files::read(&self.meter()).ok().flatten().unwrap_or_default()
    }
}

/// Looks until this process listens, or nobody uses the sandbox any more.
async fn take_over(gate: Weak<Gate>) {
    loop {
        tokio::time::sleep(LOOKS).await;
        let Some(gate) = gate.upgrade() else { return };
        let mut kept = gate.kept();
        if kept.uses > 0
            && let Err(err) = gate.listen(&mut kept)
        {
            tracing::warn!(%err, "the way out of a sandbox cannot be kept");
        }
        if kept.uses == 0 || kept.listens.is_some() {
            kept.waits = false;
            return;
        }
    }
}

/// What the host remembers of the container's tokens. A record that cannot be read grants nothing.
fn tokens(dir: &SandboxDir) -> Option<Tokens> {
    let ready = dir.record().ok().flatten()?.ready?;
    Some(Tokens { llm: ready.llm, net: Some(ready.net) })
}

/// A use of a sandbox's way out.
#[derive(Debug)]
pub struct InUse(Arc<Gate>);

impl Drop for InUse {
    fn drop(&mut self) {
        let mut kept = self.0.kept();
        kept.uses -= 1;
        if kept.uses == 0 {
            self.0.note_of(&kept);
            kept.listens = None;
        }
    }
}
