//! What a sandbox is to be made of, decided before there is one.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use coracle_lifecycle::Creation;
use coracle_provision::UserRequest;
use coracle_runtime::host::fs::HostPath;
use coracle_runtime::{Ids, Limits, Mount, Policy, Problem};
use coracle_sandbox::devcontainer::{
    DeniedProperty, Devcontainer, DevcontainerRecord, DevcontainerSearch, DevcontainerUser, MAX_BYTES, MountKind,
    Variables, find, forget, lock_file, read, refused,
};
use coracle_sandbox::worktree::{CommitFileKind, RepoCommit};
use coracle_sandbox::{AGENT, ProfileName, SandboxHandle, SandboxLiveness, SandboxWarning, WORKER, WorkflowId};

use super::image::{DevcontainerImage, ImageContext, build, missing, recipe};
use super::{local_env, setting};
use crate::config::{Config, DevcontainerFile};
use crate::context::Context;
use crate::engines::Ready;
use crate::failure::{Code, Failure};
use crate::image_build::{accounts, draft};
use crate::preflight::ensure_ready;
use crate::resolve::protected;
use crate::sandbox::Sandboxes;
use crate::sandbox::plan::{Bind, bind};

/// Which workflow begins, of what, and from where.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WorkflowOrigin<'a> {
    pub(crate) profile: &'a ProfileName,
    pub(crate) workflow: &'a WorkflowId,
    pub(crate) source: &'a str,
    pub(crate) base: Option<&'a str>,
}

/// Forgets a decision without a container and without a workflow: the call that made it failed. Called before a workflow
/// begins, since no other may begin meanwhile.
pub(crate) async fn afresh(
    sandboxes: Sandboxes<'_>,
    sandbox: Arc<SandboxHandle>,
    profile: &ProfileName,
) -> Result<Arc<SandboxHandle>, Failure> {
    let dir = sandbox.sandbox.dir();
    let stale = sandbox.has_stale_repository().await?;
    let alone = match DevcontainerRecord::exists(dir) {
        true => dir.end().await?,
        // A workflow that begins just now owns the repository.
        false if stale => dir.end_at_once().await?,
        false => return Ok(sandbox),
    };
    let Some(_alone) = alone else { return Ok(sandbox) };
    let gone = sandbox.sandbox.liveness().await? == SandboxLiveness::Absent && (!stale || sandbox.is_gone().await?);
    if !gone || !sandbox.worktrees.remembered(sandbox.key.as_str())?.is_empty() {
        return Ok(sandbox);
    }
    forget(dir)?;
    if !sandbox.has_files() {
        sandbox.forget_repository()?;
    }
    sandboxes.registry.forget(&sandbox.key).await;
    sandboxes.of_key(&sandbox.key, profile).await
}

/// The sandbox of a workflow that begins. One that is there stays as it is; a new one is made as the repository's file
/// says, if there is one and the person wants that.
pub(crate) async fn chosen(
    sandboxes: Sandboxes<'_>,
    sandbox: Arc<SandboxHandle>,
    it: WorkflowOrigin<'_>,
) -> Result<Arc<SandboxHandle>, Failure> {
    let cx = sandboxes.cx;
    let profile = cx.config.sandbox.profile(it.profile);
    let which = setting(cx, &profile);
    if *which == DevcontainerFile::Off || sandbox.devcontainer.is_some() {
        return Ok(sandbox);
    }
    let dir = sandbox.sandbox.dir();
    let _alone = lock_file(dir.root().join("devcontainer.lock")).await?;
    if !DevcontainerRecord::exists(dir) {
        if sandbox.sandbox.liveness().await? != SandboxLiveness::Absent {
            return Ok(sandbox);
        }
        let Some(seen) =
            cx.unless_cancelled(async { Ok(Box::pin(sandbox.worktrees.see(it.source, it.base)).await?) }).await?
        else {
            return Ok(sandbox);
        };
        let Some(path) = path_of(&sandbox, &seen, which).await? else { return Ok(sandbox) };
        let record = Box::pin(decided(cx, &sandbox, it, ChosenFile { seen: &seen, path })).await?;
        record.save(dir)?;
    }
    sandboxes.registry.forget(&sandbox.key).await;
    sandboxes.of_key(&sandbox.key, it.profile).await
}

