//! A sandbox as operations use it: its container, its worktrees, and the proxy that this process keeps for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;
use std::sync::Arc;

use coracle_lifecycle::SlotRole;
use coracle_runtime::{ContainerPath, Ids};
use coracle_sandbox::driver::SandboxDriver;
use coracle_sandbox::proxy::{GitRules, PROXY_ENV, ROUTES_ENV};
use coracle_sandbox::worktree::{Inside, RemoveAsk, SaveTo, SavedWork, SharedDir, Worktree, WorktreeSettings};
use coracle_sandbox::{
    AtStart, Because, Claim, ContainerSandboxProvider, Domain, Gate, Held, InUse, Look, Preparing, ProfileName,
    Readying, Sandbox, SandboxDir, SandboxKey, Transport, WORKER, Warning, WorkflowId, WorktreeManager,
};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::containers::{SandboxContainers, session_of};
use super::devcontainer::{self, Told, Worn};
use super::grants::{grants, network};
use super::identity::GitIdentity;
use super::plan::Plan;
use super::sandboxes;
use super::teardown::SAVING;
use crate::config::{SandboxNetwork, SandboxProfile};
use crate::context::Context;
use crate::egress::{self, HostCertificates};
use crate::failure::{Code, Failure, slot_failure};
use crate::preflight::ensure_ready;

/// The sandboxes that this process uses. Clones are handles to the same.
#[derive(Clone, Debug, Default)]
pub struct Homes(Arc<Used>);

#[derive(Debug, Default)]
struct Used {
    all: Mutex<BTreeMap<SandboxKey, Arc<Home>>>,
    /// Runs that go on after the call that began them.
    runs: TaskTracker,
    /// Ends them.
    cancel: CancellationToken,
}

/// A sandbox that this process uses.
#[derive(Debug)]
pub struct Home {
    pub(crate) key: SandboxKey,
    pub(crate) sandbox: Sandbox,
    /// The worktrees of its workflows.
    pub worktrees: WorktreeManager,
    gate: Arc<Gate>,
    /// What commands find in their environment, and what a model is told of the network.
    told: (BTreeMap<String, String>, String),
    plan: Plan,
    containers: SandboxContainers,
    shared: Option<SharedDir>,
    /// Its repository, as it was known when its way out was decided.
    repository: Option<String>,
    /// What its repository says that it is made of.
    pub(super) worn: Option<Arc<Worn>>,
    /// Who commits inside.
    pub(crate) git_identity: GitIdentity,
}

/// What a sandbox takes from the host that it is made on.
struct Surroundings {
    transport: Transport,
    git_identity: GitIdentity,
}

/// What became of a sandbox whose last workflow went.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// It is gone.
    pub(crate) removed: bool,
    /// What was saved of it, beside the work of its workflows.
    pub(crate) saved: Vec<SavedWork>,
    /// What stays of its files on this host, since it is somebody else's.
    pub(crate) kept: Vec<PathBuf>,
}

/// A sandbox that is ready, and in use as long as this is held.
#[derive(Debug)]
pub struct Open {
    held: Held,
    _way_out: InUse,
    /// Its files and programs.
    pub inside: Inside,
}

impl Open {
    /// What else there is to tell of the container.
    pub(crate) fn warnings(&self) -> Vec<Warning> {
        self.held.warnings()
    }

    /// The engine's id of its container.
    pub fn container(&self) -> &str {
        &self.held.id
    }
}

impl Homes {
    /// That of a workflow. Makes no container.
    pub async fn of(&self, cx: &Context, profile: &ProfileName, id: &WorkflowId) -> Result<Arc<Home>, Failure> {
        let settings = cx.config.sandbox.profile(profile);
        let domain = settings.domain.clone().map_or_else(|| Domain::Workflow(id.clone()), Domain::Named);
        let endpoint = cx.runtime().await?.endpoint().address;
        self.of_key(cx, SandboxKey::of(profile, &domain, &endpoint), profile).await
    }

    pub(crate) async fn of_key(
        &self,
        cx: &Context,
        key: SandboxKey,
        profile: &ProfileName,
    ) -> Result<Arc<Home>, Failure> {
        let mut homes = self.0.all.lock().await;
        if let Some(home) = homes.get(&key) {
            return Ok(home.clone());
        }
        let transport = egress::transport_of_sandboxes(cx).await?;
        let git_identity = GitIdentity::of_host(cx).await;
        let home = Arc::new(Home::new(cx, key.clone(), profile, Surroundings { transport, git_identity })?);
        homes.insert(key, home.clone());
        Ok(home)
    }

