//! The container of one sandbox, created and recorded by `lifecycle`.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_lifecycle::{
    BoxError, ContainerTemplate, EndOptions, EndReason, EnsureRequest, Error, Reason, SaveDestination, SavePolicy,
    SlotError, SlotKey, SlotRole,
};
use coracle_runtime::{Policy, PolicyRefusal};
use coracle_types::{ContainerName, Ids, NetworkName};
use coracle_worktrees::shared::SharedDir;

use super::private_network::PrivateNetwork;
use super::source::{ContainerSource, RunningContainer, SandboxLiveness};
use crate::provider::SandboxInfo;
use crate::services::{SandboxServices, session_of};
use crate::{Failure, Result, SandboxDir};

/// Time to stop and remove a container.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(30);

/// Says what a new container is made of. The network is the private one that it joins, if it has one.
pub type TemplateSource =
    Arc<dyn Fn(Option<NetworkName>) -> Pin<Box<dyn Future<Output = TemplateResult> + Send>> + Send + Sync>;

/// The template of a container, or why there is none, in the words of the caller.
pub type TemplateResult = Result<ContainerTemplate, BoxError>;

/// How the container of a sandbox is created.
#[derive(Clone)]
pub struct ContainerOptions {
    /// All settings that decide what the container is. A container with other settings is replaced.
    pub settings: String,
    /// The user that runs commands.
    pub user: Ids,
    /// No process in it is root.
    pub rootless: bool,
    /// It joins a private network; `true` for one without a way out.
    pub private_network: Option<bool>,
    /// Its files on this host, where they are shared.
    pub shared: Option<SharedDir>,
    /// Decides whether `shared` is allowed.
    pub policy: Policy,
    /// Time between TERM and KILL when it ends.
    pub grace: Duration,
    /// What a new container is made of.
    pub template: TemplateSource,
}

impl fmt::Debug for ContainerOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ContainerOptions").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// The container of one sandbox.
#[derive(Clone, Debug)]
pub(crate) struct ManagedContainer {
    services: SandboxServices,
    session: ContainerName,
    options: Arc<ContainerOptions>,
    network: PrivateNetwork,
}

impl ManagedContainer {
    pub(crate) fn new(services: &SandboxServices, dir: &SandboxDir, options: ContainerOptions) -> Result<Self> {
        let session = session_of(dir.key())?;
        let network = PrivateNetwork::new(services, &session)?;
        Ok(Self { services: services.clone(), session, options: Arc::new(options), network })
    }

