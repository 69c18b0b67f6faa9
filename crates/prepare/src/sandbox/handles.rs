//! Sandboxes as the configuration describes them.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_context::approvals::RuleList;
use coracle_context::audit;
use coracle_context::config::{SandboxNetwork, SandboxProfile};
use coracle_context::context::Context;
use coracle_context::document::joined;
use coracle_context::egress::{self, Certificates};
use coracle_context::failure::{Code, Failure, slot_failure};
use coracle_context::host_identity::trusted_path;
use coracle_context::recorded::{self, RecordName};
use coracle_context::secrets;
use coracle_context::user_environment::user_environment;
use coracle_lifecycle::SlotError;
use coracle_provision::certs::JAVA_ASIDE;
use coracle_proxy::environment::{PROXY_ENV, ROUTES_ENV};
use coracle_proxy::policy::GitRules;
use coracle_proxy::{Approvals, Authority};
use coracle_sandbox::{
    ContainerOptions, DevcontainerReport, Domain, OpenSandbox, ProxyListeners, SandboxDir, SandboxHandle, SandboxKey,
    SandboxLiveness, SandboxOptions, SandboxRegistry, SandboxServices, StartHook, StartupOptions, WORKER,
};
use coracle_types::{Ids, ProfileName, WorkflowId};
use coracle_worktrees::create::Worktree;
use coracle_worktrees::shared::SharedDir;
use coracle_worktrees::{WorktreeManager, WorktreeSettings};

use super::grants::{grants, network};
use super::identity::git_identity;
use super::plan::Plan;
use super::{devcontainer, sandboxes, usual_profile};
use crate::coding_agents;
use crate::preflight::ensure_ready;

/// The sandboxes of a process, for one call.
#[derive(Clone, Copy, Debug)]
pub struct Sandboxes<'a> {
    pub cx: &'a Context,
    /// The sandboxes that the process uses.
    pub registry: &'a SandboxRegistry,
}

impl Sandboxes<'_> {
    /// Returns the sandbox of a workflow. Creates no container.
    ///
    /// # Errors
    /// `engine_unavailable`, and those of the configuration.
    pub async fn of_workflow(&self, profile: &ProfileName, id: &WorkflowId) -> Result<Arc<SandboxHandle>, Failure> {
        self.of_key(&self.key_of(profile, id).await?, profile).await
    }

    async fn key_of(&self, profile: &ProfileName, id: &WorkflowId) -> Result<SandboxKey, Failure> {
        let settings = self.cx.config.sandbox.profile(profile);
        let domain = settings.domain.clone().map_or_else(|| Domain::Workflow(id.clone()), Domain::Named);
        let endpoint = self.cx.runtime().await?.endpoint().address;
        Ok(SandboxKey::new(profile, &domain, &endpoint))
    }

    /// Returns the sandbox that has a workflow: that of the named profile; without one, that of `default` or of the
    /// only other profile that has it. If none has it, the result is that of [`of_workflow`](Self::of_workflow).
    /// Creates no container.
    ///
    /// # Errors
    /// `worktree_missing` if only other profiles than the named one have it; `invalid_input` if none is named, and several
    /// have it; and those of [`of_workflow`](Self::of_workflow).
    pub async fn with_workflow(
        &self,
        profile: Option<ProfileName>,
        id: &WorkflowId,
    ) -> Result<Arc<SandboxHandle>, Failure> {
        let worktrees = worktrees(self.cx)?;
        let has = |key: &SandboxKey| Ok::<_, Failure>(worktrees.remembered(key.as_str())?.contains(id));
        let first = profile.clone().unwrap_or_else(usual_profile);
        let key = self.key_of(&first, id).await?;
        if has(&key)? {
            return self.of_key(&key, &first).await;
        }
        let mut have = Vec::new();
        for sandbox in SandboxDir::all(&sandboxes(self.cx)?)? {
            if has(&sandbox.key)? {
                have.push(sandbox);
            }
        }
        let names = joined(have.iter().map(|sandbox| format!("`{}`", sandbox.profile)));
        match (have.as_slice(), profile) {
            ([], _) => self.of_key(&key, &first).await,
            ([only], None) => self.of_key(&only.key, &only.profile).await,
            (_, None) => {
                let failure = Failure::invalid("profile", format!("is missing, and several have `{id}`: {names}"));
                Err(failure.hint("name one of them"))
            }
            // The sandbox may be on another engine, where it cannot be inspected.
            (have, Some(named)) if have.iter().any(|sandbox| sandbox.profile == named) => {
                self.of_key(&key, &first).await
            }
            (_, Some(named)) => {
                let message = format!("There is no worktree `{id}` of the profile `{named}`.");
                Err(Failure::new(Code::WorktreeMissing, message).hint(format!("name the profile that has it: {names}")))
            }
        }
    }

    pub async fn of_key(&self, key: &SandboxKey, profile: &ProfileName) -> Result<Arc<SandboxHandle>, Failure> {
        self.registry.get_or_create(key, new_handle(self.cx, key, profile)).await
    }

    /// Returns the sandbox of a workflow that begins with a repository, which git inside can reach from the first
    /// start.
    pub async fn with_repository(
        &self,
        handle: Arc<SandboxHandle>,
        profile: &ProfileName,
        source: &str,
    ) -> Result<Arc<SandboxHandle>, Failure> {
        match self.registry.claim_repository(&handle, source).await? {
            true => Ok(handle),
            false => self.of_key(&handle.key, profile).await,
        }
    }
}

