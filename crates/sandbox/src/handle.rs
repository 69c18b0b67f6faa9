//! A sandbox as operations use it: its container, its worktrees, and the proxy that this process runs for it.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle_lifecycle::{EndReason, SaveDestination};
use coracle_proxy::UsageTotals;
use coracle_proxy::policy::Grants;
use coracle_proxy::record::RecordSettings;
use coracle_types::{ContainerPath, ProfileName, SandboxWarning};
use coracle_worktrees::create::Worktree;
use coracle_worktrees::remove::{Author, RemoveRequest, SavedWork};
use coracle_worktrees::shared::SharedDir;
use coracle_worktrees::{Workdir, WorktreeManager};

use crate::container::{
    ContainerOptions, ContainerSandboxProvider, ManagedContainer, ProxyLease, ProxyListeners, RunningContainer,
    Sandbox, SandboxLiveness, SandboxProxy, Startup, StartupOptions, Transport,
};
use crate::devcontainer_state::{self, DevcontainerState};
use crate::driver::SandboxDriver;
use crate::record::{SandboxDir, WorkflowClaim};
use crate::services::SandboxServices;
use crate::{Code, Failure, Result, SandboxKey};

/// Time to save the work of a sandbox, its image included. A save that is cut short starts from zero, so a large one
/// needs all of its time at once.
pub const SAVE_TIMEOUT: Duration = Duration::from_secs(600);

/// Who commits in a sandbox.
#[derive(Clone, Debug)]
pub struct GitIdentity {
    /// Name and address.
    pub author: Author,
    /// This host has no identity.
    pub is_fallback: bool,
}

impl GitIdentity {
    /// States the fallback.
    #[must_use]
    pub fn warning(&self) -> Option<SandboxWarning> {
        let Author { name, email } = &self.author;
        let message = format!(
            "this host's git has no `user.name` and `user.email`, so commits inside are by `{name} <{email}>`; \
             `git config --global` sets them for the next sandbox"
        );
        self.is_fallback.then(|| SandboxWarning::new("git_identity_missing", message))
    }
}

/// All that decides what a sandbox is.
#[derive(Debug)]
pub struct SandboxOptions {
    /// Where it is recorded.
    pub dir: SandboxDir,
    /// The profile that its settings are from.
    pub profile: ProfileName,
    /// Creates its worktrees.
    pub worktrees: WorktreeManager,
    /// Its files on this host, where they are shared.
    pub shared: Option<SharedDir>,
    /// How its container is created.
    pub container: ContainerOptions,
    /// What each start of its container needs.
    pub startup: StartupOptions,
    /// What its proxy allows.
    pub grants: Grants,
    /// The record of what its programs request.
    pub record: Option<RecordSettings>,
    /// How its container reaches the proxy.
    pub transport: Transport,
    /// The description of the network for a model.
    pub network: String,
    /// The repository that the grants are for.
    pub repository: Option<String>,
    /// The repository's `devcontainer.json` that it is made of.
    pub devcontainer: Option<Arc<DevcontainerState>>,
    /// Who commits inside.
    pub git_identity: GitIdentity,
}

/// A sandbox that this process uses.
#[derive(Debug)]
pub struct SandboxHandle {
    /// Its key.
    pub key: SandboxKey,
    /// The profile that its settings are from.
    pub profile: ProfileName,
    /// Its container.
    pub sandbox: Sandbox,
    /// The worktrees of its workflows.
    pub worktrees: WorktreeManager,
    /// How its container reaches the proxy.
    pub transport: Transport,
    /// Its files on this host, where they are shared.
    pub shared: Option<SharedDir>,
    /// The repository's `devcontainer.json` that it is made of.
    pub devcontainer: Option<Arc<DevcontainerState>>,
    /// Who commits inside.
    pub git_identity: GitIdentity,
    pub(crate) services: SandboxServices,
    proxy: Arc<SandboxProxy>,
    container: ManagedContainer,
    env: BTreeMap<String, String>,
    network: String,
    repository: Option<String>,
}

/// A sandbox that is ready. It is in use until this is dropped.
#[derive(Debug)]
pub struct OpenSandbox {
    container: RunningContainer,
    _proxy: ProxyLease,
    /// Its files and programs.
    pub inside: Workdir,
}

