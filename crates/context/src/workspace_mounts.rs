//! Host directories of a session's workspace: finds and checks them, and copies or bind-mounts them.

use std::path::{Path, PathBuf};

use coracle_client::Link;
use coracle_host::fs::HostPath;
use coracle_lifecycle::VolumeInit;
use coracle_runtime::{Access, Mount, Policy, PolicyRefusal, Problem};
use coracle_types::{ContainerPath, Ids};
use coracle_workspace::{self as workspace, GuestFs, import};

use crate::config::{HostMount, MountMode, Workspace};
use crate::context::Context;
use crate::failure::{Code, Failure};

/// The path of the workspace.
pub const ROOT: &str = "/workspace";

/// The bind mounts that identify a container: directories, and what is mounted over them.
pub fn bound_paths(own: &Workspace) -> Vec<String> {
    let bound = own.mounts.iter().filter(|it| it.mode == MountMode::Bind);
    bound.map(|it| format!("{it:?} {:?}", own.protected)).collect()
}

/// Copies the configured directories into a new workspace, and records that.
pub fn fill(cx: &Context, user: Ids) -> VolumeInit {
    let cx = cx.clone();
    VolumeInit(Box::new(move |link| Box::pin(async move { filled(&cx, user, &link).await.map_err(Into::into) })))
}

async fn filled(cx: &Context, user: Ids, link: &Link) -> Result<(), Failure> {
    let copied = cx.config.workspace.mounts.iter().filter(|it| it.mode == MountMode::Copy);
    let mounts = copied.map(|it| copied_from(it, cx)).collect::<Result<Vec<_>, _>>()?;
    let baseline = import(&GuestFs::new(link.clone(), user, ContainerPath::parse(ROOT)?), mounts).await?;
    Ok(cx.session_containers()?.keep_baseline(&cx.call.session, &baseline).map_err(coracle_lifecycle::Error::from)?)
}

/// Returns the bind mounts.
pub fn bound(cx: &Context) -> Result<Vec<Mount>, Failure> {
    let bound = cx.config.workspace.mounts.iter().filter(|it| it.mode == MountMode::Bind);
    let root = ContainerPath::parse(ROOT)?;
    bound
        .map(|it| {
            let policy = cx.policy()?;
            let (host, _) = found(it, cx, &policy)?;
            if !policy.binds {
                return Err(no_binds(&host));
            }
            Ok(Mount { host, at: root.join(&place(it)?)?, access: Access::ReadWrite })
        })
        .collect()
}

/// Returns a directory to copy, after checking that it is allowed.
pub fn copied_from(mount: &HostMount, cx: &Context) -> Result<workspace::HostMount, Failure> {
    let policy = cx.policy()?;
    let (host, root) = found(mount, cx, &policy)?;
    let bad = |(pattern, why): (String, String)| {
        Failure::new(Code::MountInvalid, format!("`{}` is not a pattern: {why}", pattern.escape_debug()))
    };
    let most = cx.config.copy.max_bytes;
    Ok(workspace::HostMount {
        name: mount.host_path.trim().to_owned(),
        root,
        host,
        at: place(mount)?,
        filter: mount.filter().map_err(bad)?,
        max_bytes: mount.max_bytes.map_or(most, |it| it.min(most)).0,
        max_entries: cx.config.copy.max_entries,
        follow: mount.follow_symlinks,
        policy,
    })
}

/// Returns the working directory, to be copied into a requested container.
pub fn working_dir(cx: &Context) -> Result<workspace::HostMount, Failure> {
    let whole = HostMount {
        host_path: cx.config.working_dir(&cx.host).display().to_string(),
        mount_path: None,
        include_glob: Vec::new(),
        exclude_glob: Vec::new(),
        max_bytes: None,
        follow_symlinks: false,
        mode: MountMode::Copy,
    };
    copied_from(&whole, cx)
}

fn place(mount: &HostMount) -> Result<String, Failure> {
    mount.place().map_err(|why| Failure::new(Code::MountInvalid, format!("mount_path: {why}")))
}

/// Returns the directory, and the allowed directory that contains it.
fn found(mount: &HostMount, cx: &Context, policy: &Policy) -> Result<(HostPath, HostPath), Failure> {
    let path = mount.host_path.trim();
    if path.is_empty() {
        return Err(Failure::new(Code::MountInvalid, "Host mount path must not be empty.").hint("name a directory"));
    }
    let roots: Vec<&PathBuf> = policy.allow_roots.iter().filter(|it| **it != policy.scratch).collect();
    if roots.is_empty() {
        let message = "No allowed host roots configured for mounts.";
        return Err(denied(message, problem(path, "no directory is allowed")));
    }
    let outside = || problem(path, "it lies beneath no directory that may be shared");
    let missing = |it| denied(OUTSIDE, it);
    let path = match path.strip_prefix("~/") {
        Some(rest) => cx.host.home.join(rest),
        None => PathBuf::from(path),
    };
    let there = roots.iter().map(|root| root.join(&path)).find(|it| it.is_dir());
    let host =
        there.and_then(|it| HostPath::open(&it).ok()).filter(HostPath::is_dir).ok_or_else(|| missing(outside()))?;
    if let Some(problem) = policy.host_path_problem("mount", host.real()) {
        return Err(missing(problem));
    }
    // The innermost one, to restrict the targets of links as much as possible.
    let root = roots.into_iter().filter(|it| host.real().starts_with(it)).max_by_key(|it| it.as_os_str().len());
    let root = root.map_or(Path::new(""), PathBuf::as_path);
    let root = HostPath::open(root).map_err(|_| missing(outside()))?;
    Ok((host, root))
}

const OUTSIDE: &str = "Host path is outside the allowed roots or missing.";

fn problem(value: &str, message: &str) -> Problem {
    let setting = Some("workspace.allow_roots");
    Problem { rule: "mount.root", setting, value: value.to_owned(), message: message.to_owned() }
}

fn no_binds(host: &HostPath) -> Failure {
    let value = host.real().display().to_string();
    let message = "host directories are copied, not bound".to_owned();
    PolicyRefusal { problems: vec![Problem { rule: "mount.bind", setting: Some("workspace.mode"), value, message }] }
        .into()
}

/// Builds a refusal.
fn denied(message: &str, problem: Problem) -> Failure {
    Failure::from(PolicyRefusal { problems: vec![problem] }).with_message(message)
}
