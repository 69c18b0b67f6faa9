//! Creates and verifies the exec user and the work directory: with the guest, or without one by the engine's archive
//! calls and a command of that user. No program of the image runs as root.

mod accounts_file;
mod by_engine;

use std::time::Instant;

use coracle_client::Link;
use coracle_protocol::EnsureUser;
use coracle_runtime::ExecTarget;
use coracle_types::{ContainerPath, Ids};

use crate::{Error, Result, Status, StepReport};

/// The work directory.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Its path.
    pub path: ContainerPath,
    /// A host directory is mounted there, so it exists and is not changed.
    pub bound: bool,
    /// Where host directories are mounted: at or below these paths, no owner is changed.
    pub binds: Vec<ContainerPath>,
}

/// The exec user, and the report's entries about user and work directory.
#[derive(Clone, Debug)]
pub struct UserSetupReport {
    /// Name inside.
    pub name: String,
    /// Home inside.
    pub home: ContainerPath,
    /// Login shell inside.
    pub shell: ContainerPath,
    /// The entry about the user.
    pub user: StepReport,
    /// The entry about the work directory.
    pub workspace: StepReport,
}

/// Creates the user and the work directory, and verifies both.
///
/// # Errors
/// Every failure is an error, since the container is not usable.
pub async fn prepare(inside: &ExecTarget, user: Ids, workspace: &Workspace) -> Result<UserSetupReport> {
    match inside {
        ExecTarget::Guest(link) => by_guest(link, user, workspace).await,
        ExecTarget::Plain(runtime, id) => by_engine::prepare(&**runtime, id, user, workspace).await,
    }
}

/// Uses the guest, which needs no shell and no tool of the image.
async fn by_guest(link: &Link, user: Ids, workspace: &Workspace) -> Result<UserSetupReport> {
    let begun = Instant::now();
    let bound = workspace.binds.iter().map(ToString::to_string).collect();
    let ensure = EnsureUser { uid: user.uid, gid: user.gid, workdir: workspace.path.to_string(), bound };
    let seen = link.ensure_user(ensure).await.map_err(|err| match err {
        coracle_types::Error::Refused(fault) => Error::User(fault.message),
        other => other.into(),
    })?;
    let access = match (seen.readable, seen.writable) {
        (true, true) => "rw",
        (true, false) => "ro",
        (false, _) => "no",
    };
    let ids = Ids { uid: seen.uid, gid: seen.gid };
    let probe = UserProbe { ids: ids.to_string(), name: seen.name, home: &seen.home, shell: &seen.shell, access };
    prepared(user, workspace, probe, begun)
}

/// The report of a process of the user.
struct UserProbe<'a> {
    ids: String,
    name: String,
    home: &'a str,
    shell: &'a str,
    /// Access to the work directory: `rw`, `ro` or `no`.
    access: &'a str,
}

/// Compares the probe with the request.
fn prepared(user: Ids, workspace: &Workspace, probe: UserProbe<'_>, begun: Instant) -> Result<UserSetupReport> {
    let UserProbe { ids, name, home, shell, access } = probe;
    if ids != user.to_string() {
        return Err(Error::User(format!("a process reports {ids}")));
    }
    let path = |text: &str| ContainerPath::parse(text).map_err(|err| Error::User(err.to_string()));
    let (home, shell) = (path(home)?, path(if shell.is_empty() { "/bin/sh" } else { shell })?);
    let detail = format!("commands run as {name} ({user}), home {home}");
    let user =
        StepReport::success("user", detail, "a process reports uid, gid and home").with_duration(begun.elapsed());
    let workspace = workspace_step(workspace, access)?;
    Ok(UserSetupReport { name, home, shell, user, workspace })
}

fn workspace_step(workspace: &Workspace, access: &str) -> Result<StepReport> {
    let what = if workspace.bound { "a directory of the host" } else { "a directory of the container" };
    let detail = format!("{} is {what}", workspace.path);
    match access {
        "rw" => Ok(StepReport::success("workspace", detail, "the exec user may read and write it")),
        "ro" if workspace.bound => {
            Ok(StepReport::flawed("workspace", Status::Partial, detail, "the exec user may read it and not write it"))
        }
        _ => Err(Error::Workspace(format!("the exec user cannot use {}", workspace.path))),
    }
}