/// Where the file is.
async fn path_of(
    sandbox: &SandboxHandle,
    seen: &RepoCommit,
    which: &DevcontainerFile,
) -> Result<Option<String>, Failure> {
    if let DevcontainerFile::At(path) = which {
        return Ok(Some(path.clone()));
    }
    let mut files = sandbox.worktrees.seen_files(seen, ".devcontainer").await?;
    files.extend(sandbox.worktrees.seen_files(seen, ".devcontainer.json").await?);
    match find(files.iter().filter(|it| it.kind != CommitFileKind::Link).map(|it| it.path.as_str())) {
        DevcontainerSearch::Nothing => Ok(None),
        DevcontainerSearch::One(path) => Ok(Some(path)),
        DevcontainerSearch::Several(paths) => {
            let message = format!("the repository has several, and none is the usual one: {}", paths.join(", "));
            let failure = Failure::new(Code::DevcontainerInvalid, message).detail("found", paths);
            Err(failure.hint("name one in `sandbox.devcontainer`, or say `off` there"))
        }
    }
}

/// The file that counts, in the commit that was fetched.
struct ChosenFile<'a> {
    seen: &'a RepoCommit,
    path: String,
}

/// Reads the file, refuses what is not granted, and only then builds its image.
async fn decided(
    cx: &Context,
    sandbox: &SandboxHandle,
    it: WorkflowOrigin<'_>,
    ChosenFile { seen, path }: ChosenFile<'_>,
) -> Result<DevcontainerRecord, Failure> {
    let profile = cx.config.sandbox.profile(it.profile);
    let files = sandbox.worktrees.seen_files(seen, &path).await?;
    let found = files.iter().find(|it| it.path == path && it.kind != CommitFileKind::Link);
    let found = found.ok_or_else(|| missing(&path, "is no file of the repository"))?;
    let bytes =
        sandbox.worktrees.seen_content(seen, found, MAX_BYTES).await.map_err(|err| missing(&path, &err.message))?;
    let name = seen.name().to_owned();
    let variables = Variables {
        local_name: name.clone(),
        id: sandbox.key.to_string(),
        local_env: local_env(cx),
        ..Variables::in_worktree(it.workflow, seen.local.then_some(seen.url.as_str()))
    };
    let file = read(&bytes, &variables).map_err(|err| err.detail("file", path.clone()))?;
    let (none, remote_user) = (BTreeMap::new(), file.user.as_deref());
    let context = ImageContext {
        cx,
        worktrees: &sandbox.worktrees,
        seen,
        path: &path,
        variables: &variables,
        remote_user,
        digests: &none,
    };
    let mut refusals = mount_problems(&file, &cx.policy()?);
    refusals.extend(protected_problems(&file, &cx.config));
    let recipe = recipe(context, &file, profile.image.as_ref(), &mut refusals).await?;
    if !refusals.is_empty() {
        return Err(refused(&refusals).detail("file", path).into());
    }
    let mut warnings = [file.warnings.clone(), recipe.warnings.clone(), needs(&file, cx)].concat();
    let ready = ensure_ready(cx).await?;
    let made = build(context, &ready, &recipe).await?;
    let agent = agent(cx, &ready, &made, file.user.as_deref(), &mut warnings).await?;
    let text = String::from_utf8(bytes).map_err(Failure::internal)?;
    let env = made.image.env.iter().filter_map(|it| it.split_once('='));
    Ok(DevcontainerRecord {
        source: it.source.to_owned(),
        local: seen.local,
        name,
        commit: seen.commit.clone(),
        path,
        text,
        workflow: it.workflow.clone(),
        image: made.reference,
        built: made.built,
        features: recipe.digests(),
        image_env: env.map(|(name, value)| (name.to_owned(), value.to_owned())).collect::<BTreeMap<_, _>>(),
        agent,
        kept_out: recipe.kept_out,
        warnings,
    })
}

/// Directories of the host are granted as any other mount is.
fn mount_problems(file: &Devcontainer, policy: &Policy) -> Vec<DeniedProperty> {
    let binds = file.mounts.iter().filter_map(|it| match &it.kind {
        MountKind::Bind(source) => Some(source),
        _ => None,
    });
    let problem = |source: &String| {
        if !source.starts_with('/') {
            let message = format!("`{}` is no absolute path of this host", source.escape_debug());
            return Some(DeniedProperty::new("mounts", "mount.root", message));
        }
        match HostPath::open(Path::new(source)) {
            Err(err) => Some(DeniedProperty::new("mounts", "mount.root", err.to_string())),
            Ok(host) => policy.host_path_problem("mount", host.real()).map(refusal_of),
        }
    };
    binds.filter_map(problem).collect()
}

