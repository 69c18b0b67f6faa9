//! What a file asks for inside: links, and commands.

use coracle_runtime::link::Link;
use coracle_runtime::link::protocol::{ErrorCode, FileEntry, FileKind, FileRef, UserSpec};
use coracle_runtime::{ContainerPath, Error, Ids};
use coracle_sandbox::Warning;
use coracle_sandbox::devcontainer::{CommandRan, MountKind, RunAs, Stage, run};
use coracle_sandbox::worktree::Worktree;
use serde::Serialize;

use super::record::{Done, Worn, alone, done, save_done};
use crate::context::Context;
use crate::document::{StyledText, word};
use crate::failure::Failure;
use crate::sandbox::home::{Home, Open};

/// Where volumes of a file lie: in the sandbox's own one, so that they stay and go with it.
const VOLUMES: &str = "/workspace/.volumes";

/// What of a file was honoured.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Told {
    file: String,
    commit: String,
    image: String,
    /// The image was made of the repository's files.
    built: bool,
    features: Vec<String>,
    user: String,
    workspace_folder: Option<String>,
    mounts: Vec<Mounted>,
    /// Names of variables.
    env: Vec<String>,
    /// Ports of services inside, which are told and led nowhere.
    forward_ports: Vec<String>,
    /// Files of the repository that no build saw.
    kept_out: Vec<String>,
    /// Commands that ran now.
    commands: Vec<CommandRan>,
    /// The command that failed, now or before: none follows it.
    failed: Option<CommandRan>,
    warnings: Vec<Warning>,
}

impl Told {
    /// The file.
    pub(crate) fn file(&self) -> &str {
        &self.file
    }

    /// Its commands with their outcomes, and what has no effect.
    pub(crate) fn lines(&self) -> Vec<StyledText> {
        let command = |it: &CommandRan| {
            let name = [word(it.stage), it.name.clone().unwrap_or_default()].join(" ");
            let (line, name) = (StyledText::from("  "), name.trim_end());
            match &it.error {
                None => line.good("ran").plain(format!(" {name}")),
                Some(error) => {
                    let output = it.output.lines().collect::<Vec<_>>().join("\n");
                    line.bad("failed").plain(format!(" {name}: {error}\n{output}"))
                }
            }
        };
        // A failure of an earlier call is shown as long as it keeps other commands from running.
        let earlier = self.failed.iter().filter(|it| !self.commands.contains(it));
        let warning = |it: &Warning| StyledText::from("  ").doubtful("note").plain(format!(" {}", it.message));
        let commands = self.commands.iter().chain(earlier).map(command);
        commands.chain(self.warnings.iter().map(warning)).collect()
    }
}

#[derive(Clone, Debug, Serialize)]
struct Mounted {
    kind: &'static str,
    at: String,
    source: Option<String>,
}

/// Does what the file of a sandbox asks for once it runs: links once for each container, commands once for that or at each
/// start.
pub(crate) async fn enter(
    cx: &Context,
    home: &Home,
    open: &Open,
    worktree: &Worktree,
) -> Result<Option<Told>, Failure> {
    let Some(worn) = &home.worn else { return Ok(None) };
    let dir = home.sandbox.dir();
    let _alone = alone(dir.root().join("devcontainer-ran.lock")).await?;
    let link = &open.inside.link;
    let run_id = link.run_id().await?;
    let mut ran = done(dir)?;
    if ran.container != open.container() {
        ran = Done { container: open.container().to_owned(), ..Done::default() };
    }
    let mut told = told(worn);
    // While nobody but the image had a hand in it: later a link of the agent's could lead root elsewhere.
    if !ran.linked {
        told.warnings.extend(links(link, (worn, open.inside.agent), worktree).await?);
        ran.linked = true;
        save_done(dir, &ran)?;
    }
    let workdir = ContainerPath::parse(&worktree.path)?;
    let who = RunAs { link, user: open.inside.agent, workdir, cancel: cx.call.cancel.clone() };
    for stage in Stage::ALL {
        let due = match stage {
            Stage::PostStart => ran.started.as_ref() != Some(&run_id),
            stage => !ran.stages.contains(&stage),
        };
        if !due || ran.failed.is_some() {
            continue;
        }
        if let Some(hook) = worn.file.hooks.get(&stage) {
            cx.call.progress.message(format!("running {}", stage.property())).await;
            let all = run(stage, hook, &who).await;
            if cx.call.cancel.is_cancelled() {
                return Err(Failure::cancelled());
            }
            let failed = all.iter().find(|it| it.error.is_some()).cloned();
            // At the next start it gets another try; what runs once for a container does not.
            told.failed.clone_from(&failed);
            if stage != Stage::PostStart {
                ran.failed = failed;
            }
            told.commands.extend(all);
        }
        match stage {
            Stage::PostStart => ran.started = Some(run_id.clone()),
            stage => ran.stages.push(stage),
        }
        save_done(dir, &ran)?;
    }
    told.failed = told.failed.or(ran.failed);
    Ok(Some(told))
}

fn told(worn: &Worn) -> Told {
    let (record, file) = (&worn.record, &worn.file);
    let mounts = file.mounts.iter().map(|it| {
        let (kind, source) = match &it.kind {
            MountKind::Bind(source) => ("bind", Some(source.clone())),
            MountKind::Volume(name) => ("volume", Some(name.clone())),
            MountKind::Tmpfs => ("tmpfs", None),
        };
        Mounted { kind, at: it.at.to_string(), source }
    });
    Told {
        file: record.path.clone(),
        commit: record.commit.clone(),
        image: record.image.to_string(),
        built: record.built,
        features: file.features.iter().map(|it| named(&it.name, record.features.get(&it.name))).collect(),
        user: format!("{} ({})", record.agent.name, record.agent.ids),
        workspace_folder: file.workspace_folder.as_ref().map(ToString::to_string),
        mounts: mounts.collect(),
        env: worn.env().into_keys().collect(),
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

/// Links to the worktree and to places that stay. One that something else is in the way of is told.
async fn links(link: &Link, (worn, agent): (&Worn, Ids), worktree: &Worktree) -> Result<Vec<Warning>, Failure> {
    let mut wanted = Vec::new();
    if let Some(folder) = &worn.file.workspace_folder {
        wanted.push((folder.clone(), worktree.path.clone()));
    }
    for mount in &worn.file.mounts {
        if let MountKind::Volume(name) = &mount.kind {
            let place = format!("{VOLUMES}/{name}");
            link.make_dir(at(agent, &place), 0o755, true).await?;
            wanted.push((mount.at.clone(), place));
        }
    }
    let mut warnings = Vec::new();
    for (place, target) in wanted {
        // The directories that it needs are the agent's where that may make them.
        let mut made = linked(link, (&place, agent), &target).await;
        if made.is_err() && !place.is_beneath("/workspace") {
            made = linked(link, (&place, Ids::ROOT), &target).await;
        }
        if let Err(why) = made {
            let message = format!("there is no link at `{place}`: {why}");
            warnings.push(Warning::new("devcontainer_ignored", message));
        }
    }
    Ok(warnings)
}

async fn linked(link: &Link, (place, who): (&ContainerPath, Ids), target: &str) -> Result<(), Error> {
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
