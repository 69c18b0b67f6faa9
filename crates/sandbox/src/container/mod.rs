//! The container of a sandbox, ready for use (sandbox.md 1.3).
//!
//! **Invariant:** nobody gets a container whose start was not tested: what is remembered says `proven` after the last step.
//! **Invariant:** the host keeps no token, only what it needs to know one again.

mod breaker;
mod gate;
mod prepare;
mod provider;
mod record;

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_runtime::Secret;

use self::breaker::Breaker;
pub use self::gate::Gate;
pub use self::prepare::Preparing;
use self::prepare::{give_env, not_ready, prepare};
pub use self::provider::ContainerSandboxProvider;
pub use self::record::{Prepared, SandboxDir, SandboxRecord};
use crate::{Code, Containers, Held, Look, ProfileName, Result, TokenHash, fresh_token};

/// A sandbox: its container, and what is remembered of it.
#[derive(Clone, Debug)]
pub struct Sandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    containers: Arc<dyn Containers>,
    dir: SandboxDir,
    profile: ProfileName,
    preparing: Preparing,
    breaker: Breaker,
    /// Held by whoever makes the container ready, so that calls which begin together look once.
    door: tokio::sync::Mutex<()>,
}

impl Sandbox {
    /// The one of that directory.
    #[must_use]
    pub fn new(containers: Arc<dyn Containers>, dir: SandboxDir, profile: ProfileName, preparing: Preparing) -> Self {
        let (breaker, door) = (Breaker::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { containers, dir, profile, preparing, breaker, door }))
    }

    /// Where it is remembered.
    #[must_use]
    pub fn dir(&self) -> &SandboxDir {
        &self.0.dir
    }

    /// Its container, ready for use. Its proxy has to listen already.
    ///
    /// # Errors
    /// `sandbox_not_ready` with the step that failed, `egress_not_enforced`; the container is gone then.
    /// `sandbox_unavailable` after three such in a row. What whoever makes containers says.
    pub async fn ensure(&self) -> Result<Held> {
        let it = &*self.0;
        it.breaker.check()?;
        let _mine = it.door.lock().await;
        let ensured = self.ensure_alone().await;
        if ensured.as_ref().map_or_else(|it| is_of_the_container(&it.code), |_| true) {
            it.breaker.note(&ensured);
        }
        ensured
    }

    async fn ensure_alone(&self) -> Result<Held> {
        let it = &*self.0;
        let held = it.containers.ensure().await?;
        if self.is_proven(&held).await? {
            return Ok(held);
        }
        drop(held);
        let _alone = it.dir.lock().await?;
        // Another process may have been faster, or have given up the one that was there.
        let held = it.containers.ensure().await?;
        if self.is_proven(&held).await? {
            return Ok(held);
        }
        let (key, profile) = (it.dir.key().clone(), it.profile.clone());
        let remember = |ready| it.dir.save(&SandboxRecord { key: key.clone(), profile: profile.clone(), ready });
        let mut given = None;
        let prepared = prepare(&held, &it.preparing, async |prepared| {
            given = Some(prepared.clone());
            remember(Some(prepared))
        });
        match prepared.await {
            Ok(()) => {
                remember(given.map(|it| Prepared { proven: true, ..it }))?;
                Ok(held)
            }
            Err(failure) => {
                remember(None)?;
                drop(held);
                if let Err(err) = it.containers.discard().await {
                    tracing::warn!(key = %it.dir.key(), %err, "a container that is not ready stays");
                }
                Err(failure)
            }
        }
    }

    async fn is_proven(&self, held: &Held) -> Result<bool> {
        let Some(ready) = self.0.dir.record()?.and_then(|it| it.ready).filter(|it| it.proven) else { return Ok(false) };
        let run = held.link.run_id().await.map_err(|err| not_ready("guest", err))?;
        Ok(ready.container == held.id && ready.run == run)
    }

    /// Commands find this in their environment, too, until the container starts again.
    ///
    /// # Errors
    /// When the guest does not take it.
    pub async fn add_env(&self, held: &Held, more: &BTreeMap<String, String>) -> Result<()> {
        let mut env = self.0.preparing.env.clone();
        env.extend(more.clone());
        give_env(&held.link, &env).await
    }

    /// A token for a worker that is about to start. It opens models until [`dismiss_worker`](Self::dismiss_worker), or until the
    /// container starts again.
    ///
    /// # Errors
    /// When what is remembered cannot be read or written.
    pub async fn admit_worker(&self) -> Result<Secret> {
        let token = fresh_token();
        let hash = TokenHash::of(token.reveal());
        self.0.dir.change(|record| record.admit(hash)).await?;
        Ok(token)
    }

    /// The worker with that token is gone.
    ///
    /// # Errors
    /// When what is remembered cannot be read or written.
    pub async fn dismiss_worker(&self, token: &Secret) -> Result<()> {
        let hash = TokenHash::of(token.reveal());
        self.0.dir.change(|record| record.dismiss(&hash)).await
    }

    /// What is known of the container without touching it.
    ///
    /// # Errors
    /// When what is remembered cannot be read.
    pub async fn look(&self) -> Result<Look> {
        self.0.containers.look().await
    }

    /// Container, volume and what is remembered are gone; work was saved before. Goes on after an error.
    ///
    /// # Errors
    /// `teardown_incomplete`; the next call finishes.
    pub async fn remove(&self) -> Result<()> {
        let it = &*self.0;
        let _mine = it.door.lock().await;
        // First nobody gets in any more.
        it.dir.change(|record| record.ready = None).await?;
        it.containers.remove().await.map_err(|err| crate::Failure {
            code: Code::TeardownIncomplete,
            retryable: true,
            message: format!("The sandbox could not be removed whole: {}", err.message),
            ..err
        })?;
        let _alone = it.dir.lock().await?;
        // Another process may have begun anew meanwhile.
        match it.dir.record()? {
            Some(record) if record.ready.is_some() => Ok(()),
            _ => it.dir.forget(),
        }
    }
}

/// Whether a failure tells of the container, and not of who asked.
fn is_of_the_container(code: &Code) -> bool {
    matches!(code, Code::SandboxNotReady | Code::EgressNotEnforced)
}