/// Mounts that would go around what is protected in a directory of the host.
fn protected_problems(file: &Devcontainer, config: &Config) -> Vec<DeniedProperty> {
    let names = &config.workspace.protected;
    let open = |(path, at, access): Bind| HostPath::open(&path).ok().map(|host| Mount { host, at, access });
    // One that cannot be opened is refused for that.
    let mounts: Vec<_> = file.mounts.iter().filter_map(|it| open(bind(config, it)?)).collect();
    let around = protected::ways_around(&mounts, names).into_iter().map(refusal_of);
    let covering = protected::in_place_of(&mounts, names);
    let covering =
        covering.map(|it| DeniedProperty::new("mounts", "files.protected", it).unless("workspace.protected"));
    around.chain(covering).collect()
}

fn refusal_of(problem: Problem) -> DeniedProperty {
    let Problem { rule, setting, message, .. } = problem;
    DeniedProperty { property: "mounts".into(), rule, setting, message }
}

/// What it says it needs and does not get.
fn needs(file: &Devcontainer, cx: &Context) -> Vec<SandboxWarning> {
    let (own, needs) = (&cx.config.sandbox, &file.needs);
    let limits = Limits { memory: Some(own.memory), cpus: Some(own.cpus), pids: Some(own.pids) };
    let told = |what: String| SandboxWarning::new("host_requirements", what);
    let cpus = needs.cpus.filter(|it| limits.cpus.is_some_and(|has| *it > has));
    let memory = needs.memory.filter(|it| limits.memory.is_some_and(|has| *it > has.0));
    [
        cpus.map(|it| told(format!("it asks for {it} cores, and has {} (`sandbox.cpus`)", own.cpus))),
        memory.map(|it| told(format!("it asks for {it} bytes of memory, and has {} (`sandbox.memory`)", own.memory))),
        needs.gpu.then(|| told("it asks for a GPU, and sandboxes have none".to_owned())),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// Who runs commands: looked up in the image. Never root, and never the one whom the worker runs as.
async fn agent(
    cx: &Context,
    ready: &Ready,
    made: &DevcontainerImage,
    asked: Option<&str>,
    warnings: &mut Vec<SandboxWarning>,
) -> Result<DevcontainerUser, Failure> {
    let Some(asked) = asked else { return Ok(DevcontainerUser::default()) };
    let invalid = |why: String| Failure::new(Code::DevcontainerInvalid, why).detail("property", "remoteUser");
    let ask = UserRequest::parse(asked).map_err(|err| invalid(err.to_string()))?;
    let not_root = |warnings: &mut Vec<SandboxWarning>| {
        let message = format!("`{asked}` is root while the image is built alone; commands run as `agent`");
        warnings.push(SandboxWarning::new("devcontainer_ignored", message));
        Ok(DevcontainerUser::default())
    };
    if ask == UserRequest::Ids(Ids::ROOT) {
        return not_root(warnings);
    }
    let (runtime, store) = (&*ready.runtime, cx.store()?);
    let mut making = Creation::begin(runtime, &store, draft(cx)?).await?;
    let known = accounts(cx, ready, &mut making, &made.image).await;
    for err in making.undo().await {
        tracing::warn!(%err, "a container that was looked into stays");
    }
    let known = known?;
    let ids = known
        .resolve(&ask)
        .map_err(|_| invalid(format!("there is no user `{asked}` in the image {}", made.reference)))?;
    if ids.is_root() {
        return not_root(warnings);
    }
    if ids.uid == WORKER.uid {
        return Err(invalid(format!("`{asked}` has the uid {}, as the worker has", WORKER.uid)));
    }
    if ids == AGENT {
        return Ok(DevcontainerUser { name: asked.to_owned(), ..DevcontainerUser::default() });
    }
    let home = known.home(ids.uid).filter(|it| *it != "/" && *it != "/nonexistent");
    let home = home.map_or_else(|| "/home/agent".to_owned(), str::to_owned);
    Ok(DevcontainerUser { name: asked.to_owned(), ids, home })
}
