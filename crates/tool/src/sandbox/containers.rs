//! The container of one sandbox, made and kept by `lifecycle`.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_lifecycle::{
    EndOptions, EndReason, EnsureRequest, Reason, SavePolicy, SessionContainers, SlotError, SlotRole,
};
use coracle_runtime::ContainerName;
use coracle_sandbox as sandbox;
use coracle_sandbox::worktree::{SaveTo, SharedDir};
use coracle_sandbox::{Because, Containers, Held, Look, SandboxDir, SandboxKey};

use super::own_network::OwnNetwork;
use super::plan::Plan;
use crate::context::Context;
use crate::failure::{Failure, slot_failure};

/// To stop and remove one takes no longer.
const WITHIN: Duration = Duration::from_secs(30);

/// The container of one sandbox.
#[derive(Clone)]
pub(crate) struct SandboxContainers {
    cx: Context,
    slots: SessionContainers,
    session: ContainerName,
    plan: Plan,
    /// The directory of its proxy's sockets, which is there.
    sockets: PathBuf,
    /// Its files on this host, where they are shared.
    shared: Option<SharedDir>,
    /// The network that it is alone on, where its proxy is reached by one.
    network: OwnNetwork,
}

impl fmt::Debug for SandboxContainers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SandboxContainers").field("session", &self.session).finish_non_exhaustive()
    }
}

impl SandboxContainers {
    pub(super) fn new(cx: &Context, dir: &SandboxDir, plan: Plan, shared: Option<SharedDir>) -> Result<Self, Failure> {
        let session = session_of(dir.key())?;
        let network = OwnNetwork::of(cx, dir, &session)?;
        Ok(Self {
            cx: cx.clone(),
            slots: cx.session_containers()?,
            session,
            plan,
            sockets: dir.sockets(),
            shared,
            network,
        })
    }

    /// Where work of this container is saved.
    pub(super) fn save_to(&self) -> Result<SaveTo, Failure> {
        let manifest = self.slots.manifest(&self.session, SlotRole::Sandbox);
        let manifest = manifest.ok_or_else(|| Failure::internal("a sandbox that is open has no record"))?;
        let dir = self.cx.state()?.root().join("saved").join(manifest.container.as_str());
        let manifest = serde_json::to_value(manifest).ok().and_then(|it| it.as_object().cloned()).unwrap_or_default();
        Ok(SaveTo { dir, manifest })
    }

    async fn ready(&self) -> Result<Held, Failure> {
        let tell = self.cx.teller();
        // Before anything is made: files of the host are allowed, and there.
        self.plan.allow(&self.cx)?;
        let shared = match &self.shared {
            Some(dir) => Some(dir.prepare().await?),
            None => None,
        };
        let hash = self.plan.hash(shared.as_deref());
        let own = self.plan.internal();
        let plan = |_| async move {
            let network = match own {
                Some(internal) => Some(self.network.ensure(&self.cx, internal).await?),
                None => None,
            };
            self.plan.template(&self.cx, (&self.sockets, network)).await.map_err(Into::into)
        };
        // No process is its owner: it ends when it is told to, or is not used for long.
        let ask = EnsureRequest {
            session: &self.session,
            role: SlotRole::Sandbox,
            spec_hash: &hash,
            user: self.plan.agent().0,
            rootless: self.cx.config.is_strict(),
            owner: None,
            tell: &*tell,
        };
        let ready = match self.slots.ensure(self.cx.engines(), ask, plan).await {
            // A removal was begun, when all was saved, and whoever began it is dead: it is finished first.
            Err(SlotError::Ended(_)) => {
                Box::pin(self.take_away(Because::Asked)).await?;
                self.slots.ensure(self.cx.engines(), ask, plan).await
            }
            ready => ready,
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(err) => {
                if own.is_some() {
                    self.drop_network().await;
                }
                return Err(slot_failure(err));
            }
        };
        let between = match &ready.slot.container_id {
            Some(id) if own.is_some() => self.network.between(&self.cx, (id.clone(), ready.slot.generation)).await?,
            _ => None,
        };
        Ok(Held {
            between,
            link: ready.link.clone(),
            id: ready.slot.container_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            image_id: ready.slot.image_id.as_ref().map(ToString::to_string),
            generation: ready.slot.generation,
            recreated: ready.news.as_ref().map(|it| it.reason.as_str().to_owned()),
            spec_pending: ready.spec_pending,
            in_use: Arc::new(ready),
        })
    }