    fn key(&self) -> SlotKey<'_> {
        SlotKey::new(&self.session, SlotRole::Sandbox)
    }

    /// Where its work is saved.
    pub(crate) fn save_to(&self) -> Result<SaveDestination> {
        let to = self.services.containers.save_destination(self.key());
        to.ok_or_else(|| Failure::internal("a sandbox that is open has no record"))
    }

    /// Whether the engine has a container of it. Restores its record if that is lost.
    pub(crate) async fn recall(&self) -> Result<bool> {
        let (containers, key) = (&self.services.containers, self.key());
        containers.recall(&*self.services.engines, key).await.map_err(|err| self.services.failure(err))
    }

    /// The policy may have changed since the directory was shared.
    fn check_shared_dir(&self) -> Result<(), Error> {
        let problem =
            self.options.shared.as_ref().and_then(|it| self.options.policy.host_path_problem("mount", it.path()));
        problem.map_or(Ok(()), |it| Err(PolicyRefusal { problems: vec![it] }.into()))
    }

    async fn running(&self) -> Result<RunningContainer> {
        let (services, options) = (&self.services, &*self.options);
        // Before anything is created: files of the host are allowed, and there.
        self.check_shared_dir().map_err(|err| services.failure(err))?;
        let shared = match &options.shared {
            Some(dir) => Some(dir.prepare().await?),
            None => None,
        };
        let hash = spec_hash(&options.settings, shared.as_deref());
        let template = |_| async {
            let network = match options.private_network {
                Some(internal) => Some(self.network.ensure(internal).await?),
                None => None,
            };
            (options.template)(network).await
        };
        // It has no owner: it ends on request, or when it is not used for long.
        let request = EnsureRequest {
            session: &self.session,
            role: SlotRole::Sandbox,
            spec_hash: &hash,
            user: options.user,
            rootless: options.rootless,
            owner: None,
            observer: &*services.on_event,
        };
        let ready = match services.containers.ensure(&*services.engines, request, template).await {
            // A process that removed it was killed after it had saved all: the removal is finished first.
            Err(SlotError::Ended(_)) => {
                Box::pin(self.end(EndReason::Command)).await?;
                services.containers.ensure(&*services.engines, request, template).await
            }
            ready => ready,
        };
        let ready = match ready {
            Ok(ready) => ready,
            Err(err) => {
                if options.private_network.is_some() {
                    self.drop_network().await;
                }
                return Err(services.failure(err));
            }
        };
        self.running_container(ready).await
    }

    async fn running_container(&self, ready: coracle_lifecycle::Ready) -> Result<RunningContainer> {
        let slot = &ready.slot;
        let info = SandboxInfo {
            id: slot.container_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            image_id: slot.image_id.as_ref().map(ToString::to_string).unwrap_or_default(),
            generation: slot.generation.into(),
            recreated: ready.replacement.as_ref().map(|it| it.reason.as_str().to_owned()),
            spec_pending: ready.spec_pending,
        };
        let subnet = match &slot.container_id {
            Some(id) if self.options.private_network.is_some() => self.network.subnet(id, info.generation).await,
            _ => Ok(None),
        };
        let subnet = subnet.map_err(|err| self.services.failure(err))?;
        Ok(RunningContainer { link: ready.link.clone(), info, subnet, lease: Some(Arc::new(ready)) })
    }

    /// Removes the network of a container that was not created.
    async fn drop_network(&self) {
        if let Err(err) = self.network.remove().await {
            tracing::warn!(session = %self.session, %err, "the network of a sandbox stays");
        }
    }

    async fn end(&self, reason: EndReason) -> Result<()> {
        let services = &self.services;
        let ending = EndOptions {
            saving: SavePolicy::Discard,
            reader: None,
            grace: self.options.grace,
            within: REMOVE_TIMEOUT,
            observer: &*services.on_event,
            reason,
        };
        let ended = services.containers.end(&*services.engines, &self.session, &ending).await;
        // The same workflow may use the key again.
        services.containers.reopen(&self.session);
        let ended = ended.and_then(|mut it| it.failed.pop().map_or(Ok(()), |(.., err)| Err(err)));
        ended.map_err(|err| services.failure(err))?;
        // It may have one although the present settings ask for none.
        self.network.remove().await.map_err(|err| services.failure(err))
    }
}

/// Identifies the settings of a container. `shared` identifies the directory that is mounted: one that was replaced is
/// not what the container has.
fn spec_hash(settings: &str, shared: Option<&str>) -> String {
    use sha2::{Digest as _, Sha256};
    hex::encode(Sha256::digest(format!("{settings}{}", shared.unwrap_or_default())))
}

#[async_trait]
impl ContainerSource for ManagedContainer {
    async fn ensure(&self) -> Result<RunningContainer> {
        // A task of its own: the next call uses a container whose creation outlived a withdrawn call.
        let own = self.clone();
        let running = tokio::spawn(async move { own.running().await }).await;
        running.map_err(|err| self.services.failure(SlotError::Plan(Box::new(err))))?
    }

    async fn liveness(&self) -> Result<SandboxLiveness> {
        let containers = &self.services.containers;
        let all = containers.all().map_err(|err| self.services.failure(err))?;
        if !all.iter().any(|it| it.session == self.session && it.role == SlotRole::Sandbox) {
            return Ok(SandboxLiveness::Absent);
        }
        let link = containers.held_link(self.key()).await;
        Ok(if link.is_some() { SandboxLiveness::Ready } else { SandboxLiveness::Unresponsive })
    }

    async fn discard(&self) -> Result<()> {
        let (services, key) = (&self.services, self.key());
        let discarded = services.containers.discard(&*services.engines, key, Reason::NotReady, None).await;
        discarded.map_err(|err| services.failure(err))?;
        self.network.remove().await.map_err(|err| services.failure(err))
    }

    async fn remove(&self, reason: EndReason) -> Result<()> {
        self.end(reason).await
    }
}
