//! Applies a file inside a running sandbox: links, and commands.

use coracle_client::Link;
use coracle_devcontainer::file::LifecycleStage;
use coracle_devcontainer::hooks::{CommandRan, RunAs, run};
use coracle_devcontainer::mounts::MountKind;
use coracle_protocol::{ErrorCode, FileEntry, FileKind, FileRef, UserSpec};
use coracle_types::{ContainerPath, Error, Ids, SandboxWarning};
use coracle_worktrees::create::Worktree;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::devcontainer_state::{DevcontainerState, HookProgress, lock_file};
use crate::handle::{OpenSandbox, SandboxHandle};
use crate::{Failure, Result};

/// Where volumes of a file lie: in the sandbox's own volume, so that they stay and go with it.
const VOLUMES: &str = "/workspace/.volumes";

/// What a sandbox got of its file.
#[derive(Clone, Debug, Serialize)]
pub struct DevcontainerReport {
    /// The path of the file in the repository.
    pub file: String,
    commit: String,
    image: String,
    /// The image was built of the repository's files.
    built: bool,
    features: Vec<String>,
    user: String,
    workspace_folder: Option<String>,
    mounts: Vec<MountReport>,
    /// Names of variables.
    env: Vec<String>,
    /// Ports of services inside, which are reported and not forwarded.
    forward_ports: Vec<String>,
    /// Files of the repository that were excluded from the build.
    kept_out: Vec<String>,
    /// Commands that ran now.
    pub commands: Vec<CommandRan>,
    /// The command that failed, now or before: none follows it.
    pub failed: Option<CommandRan>,
    /// What has no effect.
    pub warnings: Vec<SandboxWarning>,
}

#[derive(Clone, Debug, Serialize)]
struct MountReport {
    kind: &'static str,
    at: String,
    source: Option<String>,
}

impl SandboxHandle {
    /// Does what the sandbox's file asks for once it runs: links once for each container, commands once for that or at
    /// each start. `None` without a file. `before` is called before the commands of a stage.
    ///
    /// # Errors
    /// `cancelled`, and those of the link.
    pub async fn apply_devcontainer<F>(
        &self,
        open: &OpenSandbox,
        worktree: &Worktree,
        cancel: &CancellationToken,
        before: impl Fn(LifecycleStage) -> F + Send + Sync,
    ) -> Result<Option<DevcontainerReport>>
    where
        F: Future<Output = ()> + Send,
    {
        let Some(state) = &self.devcontainer else { return Ok(None) };
        self.set_env(open, worktree).await?;
        let dir = self.sandbox.dir();
        let _lock = lock_file(dir.root().join("devcontainer-ran.lock")).await?;
        let link = &open.inside.link;
        let run_id = link.run_id().await.map_err(|err| self.services.failure(err))?;
        let mut progress = HookProgress::load(dir)?;
        if progress.container != open.container() {
            progress = HookProgress { container: open.container().to_owned(), ..HookProgress::default() };
        }
        let mut report = report_of(state);
        // Before any command of the repository ran: later a link of the agent's could lead root elsewhere.
        if !progress.linked {
            let warnings = create_links(link, state, open.inside.agent, worktree).await;
            report.warnings.extend(warnings.map_err(|err| self.services.failure(err))?);
            progress.linked = true;
            progress.save(dir)?;
        }
        let workdir = ContainerPath::parse(&worktree.path).map_err(Failure::internal)?;
        let user = RunAs { link, user: open.inside.agent, workdir, cancel: cancel.clone() };
        for stage in LifecycleStage::ALL {
            let due = match stage {
                LifecycleStage::PostStart => progress.started.as_ref() != Some(&run_id),
                stage => !progress.stages.contains(&stage),
            };
            if !due || progress.failed.is_some() {
                continue;
            }
            if let Some(hook) = state.file.hooks.get(&stage) {
                before(stage).await;
                let all = run(stage, hook, &user).await;
                if cancel.is_cancelled() {
                    return Err(Failure::cancelled());
                }
                let failed = all.iter().find(|it| it.error.is_some()).cloned();
                // The next start tries it again; what runs once for a container is not repeated.
                report.failed.clone_from(&failed);
                if stage != LifecycleStage::PostStart {
                    progress.failed = failed;
                }
                report.commands.extend(all);
            }
            match stage {
                LifecycleStage::PostStart => progress.started = Some(run_id.clone()),
                stage => progress.stages.push(stage),
            }
            progress.save(dir)?;
        }
        report.failed = report.failed.or(progress.failed);
        Ok(Some(report))
    }
}