async fn new_handle(cx: &Context, key: &SandboxKey, profile: &ProfileName) -> Result<SandboxHandle, Failure> {
    let transport = egress::transport_of_sandboxes(cx).await?;
    let by_policy = cx.runtime().await?.kind().closes_by_policy();
    let (git_identity, git_config) = git_identity(cx).await;
    // The sandbox outlives the call that creates it.
    let cx = &cx.outliving_the_call();
    let settings = settings_of(cx, profile);
    let dir = SandboxDir::open(&sandboxes(cx)?, key)?;
    let user_environment = Ids { uid: cx.host.uid, gid: cx.host.gid };
    let shared = dir.shared_dir(cx.config.sandbox.worktree.shared(), user_environment)?;
    let devcontainer = devcontainer::load(cx, &dir, &settings)?;
    let plan = Plan::new(&cx.config, &settings, shared.as_ref(), devcontainer.as_ref(), transport);
    let worktrees = worktrees(cx)?;
    let repository = worktrees.repository(key.as_str())?;
    let is_proxied = cx.config.sandbox.network == SandboxNetwork::Proxy;
    let authority = is_proxied.then(|| dir.authority()).transpose()?;
    let grants = grants(cx, profile, &settings, repository.as_deref(), authority.as_deref())?;
    let git_config = git_config + &grants.git.as_ref().map(GitRules::config).unwrap_or_default();
    let devcontainer_env = devcontainer.as_ref().map(|it| it.env()).unwrap_or_default();
    let approvals = |policy| Arc::new(egress::approvals(cx, &dir, key.to_string(), RuleList::Sandbox, policy));
    let approvals = grants.egress.as_deref().cloned().map(approvals);
    let listeners = ProxyListeners {
        observer: Some(audit::observer(cx, key.to_string())),
        approvals: approvals.map(|it| it as Arc<dyn Approvals>),
    };
    let name = RecordName { session: recorded::SANDBOXES, container: key.as_str(), id: None };
    let record = match is_proxied {
        true => recorded::settings(cx, &cx.config.sandbox.egress, name)?,
        false => None,
    };
    let options = SandboxOptions {
        profile: profile.clone(),
        worktrees,
        container: container_options(cx, &dir, &plan, shared.clone())?,
        startup: StartupOptions {
            by_policy,
            ..startup_options(cx, &plan, authority.as_deref(), git_config, devcontainer_env)
        },
        shared,
        grants,
        record,
        transport,
        network: network(&cx.config.sandbox),
        repository,
        devcontainer,
        git_identity,
        dir,
    };
    Ok(SandboxHandle::new(&services(cx)?, options, listeners)?)
}

/// Returns the settings of a profile. The profile of a coding agent uses the agent's image, unless the configuration
/// names another.
fn settings_of(cx: &Context, name: &ProfileName) -> SandboxProfile {
    let mut settings = cx.config.sandbox.profile(name);
    if let Some(agent) = coding_agents::find(name.as_str()) {
        settings.image.get_or_insert_with(|| agent.image());
    }
    settings
}

fn container_options(
    cx: &Context,
    dir: &SandboxDir,
    plan: &Plan,
    shared: Option<SharedDir>,
) -> Result<ContainerOptions, Failure> {
    let (template_cx, template_plan, sockets) = (cx.clone(), plan.clone(), dir.sockets());
    Ok(ContainerOptions {
        settings: format!("{plan:?}"),
        user: plan.agent().0,
        rootless: cx.config.is_strict(),
        private_network: plan.internal(),
        shared,
        policy: cx.policy()?,
        grace: cx.config.exec.grace.0,
        template: Arc::new(move |network| {
            let (cx, plan, sockets) = (template_cx.clone(), template_plan.clone(), sockets.clone());
            Box::pin(async move { plan.template(&cx, &sockets, network).await.map_err(Into::into) })
        }),
    })
}