/// What to save before a sandbox is removed, and where.
#[derive(Debug)]
pub struct FinalSave {
    /// The sandbox, ready.
    pub open: OpenSandbox,
    /// How to save.
    pub request: RemoveRequest,
}

/// The removal of a sandbox without workflows.
#[derive(Debug, Default)]
pub struct SandboxRemoval {
    /// It is removed.
    pub removed: bool,
    /// What was saved of it, beside the work of its workflows.
    pub saved: Vec<SavedWork>,
    /// Its files on this host that stay, since they belong to another user.
    pub kept: Vec<PathBuf>,
}

impl OpenSandbox {
    /// Warnings about its container.
    #[must_use]
    pub fn warnings(&self) -> Vec<SandboxWarning> {
        self.container.info.warnings()
    }

    /// The engine's id of its container.
    #[must_use]
    pub fn container(&self) -> &str {
        &self.container.info.id
    }
}

impl SandboxHandle {
    /// A handle to a sandbox, whose proxy reports refusals to `listeners`. Creates no container.
    ///
    /// # Errors
    /// When its records cannot be used.
    pub fn new(services: &SandboxServices, options: SandboxOptions, listeners: ProxyListeners) -> Result<Self> {
        let SandboxOptions { dir, profile, transport, .. } = options;
        let container = ManagedContainer::new(services, &dir, options.container)?;
        let proxy = SandboxProxy::new(dir.clone(), options.grants, listeners).by(transport).recording(options.record);
        let proxy = Arc::new(proxy);
        let (key, env) = (dir.key().clone(), options.startup.env.clone());
        let startup = Startup::new(dir, profile.clone(), options.startup).with_proxy(proxy.clone());
        Ok(Self {
            key,
            profile,
            sandbox: Sandbox::new(Arc::new(container.clone()), startup),
            worktrees: options.worktrees,
            transport,
            shared: options.shared,
            devcontainer: options.devcontainer,
            git_identity: options.git_identity,
            services: services.clone(),
            proxy,
            container,
            env,
            network: options.network,
            repository: options.repository,
        })
    }

    /// The URL or directory that its repository came from.
    #[must_use]
    pub fn repository(&self) -> Option<&str> {
        self.repository.as_deref()
    }

    /// Drives an agent in it.
    #[must_use]
    pub fn driver(&self) -> SandboxDriver {
        // Every request names its model.
        SandboxDriver::new(Arc::new(self.provider()), "")
    }

    /// Runs programs in it and forwards its ports.
    #[must_use]
    pub fn provider(&self) -> ContainerSandboxProvider {
        let (sandbox, proxy) = (self.sandbox.clone(), self.proxy.clone());
        let provider = ContainerSandboxProvider::new(sandbox, proxy, self.env.clone(), self.network.clone());
        match &self.shared {
            Some(dir) => provider.shared(dir.path().to_owned()),
            None => provider,
        }
    }

    /// Starts the container if needed, with the proxy that it reaches.
    ///
    /// # Errors
    /// Those of [`Sandbox::ensure`].
    pub async fn open(&self) -> Result<OpenSandbox> {
        // The process that ran the proxy may have ended.
        let lease = self.proxy.open()?;
        let container = Box::pin(self.sandbox.ensure()).await?;
        let inside = Workdir {
            key: self.key.to_string(),
            profile: self.profile.clone(),
            link: container.link.clone(),
            agent: self.sandbox.agent(),
            root: ContainerPath::parse("/workspace").map_err(Failure::internal)?,
            shared: self.shared.as_ref().map(|it| it.path().to_owned()),
            git_timeout: self.worktrees.git_timeout(),
        };
        Ok(OpenSandbox { container, _proxy: lease, inside })
    }

    /// Gives commands the names and ports of the workflow in their environment. If workflows share a container, none
    /// can have all of it.
    ///
    /// # Errors
    /// When the guest does not take it.
    pub async fn set_env(&self, open: &OpenSandbox, worktree: &Worktree) -> Result<()> {
        let alone = self.worktrees.remembered(self.key.as_str())?.len() <= 1;
        let own = if alone { worktree.env() } else { BTreeMap::new() };
        self.sandbox.add_env(&open.container, &own).await
    }

