//! Decides what a sandbox is created from, before its container exists.

use std::collections::BTreeMap;
use std::sync::Arc;

use coracle_context::config::DevcontainerFile;
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::file::Variables;
use coracle_lifecycle::Creation;
use coracle_provision::UserRequest;
use coracle_runtime::Limits;
use coracle_sandbox::devcontainer_state::{DevcontainerRecord, DevcontainerUser, forget, lock_file};
use coracle_sandbox::{AGENT, SandboxHandle, SandboxLiveness, WORKER};
use coracle_types::{Ids, ProfileName, SandboxWarning, WorkflowId};
use coracle_worktrees::commit_files::RepoCommit;

use super::build_files::BuildFiles;
use super::image::DevcontainerImage;
use super::judge::{JudgedFile, judge, searched, unmet};
use super::{local_env, setting};
use crate::image_build::{accounts, draft};
use crate::preflight::ensure_ready;
use crate::sandbox::Sandboxes;

/// Which workflow begins, in which sandbox, and from which repository.
#[derive(Clone, Copy, Debug)]
pub struct WorkflowOrigin<'a> {
    pub profile: &'a ProfileName,
    pub workflow: &'a WorkflowId,
    pub source: &'a str,
    pub base: Option<&'a str>,
}

/// Deletes the decision of a call that failed, if the sandbox has neither container nor workflow. Called before a
/// workflow begins, since no other one may begin meanwhile.
pub async fn discard_stale(
    sandboxes: Sandboxes<'_>,
    sandbox: Arc<SandboxHandle>,
    profile: &ProfileName,
) -> Result<Arc<SandboxHandle>, Failure> {
    let dir = sandbox.sandbox.dir();
    let stale = sandbox.has_stale_repository().await?;
    let alone = match DevcontainerRecord::exists(dir) {
        true => dir.end().await?,
        // A workflow that begins now owns the repository.
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

/// Returns the sandbox of a workflow that begins. An existing one is not changed. A new one is created from the
/// repository's `devcontainer.json`, if there is one and the configuration uses it.
pub async fn chosen(
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

/// Returns the path of the file.
async fn path_of(
    sandbox: &SandboxHandle,
    seen: &RepoCommit,
    which: &DevcontainerFile,
) -> Result<Option<String>, Failure> {
    if let DevcontainerFile::At(path) = which {
        return Ok(Some(path.clone()));
    }
    let files = BuildFiles::Commit { worktrees: &sandbox.worktrees, seen };
    searched(files, "name one in `sandbox.devcontainer`, or say `off` there").await
}

/// The selected file in the fetched commit.
struct ChosenFile<'a> {
    seen: &'a RepoCommit,
    path: String,
}

/// Reads the file, refuses what the policy does not grant, and only then builds the image.
async fn decided(
    cx: &Context,
    sandbox: &SandboxHandle,
    it: WorkflowOrigin<'_>,
    ChosenFile { seen, path }: ChosenFile<'_>,
) -> Result<DevcontainerRecord, Failure> {
    let profile = cx.config.sandbox.profile(it.profile);
    let name = seen.name().to_owned();
    let variables = Variables {
        local_name: name.clone(),
        id: sandbox.key.to_string(),
        local_env: local_env(cx),
        ..Variables::in_worktree(it.workflow, seen.local.then_some(seen.url.as_str()))
    };
    let files = BuildFiles::Commit { worktrees: &sandbox.worktrees, seen };
    let judged = judge(cx, files, &path, &variables, profile.image.as_ref()).await?;
    let file = &judged.file;
    let own = &cx.config.sandbox;
    let limits = Limits { memory: Some(own.memory), cpus: Some(own.cpus), pids: Some(own.pids) };
    let needs = unmet(&file.needs, &limits, false).into_iter();
    let needs =
        needs.map(|it| SandboxWarning::new("host_requirements", format!("{it} (`sandbox.cpus`, `sandbox.memory`)")));
    let mut warnings: Vec<_> =
        [file.warnings.clone(), judged.recipe.warnings.clone()].into_iter().flatten().chain(needs).collect();
    let ready = ensure_ready(cx).await?;
    let made = judged.build(cx, files, &path, &variables, &ready).await?;
    let agent = agent(cx, &ready, &made, file.user.as_deref(), &mut warnings).await?;
    let JudgedFile { bytes, recipe, .. } = judged;
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
        kept_out: recipe.excluded,
        warnings,
    })
}

/// Looks up the exec user in the image. It is never root, and never the worker's uid.
async fn agent(
    cx: &Context,
    ready: &Ready,
    made: &DevcontainerImage,
    requested: Option<&str>,
    warnings: &mut Vec<SandboxWarning>,
) -> Result<DevcontainerUser, Failure> {
    let Some(requested) = requested else { return Ok(DevcontainerUser::default()) };
    let invalid = |why: String| Failure::new(Code::DevcontainerInvalid, why).detail("property", "remoteUser");
    let request = UserRequest::parse(requested).map_err(|err| invalid(err.to_string()))?;
    let not_root = |warnings: &mut Vec<SandboxWarning>| {
        let message = format!("`{requested}` is root, which is used only to build the image; commands run as `agent`");
        warnings.push(SandboxWarning::new("devcontainer_ignored", message));
        Ok(DevcontainerUser::default())
    };
    if request == UserRequest::Ids(Ids::ROOT) {
        return not_root(warnings);
    }
    let (runtime, store) = (&*ready.runtime, cx.store()?);
    let mut making = Creation::begin(runtime, &store, draft(cx)?).await?;
    let known = accounts(cx, ready, &mut making, &made.image).await;
    for err in making.undo().await {
        tracing::warn!(%err, "cannot remove the container that was inspected");
    }
    let known = known?;
    let ids = known
        .resolve(&request)
        .map_err(|_| invalid(format!("there is no user `{requested}` in the image {}", made.reference)))?;
    if ids.is_root() {
        return not_root(warnings);
    }
    if ids.uid == WORKER.uid {
        return Err(invalid(format!("`{requested}` has the uid {}, as the worker has", WORKER.uid)));
    }
    if ids == AGENT {
        return Ok(DevcontainerUser { name: requested.to_owned(), ..DevcontainerUser::default() });
    }
    let home = known.home(ids.uid).filter(|it| *it != "/" && *it != "/nonexistent");
    let home = home.map_or_else(|| "/home/agent".to_owned(), str::to_owned);
    Ok(DevcontainerUser { name: requested.to_owned(), ids, home })
}