fn report_of(state: &DevcontainerState) -> DevcontainerReport {
    let (record, file) = (&state.record, &state.file);
    let mounts = file.mounts.iter().map(|it| {
        let (kind, source) = match &it.kind {
            MountKind::Bind(source) => ("bind", Some(source.clone())),
            MountKind::Volume(name) => ("volume", Some(name.clone())),
            MountKind::Tmpfs => ("tmpfs", None),
        };
        MountReport { kind, at: it.at.to_string(), source }
    });
    DevcontainerReport {
        file: record.path.clone(),
        commit: record.commit.clone(),
        image: record.image.to_string(),
        built: record.built,
        features: file.features.iter().map(|it| named(&it.name, record.features.get(&it.name))).collect(),
        user: format!("{} ({})", record.agent.name, record.agent.ids),
        workspace_folder: file.workspace_folder.as_ref().map(ToString::to_string),
        mounts: mounts.collect(),
        env: state.env().into_keys().collect(),
        forward_ports: file.forward_ports.clone(),
        kept_out: record.kept_out.clone(),
        commands: Vec::new(),
        failed: None,
        warnings: record.warnings.clone(),
    }
}

/// A feature, and which one it was if its registry could have given another.
fn named(name: &str, digest: Option<&String>) -> String {
    match digest.filter(|it| !name.ends_with(it.as_str())) {
        Some(digest) => format!("{name}@{digest}"),
        None => name.to_owned(),
    }
}

/// Links the worktree and the volumes to the paths of the file. A link that is a warning.
async fn create_links(
    link: &Link,
    state: &DevcontainerState,
    agent: Ids,
    worktree: &Worktree,
) -> Result<Vec<SandboxWarning>, Error> {
    let mut wanted = Vec::new();
    if let Some(folder) = &state.file.workspace_folder {
        wanted.push((folder.clone(), worktree.path.clone()));
    }
    for mount in &state.file.mounts {
        if let MountKind::Volume(name) = &mount.kind {
            let place = format!("{VOLUMES}/{name}");
            link.make_dir(at(agent, &place), 0o755, true).await?;
            wanted.push((mount.at.clone(), place));
        }
    }
    let mut warnings = Vec::new();
    for (place, target) in wanted {
        // The directories that it needs are the agent's where that may make them.
        let mut made = create_link(link, agent, &place, &target).await;
        if made.is_err() && !place.is_beneath("/workspace") {
            made = create_link(link, Ids::ROOT, &place, &target).await;
        }
        if let Err(why) = made {
            let message = format!("there is no link at `{place}`: {why}");
            warnings.push(SandboxWarning::new("devcontainer_ignored", message));
        }
    }
    Ok(warnings)
}

async fn create_link(link: &Link, who: Ids, place: &ContainerPath, target: &str) -> Result<(), Error> {
    if let Some(parent) = place.parent().filter(|it| it.as_str() != "/") {
        link.make_dir(at(who, parent.as_str()), 0o755, true).await?;
    }
    match link.stat(at(who, place.as_str())).await {
        // An empty directory of the image gives way; one that has something in it is refused by the guest.
        Ok(FileEntry { kind: FileKind::Dir, .. }) => link.remove(at(who, place.as_str()), false).await?,
        Err(Error::Refused(fault)) if fault.code != ErrorCode::NotFound => return Err(Error::Refused(fault)),
        _ => {}
    }
    link.make_link(at(who, place.as_str()), target, true).await.map(drop)
}

fn at(who: Ids, path: &str) -> FileRef {
    FileRef { user: UserSpec::Ids { uid: who.uid, gid: Some(who.gid) }, path: path.to_owned(), follow: false }
}