/// What each start of the container needs. `env` is what a file of the repository asks for.
fn startup_options(
    cx: &Context,
    plan: &Plan,
    authority: Option<&Authority>,
    git_config: String,
    mut env: BTreeMap<String, String>,
) -> StartupOptions {
    let (agent, home) = plan.agent();
    let reach = cx.config.sandbox.network;
    let open = reach == SandboxNetwork::Bridge;
    let trusted = match authority {
        Some(authority) => Some(Certificates::with_proxy(cx, agent, authority)),
        None if open => Certificates::of_host(cx, agent),
        None => None,
    };
    env.extend(authority.into_iter().flat_map(|it| secrets::placeholders(cx, it)));
    // On an open network the proxy does not resolve names.
    let proxy = PROXY_ENV.iter().filter(|_| !open);
    env.extend(proxy.chain(&ROUTES_ENV).map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    env.extend(trusted.iter().flat_map(|_| Certificates::env()));
    env.extend(authority.map(|_| Certificates::java_env(JAVA_ASIDE)));
    env.insert("HOME".into(), home.clone());
    env.entry("LANG".into()).or_insert_with(|| "C.UTF-8".into());
    let also = trusted.map(|it| Arc::new(it) as Arc<dyn StartHook>);
    let worker = if cx.config.is_strict() { agent } else { WORKER };
    StartupOptions { agent, worker, git_config, env, home: Some(home), also, open, ..StartupOptions::default() }
}

/// Returns the records, engines and logs of this process for sandboxes.
fn services(cx: &Context) -> Result<SandboxServices, Failure> {
    let reader = cx.reader();
    Ok(SandboxServices {
        store: cx.store()?,
        containers: cx.session_containers()?,
        engines: cx.shared_engines(),
        on_event: Arc::from(cx.slot_observer()),
        describe: Arc::new(move |err: SlotError| slot_failure(err).for_reader(&reader).into_inner()),
    })
}

/// Opens a sandbox: builds its image and creates its container, if needed.
pub async fn open(cx: &Context, handle: &SandboxHandle) -> Result<OpenSandbox, Failure> {
    match handle.devcontainer.as_ref().and_then(|it| it.unread.clone()) {
        Some(failure) => {
            let hint = "set the host variables that it uses again, or remove the sandbox";
            Err(Failure::from(failure).hint(hint))
        }
        None => open_to_remove(cx, handle).await,
    }
}

/// Opens a sandbox to save its work, even if its `devcontainer.json` can no longer be read.
pub async fn open_to_remove(cx: &Context, handle: &SandboxHandle) -> Result<OpenSandbox, Failure> {
    if handle.sandbox.liveness().await? == SandboxLiveness::Absent {
        let ready = ensure_ready(cx).await?;
        let profile = settings_of(cx, &handle.profile);
        let plan =
            Plan::new(&cx.config, &profile, handle.shared.as_ref(), handle.devcontainer.as_ref(), handle.transport);
        plan.image(cx, &ready).await?;
        cx.call.progress.message("starting the sandbox".to_owned()).await;
    }
    cx.unless_cancelled(async { Ok(Box::pin(handle.open()).await?) }).await
}

/// Applies the repository's `devcontainer.json` inside. `None` if the sandbox was not created from one.
pub async fn apply_devcontainer(
    cx: &Context,
    handle: &SandboxHandle,
    open: &OpenSandbox,
    worktree: &Worktree,
) -> Result<Option<DevcontainerReport>, Failure> {
    let progress = cx.call.progress.clone();
    let report = handle.apply_devcontainer(open, worktree, &cx.call.cancel, move |stage| {
        let progress = progress.clone();
        async move { progress.message(format!("running {}", stage.property())).await }
    });
    Ok(report.await?)
}

/// Opens the worktree manager. Needs no sandbox.
pub fn worktrees(cx: &Context) -> Result<WorktreeManager, Failure> {
    let own = &cx.config.sandbox.worktree;
    Ok(WorktreeManager::new(WorktreeSettings {
        branch_prefix: own.branch_prefix.clone(),
        fsck: own.fsck,
        git_timeout: own.git_timeout.0,
        bundle_max: own.bundle_max.0,
        allow_roots: cx.policy()?.allow_roots,
        allow_private: cx.config.images.git_allow_private,
        allow_discard: cx.config.security.allow_discard,
        save_max: cx.config.lifecycle.save_max.0,
        programs: trusted_path(cx),
        user_env: user_environment(cx),
        ..WorktreeSettings::new(cx.state()?.root().to_owned())
    })?)
}
