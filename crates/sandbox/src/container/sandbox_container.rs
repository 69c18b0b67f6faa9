//! A sandbox: its container, and what is remembered of it.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_lifecycle::EndReason;
use coracle_proxy::token::{TokenHash, fresh_token};
use coracle_types::{Ids, Secret};

use super::circuit_breaker::CircuitBreaker;
use super::startup::{Startup, set_env};
use crate::record::SandboxDir;
use crate::{Code, ContainerSource, Result, RunningContainer, SandboxLiveness};

/// A sandbox: its container, and what is remembered of it.
#[derive(Clone, Debug)]
pub struct Sandbox(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    containers: Arc<dyn ContainerSource>,
    startup: Startup,
    breaker: CircuitBreaker,
    /// Held while a caller makes the container ready, so that calls which begin together look once.
    door: tokio::sync::Mutex<()>,
}

impl Sandbox {
    /// The one whose starts are made ready that way.
    #[must_use]
    pub fn new(containers: Arc<dyn ContainerSource>, startup: Startup) -> Self {
        let (breaker, door) = (CircuitBreaker::default(), tokio::sync::Mutex::default());
        Self(Arc::new(Inner { containers, startup, breaker, door }))
    }

    /// Where it is remembered.
    #[must_use]
    pub fn dir(&self) -> &SandboxDir {
        &self.0.startup.dir
    }

    /// Who owns the files inside and runs every command.
    #[must_use]
    pub fn agent(&self) -> Ids {
        self.0.startup.options.agent
    }

    /// Who workers in it are.
    pub(crate) fn worker(&self) -> Ids {
        self.0.startup.options.worker
    }

    /// What its container must not reach; none where nothing keeps it in.
    pub(crate) fn wall(&self) -> Option<Vec<std::net::IpAddr>> {
        self.0.startup.wall()
    }

    /// Whether it has a network although it has no way out but its proxy.
    pub(crate) fn has_network(&self) -> bool {
        self.0.startup.has_network()
    }

    /// Its container, ready for use. Its proxy has to listen already.
    ///
    /// # Errors
    /// `sandbox_not_ready` with the step that failed, `egress_not_enforced`; the container is gone then.
    /// `sandbox_unavailable` after three such in a row. Errors of the container's creation.
    pub async fn ensure(&self) -> Result<RunningContainer> {
        let it = &*self.0;
        it.breaker.check()?;
        let _mine = it.door.lock().await;
        let ensured = self.ensure_alone().await;
        if ensured.as_ref().map_or_else(|it| is_of_the_container(&it.code), |_| true) {
            it.breaker.note(&ensured);
        }
        ensured
    }

    async fn ensure_alone(&self) -> Result<RunningContainer> {
        let it = &*self.0;
        let held = self.ensure_reachable().await?;
        if self.is_proven(&held).await? {
            return Ok(held);
        }
        drop(held);
        let _alone = it.startup.dir.lock().await?;
        // Another process may have been faster, or have given up the one that was there.
        let held = self.ensure_reachable().await?;
        if self.is_proven(&held).await? {
            return Ok(held);
        }
        let proven = it.startup.prove(&held.link, &held.info.id).await;
        if let Err(failure) = proven {
            drop(held);
            self.discard().await;
            return Err(failure);
        }
        Ok(held)
    }

    async fn discard(&self) {
        let it = &*self.0;
        if let Err(err) = it.containers.discard().await {
            tracing::warn!(key = %it.startup.dir.key(), %err, "a container that is not ready stays");
        }
    }

    async fn ensure_reachable(&self) -> Result<RunningContainer> {
        let held = self.0.containers.ensure().await?;
        self.0.startup.listen_on_link(&held.link)?;
        if let Err(failure) = self.0.startup.check_proxy_address(&held) {
            // It stays on a network on which it cannot be reached. Calls in it came another way, or earlier.
            if !held.info.spec_pending && !is_busy(&held).await {
                drop(held);
                self.discard().await;
            }
            return Err(failure);
        }
        Ok(held)
    }

    async fn is_proven(&self, held: &RunningContainer) -> Result<bool> {
        self.0.startup.is_proven(&held.link, &held.info.id).await
    }

    /// Commands find this in their environment, too, until the container starts again.
    ///
    /// # Errors
    /// When the guest does not take it.
    pub async fn add_env(&self, held: &RunningContainer, more: &BTreeMap<String, String>) -> Result<()> {
        let mut env = self.0.startup.options.env.clone();
        env.extend(more.clone());
        set_env(&held.link, &env).await
    }

    /// A token for a worker that is about to start. It opens models until [`dismiss_worker`](Self::dismiss_worker), or
    /// until the container starts again.
    ///
    /// # Errors
    /// When what is remembered cannot be read or written.
    pub async fn admit_worker(&self) -> Result<Secret> {
        let token = fresh_token();
        let hash = TokenHash::from_token(token.reveal());
        self.0.startup.dir.change(|record| record.admit(hash)).await?;
        Ok(token)
    }

    /// The worker with that token is gone.
    ///
    /// # Errors
    /// When what is remembered cannot be read or written.
    pub async fn dismiss_worker(&self, token: &Secret) -> Result<()> {
        let hash = TokenHash::from_token(token.reveal());
        self.0.startup.dir.change(|record| record.dismiss(&hash)).await
    }

    /// What is known of the container without touching it.
    ///
    /// # Errors
    /// When what is remembered cannot be read.
    pub async fn liveness(&self) -> Result<SandboxLiveness> {
        self.0.containers.liveness().await
    }

    /// Container, volume and what is remembered are gone; work was saved before. Goes on after an error.
    ///
    /// # Errors
    /// `teardown_incomplete`; the next call finishes.
    pub async fn remove(&self, reason: EndReason) -> Result<()> {
        let it = &*self.0;
        let _mine = it.door.lock().await;
        // First, new calls are refused.
        it.startup.dir.change(|record| record.ready = None).await?;
        it.containers.remove(reason).await.map_err(|err| crate::Failure {
            code: Code::TeardownIncomplete,
            retryable: true,
            message: format!("The sandbox could not be removed whole: {}", err.message),
            ..err
        })?;
        let _alone = it.startup.dir.lock().await?;
        // Another process may have started again meanwhile.
        match it.startup.dir.record()? {
            Some(record) if record.ready.is_some() => Ok(()),
            _ => it.startup.dir.forget(),
        }
    }
}

/// Whether something runs in it. One that does not answer is of no use to anybody.
async fn is_busy(held: &RunningContainer) -> bool {
    held.link.jobs().await.is_ok_and(|it| it.iter().any(|it| it.ended_ms.is_none()))
}

/// Whether a failure is of the container, and not of the call.
fn is_of_the_container(code: &Code) -> bool {
    matches!(code, Code::SandboxNotReady | Code::EgressNotEnforced)
}