    /// No container is on it any more.
    async fn drop_network(&self) {
        if let Err(err) = self.network.remove(&self.cx).await {
            tracing::warn!(session = %self.session, err = err.message, "the network of a sandbox stays");
        }
    }

    /// Takes container and volume away.
    async fn take_away(&self, because: Because) -> Result<(), Failure> {
        let tell = self.cx.teller();
        let reason = match because {
            Because::Asked => EndReason::Command,
            Because::Old => EndReason::Lifetime,
        };
        let grace = self.cx.config.exec.grace.0;
        let ending =
            EndOptions { saving: SavePolicy::Discard, reader: None, grace, within: WITHIN, tell: &*tell, reason };
        let ended = self.slots.end(self.cx.engines(), &self.session, &ending).await;
        // Its key may be wanted again, by the same workflow.
        self.slots.reopen(&self.session);
        let mut ended = ended.map_err(slot_failure)?;
        match ended.failed.pop() {
            Some((.., err)) => Err(slot_failure(err)),
            // The setting may have been another one when it was made.
            None => self.network.remove(&self.cx).await,
        }
    }
}

#[async_trait]
impl Containers for SandboxContainers {
    async fn ensure(&self) -> sandbox::Result<Held> {
        // A task of its own: a container that is being made is for the next call, if this one is withdrawn.
        let own = self.clone();
        let ready = tokio::spawn(async move { own.ready().await }).await;
        ready.map_err(Failure::internal).and_then(|it| it).map_err(|it| of_failure(it.told_to(&self.cx.reader())))
    }

    async fn look(&self) -> sandbox::Result<Look> {
        let all = self.slots.all().map_err(|err| of_failure(slot_failure(err)))?;
        if !all.iter().any(|it| it.session == self.session && it.role == SlotRole::Sandbox) {
            return Ok(Look::Missing);
        }
        let held = self.slots.held_link(&self.session, SlotRole::Sandbox).await;
        Ok(if held.is_some() { Look::Answers } else { Look::Silent })
    }

    async fn discard(&self) -> sandbox::Result<()> {
        let key = (&self.session, SlotRole::Sandbox);
        let discarded = self.slots.discard(self.cx.engines(), key, (None, Reason::NotReady)).await;
        discarded.map_err(|err| of_failure(slot_failure(err)))?;
        self.network.remove(&self.cx).await.map_err(of_failure)
    }

    async fn remove(&self, because: Because) -> sandbox::Result<()> {
        self.take_away(because).await.map_err(of_failure)
    }
}

/// What names the container of a sandbox.
const SESSION: &str = "sbx-";

pub(super) fn session_of(key: &SandboxKey) -> Result<ContainerName, Failure> {
    Ok(ContainerName::parse(format!("{SESSION}{key}"))?)
}

pub(super) fn key_of(session: &ContainerName) -> Option<SandboxKey> {
    SandboxKey::parse(session.as_str().strip_prefix(SESSION)?)
}

/// A failure as `sandbox` tells it.
pub(super) fn of_failure(failure: Failure) -> sandbox::Failure {
    let failure = failure.into_inner();
    sandbox::Failure {
        code: sandbox::Code::Other(failure.code.word()),
        message: failure.message,
        hint: failure.hint,
        retryable: failure.retryable,
        details: failure.details,
    }
}