    /// That of a workflow that begins with a repository: git inside reaches it from the first start on.
    pub(crate) async fn with_repository(
        &self,
        cx: &Context,
        home: Arc<Home>,
        (profile, source): (&ProfileName, &str),
    ) -> Result<Arc<Home>, Failure> {
        let new = home.sandbox.look().await? == Look::Missing;
        home.worktrees.want_repository(home.key.as_str(), source, new).await?;
        let repository = home.worktrees.repository(home.key.as_str())?;
        if !new || home.repository == repository {
            return Ok(home);
        }
        // Another call, or another process, may have said so first: whoever was made before then knows nothing of it.
        let now = self.of_key(cx, home.key.clone(), profile).await?;
        if now.repository == repository {
            return Ok(now);
        }
        self.forget(&home.key).await;
        self.of_key(cx, home.key.clone(), profile).await
    }

    /// It is gone.
    pub(crate) async fn forget(&self, key: &SandboxKey) {
        self.0.all.lock().await.remove(key);
    }

    /// Lets a run go on, in a process that ends it with [`end`](Self::end).
    pub(crate) fn go_on<F>(&self, run: impl FnOnce(CancellationToken) -> F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        self.0.runs.spawn(run(self.0.cancel.clone()));
    }

    /// Ends all runs, and waits for that.
    pub(crate) async fn end(&self) {
        self.0.cancel.cancel();
        self.0.runs.close();
        self.0.runs.wait().await;
    }
}

