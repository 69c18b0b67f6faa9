//! A sandbox as operations use it: its container, its worktrees, and the proxy that this process keeps for it.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::sync::Arc;

use coracle_runtime::ContainerPath;
use coracle_sandbox::driver::SandboxDriver;
use coracle_sandbox::proxy::{GitRules, INSIDE_ENV};
use coracle_sandbox::worktree::{Inside, SaveTo, Worktree, WorktreeSettings};
use coracle_sandbox::{
    AGENT, ContainerSandboxProvider, Domain, Gate, Held, Look, Preparing, ProfileName, Sandbox, SandboxDir, SandboxKey,
    WorkflowId, WorktreeManager,
};
use serde_json::Value;
use tokio::sync::Mutex;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::containers::SandboxContainers;
use super::grants::{grants, network};
use super::plan::Plan;
use crate::config::SandboxProfile;
use crate::context::Context;
use crate::failure::Failure;
use crate::ops::preflight::ensure_ready;

/// The agent's home.
const HOME: &str = "/home/agent";

/// What commands find beside the ways out.
const OWN_ENV: [(&str, &str); 2] = [("HOME", HOME), ("LANG", "C.UTF-8")];

/// The sandboxes that this process uses. Clones are handles to the same.
#[derive(Clone, Debug, Default)]
pub(crate) struct Homes(Arc<Used>);

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
pub(crate) struct Home {
    pub(crate) key: SandboxKey,
    pub(crate) sandbox: Sandbox,
    pub(crate) worktrees: WorktreeManager,
    gate: Arc<Gate>,
    provider: Arc<ContainerSandboxProvider>,
    plan: Plan,
    containers: SandboxContainers,
}

/// A sandbox that is ready, and in use as long as this is held.
#[derive(Debug)]
pub(crate) struct Open {
    held: Held,
    pub(crate) inside: Inside,
}

impl Homes {
    /// That of a workflow. Makes no container.
    pub(crate) async fn of(&self, cx: &Context, profile: &ProfileName, id: &WorkflowId) -> Result<Arc<Home>, Failure> {
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
        let home = Arc::new(Home::new(cx, key.clone(), profile)?);
        homes.insert(key, home.clone());
        Ok(home)
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
    fn new(cx: &Context, key: SandboxKey, profile: &ProfileName) -> Result<Self, Failure> {
        // It outlives the call that it is made for.
        let cx = &cx.for_home();
        let settings: SandboxProfile = cx.config.sandbox.profile(profile);
        let plan = Plan::of(&cx.config, &settings);
        let dir = SandboxDir::open(cx.state()?.root(), &key)?;
        let containers = SandboxContainers::new(cx, &key, plan.clone(), dir.sockets())?;
        let grants = grants(cx, profile, &settings)?;
        let git_config = grants.git.as_ref().map(GitRules::config).unwrap_or_default();
        let gate = Arc::new(Gate::new(dir.clone(), grants, None));
        let env = INSIDE_ENV.iter().chain(&OWN_ENV).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let env: BTreeMap<_, _> = env.collect();
        let preparing = Preparing { git_config, env: env.clone(), home: HOME.to_owned(), gateways: Vec::new() };
        let sandbox = Sandbox::new(Arc::new(containers.clone()), dir, profile.clone(), preparing);
        let network = network(&cx.config.sandbox);
        let provider = Arc::new(ContainerSandboxProvider::new(sandbox.clone(), gate.clone(), env, network));
        let worktrees = WorktreeManager::new(worktree_settings(cx)?)?;
        Ok(Self { key, sandbox, worktrees, gate, provider, plan, containers })
    }

    /// Drives an agent in it.
    pub(crate) fn driver(&self) -> SandboxDriver {
        // Every request names its model.
        SandboxDriver::new(self.provider.clone(), "")
    }

    /// Commands find the workflow's own names and ports in their environment. Where workflows share a container, none
    /// can have all of it.
    pub(crate) async fn enter(&self, open: &Open, worktree: &Worktree) -> Result<(), Failure> {
        let alone = self.worktrees.remembered(self.key.as_str())?.len() <= 1;
        let own = if alone { worktree.env() } else { BTreeMap::new() };
        Ok(self.sandbox.add_env(&open.held, &own).await?)
    }

    /// Sees to it that somebody keeps the way out: the process that did may have ended.
    pub(crate) fn keep_open(&self) -> Result<(), Failure> {
        Ok(self.gate.open()?)
    }

    /// What its proxy counted.
    pub(crate) fn metered(&self) -> Value {
        serde_json::to_value(self.gate.metered()).unwrap_or_default()
    }

    /// Container, volume and way out are gone.
    pub(crate) async fn remove(&self) -> Result<(), Failure> {
        self.gate.close();
        Ok(self.sandbox.remove().await?)
    }

    /// Where work that it alone has is saved.
    pub(crate) fn save_to(&self) -> Result<SaveTo, Failure> {
        self.containers.save_to()
    }

    /// Its container, ready for use; made when there is none, with the news of that told to `cx`.
    pub(crate) async fn open(&self, cx: &Context) -> Result<Open, Failure> {
        if self.sandbox.look().await? == Look::Missing {
            let ready = ensure_ready(cx).await?;
            self.plan.image(cx, &ready).await?;
            cx.progress.message("starting the sandbox".to_owned()).await;
        }
        self.keep_open()?;
        let held = cx.unless_cancelled(async { Ok(self.sandbox.ensure().await?) }).await?;
        let root = ContainerPath::parse("/workspace")?;
        let inside = Inside { key: self.key.to_string(), link: held.link.clone(), agent: AGENT, root };
        Ok(Open { held, inside })
    }
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
