//! The sandboxes that a process uses.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::container::SandboxLiveness;
use crate::handle::SandboxHandle;
use crate::{Failure, SandboxKey};

/// The sandboxes that this process uses, and the runs of agents in them. Clones share both.
#[derive(Clone, Debug, Default)]
pub struct SandboxRegistry(Arc<RegistryState>);

#[derive(Debug, Default)]
struct RegistryState {
    handles: Mutex<BTreeMap<SandboxKey, Arc<SandboxHandle>>>,
    /// Runs that outlive the call that started them.
    runs: TaskTracker,
    /// Ends them.
    cancel: CancellationToken,
}

impl SandboxRegistry {
    /// The sandbox with that key. The first use creates its handle.
    ///
    /// # Errors
    /// Those of `create`.
    pub async fn get_or_create<E>(
        &self,
        key: &SandboxKey,
        create: impl Future<Output = Result<SandboxHandle, E>>,
    ) -> Result<Arc<SandboxHandle>, E> {
        let mut handles = self.0.handles.lock().await;
        if let Some(handle) = handles.get(key) {
            return Ok(handle.clone());
        }
        let handle = Arc::new(create.await?);
        handles.insert(key.clone(), handle.clone());
        Ok(handle)
    }

    /// Records the repository of a workflow that begins. `false` if the handle does not know it, and has to be created
    /// again: git inside reaches it from the first start on.
    ///
    /// # Errors
    /// `invalid_input` for a sandbox with another repository.
    pub async fn claim_repository(&self, handle: &SandboxHandle, source: &str) -> Result<bool, Failure> {
        let new = handle.sandbox.liveness().await? == SandboxLiveness::Absent;
        handle.worktrees.want_repository(handle.key.as_str(), source, new).await?;
        let repository = handle.worktrees.repository(handle.key.as_str())?;
        let known = !new || handle.repository() == repository.as_deref();
        let latest = self.0.handles.lock().await.get(&handle.key).cloned();
        // Another call, or another process, may have recorded it first: earlier handles do not know it.
        if !known && latest.is_none_or(|it| it.repository() != repository.as_deref()) {
            self.forget(&handle.key).await;
        }
        Ok(known)
    }

    /// Forgets the handle of a sandbox that was removed, or has other settings now.
    pub async fn forget(&self, key: &SandboxKey) {
        self.0.handles.lock().await.remove(key);
    }

    /// Removes a sandbox in which a start failed: without a workflow nothing else would remove it. Nothing of it is saved,
    /// so one that was not [new](SandboxHandle::is_new) before the start stays: it may hold unsaved work.
    pub async fn give_up(&self, handle: &SandboxHandle, was_new: bool) {
        if !was_new {
            return;
        }
        match handle.release(None).await {
            Ok(removal) if removal.removed => self.forget(&handle.key).await,
            Ok(_) => {}
            Err(err) => tracing::warn!(%err.message, "a sandbox that was not used stays"),
        }
    }

    /// Runs something that outlives the call, until [`shut_down`](Self::shut_down).
    pub fn spawn<F>(&self, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.runs.spawn(run(self.0.cancel.clone()));
    }

    /// Ends all runs, and waits for that.
    pub async fn shut_down(&self) {
        self.0.cancel.cancel();
        self.0.runs.close();
        self.0.runs.wait().await;
    }
}