impl Home {
    fn new(cx: &Context, key: SandboxKey, profile: &ProfileName, host: Surroundings) -> Result<Self, Failure> {
        let Surroundings { transport, git_identity } = host;
        // It outlives the call that it is made for.
        let cx = &cx.outliving_the_call();
        let settings: SandboxProfile = cx.config.sandbox.profile(profile);
        let dir = SandboxDir::open(&sandboxes(cx)?, &key)?;
        let person = Ids { uid: cx.host.uid, gid: cx.host.gid };
        let shared = SharedDir::of(&dir, cx.config.sandbox.worktree.shared(), person)?;
        let worn = devcontainer::worn(cx, &dir, &settings)?;
        let plan = Plan::of(&cx.config, &settings, shared.as_ref(), worn.as_ref(), transport);
        let containers = SandboxContainers::new(cx, &dir, plan.clone(), shared.clone())?;
        let worktrees = worktrees(cx)?;
        let repository = worktrees.repository(key.as_str())?;
        let grants = grants(cx, profile, &settings, repository.as_deref())?;
        let proxied = grants.git.as_ref().map(GitRules::config).unwrap_or_default();
        let git_config = git_identity.identity.config() + &proxied;
        let gate = Arc::new(Gate::new(dir.clone(), grants, None).by(transport));
        let (agent, home) = plan.agent();
        let reach = cx.config.sandbox.network;
        let open = reach == SandboxNetwork::Bridge;
        let trusted = HostCertificates::of(cx, reach != SandboxNetwork::None, agent);
        // Ours over what a file asks for.
        let mut env = worn.as_ref().map(|it| it.env()).unwrap_or_default();
        // Where all is open, names are not looked for in a list.
        let proxy = PROXY_ENV.iter().filter(|_| !open);
        env.extend(proxy.chain(&ROUTES_ENV).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
        env.extend(trusted.iter().flat_map(HostCertificates::env));
        env.insert("HOME".into(), home.clone());
        env.entry("LANG".into()).or_insert_with(|| "C.UTF-8".into());
        let also = trusted.map(|it| Arc::new(it) as Arc<dyn AtStart>);
        let (home, env_of_all) = (Some(home), env.clone());
        let worker = if cx.config.is_strict() { agent } else { WORKER };
        let preparing =
            Preparing { agent, worker, git_config, env: env_of_all, home, also, open, ..Preparing::default() };
        let readying = Readying::new(dir, profile.clone(), preparing);
        let readying = match transport {
            Transport::Unix => readying,
            Transport::Link => readying.by_link(gate.clone()),
            Transport::Tcp => readying.by_tcp(gate.clone()),
        };
        let sandbox = Sandbox::new(Arc::new(containers.clone()), readying);
        let network = network(&cx.config.sandbox);
        Ok(Self {
            key,
            sandbox,
            worktrees,
            gate,
            told: (env, network),
            plan,
            containers,
            shared,
            repository,
            worn,
            git_identity,
        })
    }

    /// The URL or directory that its repository came from.
    pub(crate) fn repository(&self) -> Option<&str> {
        self.repository.as_deref()
    }

    /// Drives an agent in it.
    pub(crate) fn driver(&self) -> SandboxDriver {
        // Every request names its model.
        SandboxDriver::new(Arc::new(self.provider()), "")
    }

    /// It, for who runs programs in it or reaches its ports.
    pub fn provider(&self) -> ContainerSandboxProvider {
        let (sandbox, gate, (env, network)) = (self.sandbox.clone(), self.gate.clone(), self.told.clone());
        let provider = ContainerSandboxProvider::new(sandbox, gate, env, network);
        match &self.shared {
            Some(dir) => provider.shared(dir.path().to_owned()),
            None => provider,
        }
    }

    /// Commands find the workflow's own names and ports in their environment. Where workflows share a container, none
    /// can have all of it.
    pub async fn enter(&self, open: &Open, worktree: &Worktree) -> Result<(), Failure> {
        let alone = self.worktrees.remembered(self.key.as_str())?.len() <= 1;
        let own = if alone { worktree.env() } else { BTreeMap::new() };
        Ok(self.sandbox.add_env(&open.held, &own).await?)
    }

    /// Does what the repository's own file asks for inside, and tells of it; nothing where there is none.
    pub(crate) async fn dress(&self, cx: &Context, open: &Open, worktree: &Worktree) -> Result<Option<Told>, Failure> {
        if self.worn.is_none() {
            return Ok(None);
        }
        self.enter(open, worktree).await?;
        devcontainer::enter(cx, self, open, worktree).await
    }

    /// Sees to it that somebody keeps the way out as long as the answer is held: the process that did may have ended.
    fn keep_open(&self) -> Result<InUse, Failure> {
        Ok(self.gate.open()?)
    }

    /// What its proxy counted.
    pub(crate) fn metered(&self) -> Value {
        serde_json::to_value(self.gate.metered()).unwrap_or_default()
    }

    /// A workflow begins: until this is dropped, nobody finds the sandbox to be of no use.
    pub(crate) async fn begin(&self) -> Result<Claim, Failure> {
        Ok(self.sandbox.dir().begin().await?)
    }

    /// Container, volume and way out go, unless somebody has a workflow there or begins one. `inside` is for what the
    /// sandbox holds beside its workflows' work, which is saved before.
    pub(crate) async fn leave(&self, inside: Option<(&Open, &RemoveAsk)>) -> Result<Left, Failure> {
        // Decided and done under one lock: who begins meanwhile waits, and finds no sandbox.
        match self.sandbox.dir().end().await? {
            Some(alone) => self.leave_alone(&alone, inside, Because::Asked).await,
            None => Ok(Left::default()),
        }
    }

    /// As [`leave`](Self::leave), for who holds [`SandboxDir::end`] already.
    pub(crate) async fn leave_alone(
        &self,
        _: &Claim,
        inside: Option<(&Open, &RemoveAsk)>,
        because: Because,
    ) -> Result<Left, Failure> {
        if !self.worktrees.remembered(self.key.as_str())?.is_empty() {
            return Ok(Left::default());
        }
        let saved = match inside {
            Some((open, ask)) => {
                let saved = tokio::time::timeout(SAVING, self.worktrees.save_rest(&open.inside, ask)).await;
                let late = |_| Failure::new(Code::TeardownIncomplete, "what it holds could not be saved in time");
                saved.map_err(late)??
            }
            None => Vec::new(),
        };
        self.gate.close();
        self.sandbox.remove(because).await?;
        devcontainer::forget(self.sandbox.dir())?;
        let kept = match &self.shared {
            Some(dir) => dir.remove().await?,
            None => Vec::new(),
        };
        // At last: as long as it is remembered, somebody takes up what is left when this is cut short.
        self.forget_repository()?;
        Ok(Left { removed: true, saved, kept })
    }

    /// Whether its container is gone, and a repository is remembered that nobody is at work on: whoever removed it was cut
    /// short, or whoever began it failed.
    pub(crate) async fn has_stale_repository(&self) -> Result<bool, Failure> {
        let key = self.key.as_str();
        let stale = self.worktrees.repository(key)?.is_some() && self.worktrees.remembered(key)?.is_empty();
        Ok(stale && !self.has_files() && self.sandbox.look().await? == Look::Missing)
    }

    /// Neither this host nor an engine has a container of it.
    pub(crate) async fn is_gone(&self, cx: &Context) -> Result<bool, Failure> {
        let key = (&session_of(&self.key)?, SlotRole::Sandbox);
        Ok(!cx.session_containers()?.recall(cx.engines(), key).await.map_err(slot_failure)?)
    }

    /// The next one of its key works on whatever it is asked to.
    pub(crate) fn forget_repository(&self) -> Result<(), Failure> {
        Ok(self.worktrees.forget_repository(self.key.as_str())?)
    }

    /// Whether it has a repository on this host, where files are shared.
    pub(crate) fn has_files(&self) -> bool {
        self.shared.as_ref().is_some_and(|it| it.path().join("repo.git").is_dir())
    }

    /// What was begun here failed. Where nobody has a workflow, nobody could remove the sandbox: it goes.
    pub(crate) async fn give_up(&self, homes: &Homes) {
        match self.leave(None).await {
            Ok(left) if left.removed => homes.forget(&self.key).await,
            Ok(_) => {}
            Err(err) => tracing::warn!(%err.message, "a sandbox that was not used stays"),
        }
    }

    /// Its files on this host, where they are shared.
    pub fn shared_at(&self) -> Option<String> {
        self.shared.as_ref().map(|it| it.path().display().to_string())
    }

    /// Where work that it alone has is saved.
    pub(crate) fn save_to(&self) -> Result<SaveTo, Failure> {
        self.containers.save_to()
    }

    /// Its container, ready for use; made when there is none, with the news of that told to `cx`.
    pub(crate) async fn open(&self, cx: &Context) -> Result<Open, Failure> {
        match self.worn.as_ref().and_then(|it| it.unread.clone()) {
            Some(failure) => {
                Err(failure.hint("set the variables of this host again that it takes, or remove the sandbox"))
            }
            None => self.open_to_remove(cx).await,
        }
    }

    /// The same for whoever only saves what is inside: without what a file asks for, if that cannot be read any more.
    pub(crate) async fn open_to_remove(&self, cx: &Context) -> Result<Open, Failure> {
        if self.sandbox.look().await? == Look::Missing {
            let ready = ensure_ready(cx).await?;
            self.plan.image(cx, &ready).await?;
            cx.call.progress.message("starting the sandbox".to_owned()).await;
        }
        let way_out = self.keep_open()?;
        let held = cx.unless_cancelled(async { Ok(Box::pin(self.sandbox.ensure()).await?) }).await?;
        let root = ContainerPath::parse("/workspace")?;
        let shared = self.shared.as_ref().map(|it| it.path().to_owned());
        let agent = self.sandbox.agent();
        let inside = Inside { key: self.key.to_string(), link: held.link.clone(), agent, root, shared };
        Ok(Open { held, _way_out: way_out, inside })
    }
}

/// What makes worktrees, for whoever has no sandbox at hand.
pub(crate) fn worktrees(cx: &Context) -> Result<WorktreeManager, Failure> {
    Ok(WorktreeManager::new(worktree_settings(cx)?)?)
}

fn worktree_settings(cx: &Context) -> Result<WorktreeSettings, Failure> {
    let own = &cx.config.sandbox.worktree;
    Ok(WorktreeSettings {
        branch_prefix: own.branch_prefix.clone(),
        fsck: own.fsck,
        allow_roots: cx.policy()?.allow_roots,
        allow_private: cx.config.images.git_allow_private,
        allow_discard: cx.config.security.allow_discard,
        save_max: cx.config.lifecycle.save_max.0,
        person: person(cx),
        ..WorktreeSettings::new(cx.state()?.root().to_owned())
    })
}

/// The person's environment, for their own credential helper and their ssh.
pub(super) fn person(cx: &Context) -> BTreeMap<String, OsString> {
    let variables = cx.host.env.iter();
    variables.map(|(name, value)| (name.clone(), OsString::from_vec(value.reveal().to_vec()))).collect()
}
