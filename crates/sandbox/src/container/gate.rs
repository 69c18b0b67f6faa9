//! The proxy of one sandbox in this process, if no other one keeps it already.
//!
//! Sockets lie in a directory that the container sees. Whichever process comes first listens there; when it ends, so does
//! every way out, until the next process that uses the sandbox takes its place.

use std::fmt;
use std::fs::{File, TryLockError};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use super::record::SandboxDir;
use crate::proxy::{Grants, Listening, Metered, Observer, Proxy, ProxySettings, Tokens};
use crate::{Failure, Result, files};

/// The way out of a sandbox.
pub struct Gate {
    dir: SandboxDir,
    /// What the container may do, apart from its tokens.
    grants: Grants,
    observer: Option<Observer>,
    kept: Mutex<Option<Kept>>,
}

/// As long as this is there, this process is the one that listens.
struct Kept {
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

    /// Sees to it that somebody listens: this process, unless another one does.
    ///
    /// # Errors
    /// When the sockets cannot be made.
    pub fn open(&self) -> Result<()> {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if kept.is_some() {
            return Ok(());
        }
        let Some(mine) = self.take()? else { return Ok(()) };
        let proxy = self.proxy()?;
        let listening = Listening::open(&proxy, &self.dir.sockets()).map_err(Failure::internal)?;
        *kept = Some(Kept { proxy, _listening: listening, _mine: mine });
        Ok(())
    }

    /// Tells of what the container used: this process's own count, or what the last one wrote down.
    #[must_use]
    pub fn metered(&self) -> Metered {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        match &*kept {
            Some(kept) => kept.proxy.metered(),
            None => files::read(&self.meter()).ok().flatten().unwrap_or_default(),
        }
    }

    /// Writes down what was used, for the next process.
    pub fn note(&self) {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(kept) = &*kept
            && let Err(err) = files::write(&self.meter(), &kept.proxy.metered())
        {
            tracing::warn!(%err, "what a sandbox used cannot be written down");
        }
    }

    /// Nobody gets out any more by this process.
    pub fn close(&self) {
        self.note();
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = None;
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

/// What the host remembers of the container's tokens. A record that cannot be read grants nothing.
fn tokens(dir: &SandboxDir) -> Option<Tokens> {
    let ready = dir.record().ok().flatten()?.ready?;
    Some(Tokens { llm: ready.llm, net: Some(ready.net) })
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.note();
    }
}