    /// What its proxy counted.
    #[must_use]
    pub fn metered(&self) -> UsageTotals {
        self.proxy.metered()
    }

    /// Whether it has neither a container nor files on this host, so nothing that could be lost.
    ///
    /// # Errors
    /// When what is recorded cannot be read.
    pub async fn is_new(&self) -> Result<bool> {
        Ok(!self.has_files() && self.sandbox.liveness().await? == SandboxLiveness::Absent)
    }

    /// Begins a workflow: the sandbox is not removed until the claim is dropped.
    ///
    /// # Errors
    /// `busy` while it is being removed.
    pub async fn begin(&self) -> Result<WorkflowClaim> {
        self.sandbox.dir().begin().await
    }

    /// Removes container, volume and proxy, unless it has a workflow or one begins.
    ///
    /// # Errors
    /// `teardown_incomplete`, `save_failed`.
    pub async fn release(&self, save: Option<&FinalSave>) -> Result<SandboxRemoval> {
        // Decided and done under one lock: a workflow that begins meanwhile waits, and finds no sandbox.
        match self.sandbox.dir().end().await? {
            Some(claim) => self.release_claimed(&claim, save, EndReason::Command).await,
            None => Ok(SandboxRemoval::default()),
        }
    }

    /// As [`release`](Self::release), for a caller that holds [`SandboxDir::end`].
    ///
    /// # Errors
    /// `teardown_incomplete`, `save_failed`.
    pub async fn release_claimed(
        &self,
        _: &WorkflowClaim,
        save: Option<&FinalSave>,
        reason: EndReason,
    ) -> Result<SandboxRemoval> {
        if !self.worktrees.remembered(self.key.as_str())?.is_empty() {
            return Ok(SandboxRemoval::default());
        }
        let saved = match save {
            Some(FinalSave { open, request }) => {
                let saved = tokio::time::timeout(SAVE_TIMEOUT, self.worktrees.save_rest(&open.inside, request)).await;
                let late = |_| Failure::new(Code::TeardownIncomplete, "what it holds could not be saved in time");
                saved.map_err(late)??
            }
            None => Vec::new(),
        };
        self.proxy.close();
        self.sandbox.remove(reason).await?;
        devcontainer_state::forget(self.sandbox.dir())?;
        self.proxy.forget()?;
        let kept = match &self.shared {
            Some(dir) => dir.remove().await?,
            None => Vec::new(),
        };
        // Last: while the repository is recorded, a removal that was cut short is found and finished.
        self.forget_repository()?;
        Ok(SandboxRemoval { removed: true, saved, kept })
    }

    /// Whether its container is gone and a repository without workflow is recorded: a removal was cut short, or a start
    /// failed.
    ///
    /// # Errors
    /// When records cannot be read.
    pub async fn has_stale_repository(&self) -> Result<bool> {
        let key = self.key.as_str();
        let stale = self.worktrees.repository(key)?.is_some() && self.worktrees.remembered(key)?.is_empty();
        Ok(stale && self.is_new().await?)
    }

    /// Neither this host nor an engine has a container of it.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn is_gone(&self) -> Result<bool> {
        Ok(!self.container.recall().await?)
    }

    /// Restores a lost record of its container.
    ///
    /// # Errors
    /// When the engine does not answer.
    pub async fn recall(&self) -> Result<()> {
        self.container.recall().await.map(drop)
    }

    /// Forgets its repository: the next sandbox with its key may have another one.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn forget_repository(&self) -> Result<()> {
        self.worktrees.forget_repository(self.key.as_str())
    }

    /// Whether it has a repository on this host, where files are shared.
    #[must_use]
    pub fn has_files(&self) -> bool {
        self.shared.as_ref().is_some_and(|it| it.path().join("repo.git").is_dir())
    }

    /// Its files on this host, where they are shared.
    #[must_use]
    pub fn shared_at(&self) -> Option<String> {
        self.shared.as_ref().map(|it| it.path().display().to_string())
    }

    /// Where work that it alone has is saved.
    ///
    /// # Errors
    /// Its container has no record.
    pub fn save_to(&self) -> Result<SaveDestination> {
        self.container.save_to()
    }
}
