//! The exec user and the work directory, made and proven in two commands.

use std::time::{Duration, Instant};

use coracle_runtime::link::{Link, protocol::EnsureUser};
use coracle_runtime::{
    Command, ContainerId, ContainerPath, ContainerRuntime, Exec, ExecLimits, ExecOutput, ExecTarget, Exit, Ids,
};

use crate::{Error, Result, Status, StepReport};

/// Where commands will run.
#[derive(Clone, Debug)]
pub struct Workspace {
    /// Its path.
    pub path: ContainerPath,
    /// A host directory is bound there: it is there already, and nothing of it is changed.
    pub bound: bool,
    /// Where anything of the host is bound: no owner is changed at or below these.
    pub binds: Vec<ContainerPath>,
}

/// What is known of the exec user afterwards, and the report's lines about both.
#[derive(Clone, Debug)]
pub struct UserSetupReport {
    /// Name inside.
    pub name: String,
    /// Home inside.
    pub home: ContainerPath,
    /// Login shell inside.
    pub shell: ContainerPath,
    /// The line about the user.
    pub user: StepReport,
    /// The line about the work directory.
    pub workspace: StepReport,
}

/// As root: finds the entry of `$1` in the passwd file or adds one, the same for the group `$2`, makes a missing home,
/// and the work directory `$3` if it is missing. An image needs no `useradd`: only a shell, `mkdir`, `chown` and `chmod`.
/// It runs at the root and names everything from there, so that it serves a root that is a directory of something else.
/// Answers name, home and shell.
const MAKE: &str = r#"uid=$1 gid=$2 workdir=$3
name= home= shell= taken=' ' known=0
if [ -f ./etc/passwd ]; then
  while IFS=: read -r entry _ entry_uid _ _ entry_home entry_shell || [ -n "$entry" ]; do
    taken="$taken$entry "
    if [ "$entry_uid" = "$uid" ] && [ $known = 0 ]; then name=$entry home=$entry_home shell=$entry_shell known=1; fi
  done <./etc/passwd
fi
for candidate in "$shell" /bin/bash /bin/zsh /bin/sh; do
  case $candidate in */bash | */zsh | */sh | */ash | */dash) ;; *) continue ;; esac
  if [ -x ".$candidate" ]; then shell=$candidate; break; fi
done
if [ $known = 0 ]; then
  name=agent number=1
  if [ "$uid" = 0 ]; then name=root home=/root; else home=/home/agent; fi
  while case $taken in *" $name "*) true ;; *) false ;; esac; do number=$((number + 1)) name=agent$number home=/home/agent$number; done
  mkdir -p ./etc
  printf '%s:x:%s:%s::%s:%s\n' "$name" "$uid" "$gid" "$home" "$shell" >>./etc/passwd || exit 1
fi
group=0
if [ -f ./etc/group ]; then
  while IFS=: read -r _ _ entry_gid _ || [ -n "$entry_gid" ]; do [ "$entry_gid" = "$gid" ] && group=1; done <./etc/group
fi
[ $group = 1 ] || printf '%s:x:%s:\n' "$name" "$gid" >>./etc/group || exit 1
case $home in /?*) ;; *) home=/home/$name ;; esac
if [ ! -d ".$home" ]; then mkdir -p ".$home" && chmod 700 ".$home" && chown "$uid:$gid" ".$home" || exit 1; fi
if [ ! -d ".$workdir" ]; then mkdir -p ".$workdir" && chown "$uid:$gid" ".$workdir" || exit 1; fi
printf '%s\n' "$name" "$home" "$shell""#;

/// As the exec user, at the root: who runs, and what it may do in the work directory `$1`.
const PROBE: &str = r#"while read -r key first _; do
  case $key in Uid:) uid=$first ;; Gid:) gid=$first ;; esac
done </proc/self/status
printf '%s\n' "$uid:$gid" "$HOME"
if [ -r ".$1" ] && [ -x ".$1" ]; then if [ -w ".$1" ]; then echo rw; else echo ro; fi; else echo no; fi"#;

/// Makes the user and the work directory, and sees both work.
///
/// # Errors
/// Without them there is no usable container, so every failure is one.
pub async fn prepare(inside: &ExecTarget, user: Ids, workspace: &Workspace) -> Result<UserSetupReport> {
    match inside {
        ExecTarget::Guest(link) => by_guest(link, user, workspace).await,
        ExecTarget::Plain(runtime, id) => by_shell(&**runtime, id, user, workspace).await,
    }
}

/// The guest needs nothing of the image: no shell, no tool.
async fn by_guest(link: &Link, user: Ids, workspace: &Workspace) -> Result<UserSetupReport> {
    let begun = Instant::now();
    let bound = workspace.binds.iter().map(ToString::to_string).collect();
    let ensure = EnsureUser { uid: user.uid, gid: user.gid, workdir: workspace.path.to_string(), bound };
    let seen = link.ensure_user(ensure).await.map_err(|err| match err {
        coracle_runtime::Error::Refused(fault) => Error::User(fault.message),
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

async fn by_shell(
    runtime: &dyn ContainerRuntime,
    id: &ContainerId,
    user: Ids,
    workspace: &Workspace,
) -> Result<UserSetupReport> {
    let begun = Instant::now();
    let arguments = [user.uid.to_string(), user.gid.to_string(), workspace.path.to_string()];
    let mut make = exec(MAKE, &arguments, Ids::ROOT);
    make.env.insert("PATH".into(), "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin".into());
    let output = runtime.exec(id, make).await?;
    let lines = answered(&output).map_err(Error::User)?;
    let [name, home, shell] = lines.as_slice() else { return Err(Error::User("the answer is incomplete".into())) };
    let mut probe = exec(PROBE, &[workspace.path.to_string()], user);
    probe.env.insert("HOME".into(), home.to_string());
    let output = runtime.exec(id, probe).await?;
    let lines = answered(&output).map_err(Error::User)?;
    let [ids, probed_home, access] = lines.as_slice() else {
        return Err(Error::User("the probe is incomplete".into()));
    };
    if probed_home != home {
        return Err(Error::User(format!("a process has the home `{probed_home}`")));
    }
    prepared(user, workspace, UserProbe { ids: ids.clone(), name: name.clone(), home, shell, access }, begun)
}

/// What a process of the user reported.
struct UserProbe<'a> {
    ids: String,
    name: String,
    home: &'a str,
    shell: &'a str,
    /// `rw`, `ro` or `no`: to the work directory.
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

fn exec(program: &str, arguments: &[String], user: Ids) -> Exec {
    let argv = ["/bin/sh", "-c", program, "coracle"].map(str::to_owned).into_iter().chain(arguments.iter().cloned());
    let mut exec = Exec::new(Command::Argv(argv.collect()), user, ContainerPath::root());
    exec.limits = ExecLimits { total: Some(Duration::from_secs(30)), ..ExecLimits::default() };
    exec
}

/// The lines that a constant program printed, or why it failed.
fn answered(output: &ExecOutput) -> Result<Vec<String>, String> {
    if output.exit == Exit::Code(0) {
        return Ok(output.stdout.text().lines().map(str::to_owned).collect());
    }
    let words = output.stderr.text();
    let reason = words.lines().last().unwrap_or("it gave no reason");
    Err(format!("{reason} ({:?})", output.exit))
}
