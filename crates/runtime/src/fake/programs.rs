//! Commands of a fake container as real programs of the host.
//!
//! Every program carries `CORACLE_MARK=<start of the container's id>-<random>` in its environment, and so does what it
//! starts. By that mark a command's tree, or all that runs "in" a container, is found in `/proc` and ended.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;

use coracle_guest::machine::SpawnSpec;
use coracle_host::drain::{Drain, DrainOutcome};
use coracle_host::process::{Invocation, Stdin, spawn};
use coracle_host::process_marker::{MARK, marked, signal};
pub(super) use coracle_host::process_marker::{end_marked, marked_at_rest};
use coracle_types::{Command, ContainerId, ContainerPath, Exec, ExecOutput, Ids, Result, random_hex};
use rustix::process::Signal;
use tokio::process::Child;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Programs of the host that run commands without a reply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Programs {
    #[default]
    None,
    /// They run as the user of the test.
    #[cfg_attr(
        not(feature = "programs"),
        expect(dead_code, reason = "only test builds have an engine that starts them")
    )]
    AsCaller,
    /// Those of a guest run as the command's user, which needs root.
    AsUser,
}

/// The context of a host program, beside its command.
#[derive(Debug)]
pub(super) struct ProgramContext<'a> {
    /// A directory of the host.
    pub(super) workdir: PathBuf,
    /// The user, where it is not the caller.
    pub(super) user: Option<Ids>,
    /// Environment of the image.
    pub(super) image_env: &'a [String],
    /// The mark that identifies it.
    pub(super) mark: &'a str,
}

/// Enters a directory and becomes the command. The shell reports a missing program with 127, and one that is not
/// executable with 126.
const ENTER: &str = r#"cd -- "$1" || exit 126; shift; exec "$@""#;

/// The same as another user.
const ENTER_AS: &str = r#"cd -- "$1" || exit 126; uid=$2 gid=$3; shift 3; exec setpriv --reuid="$uid" --regid="$gid" --clear-groups -- "$@""#;

const PATH: &str = "/usr/bin:/bin";

/// One round misses processes that were forked during its scan.
const ROUNDS: usize = 20;

pub(super) async fn run(
    id: &ContainerId,
    mut exec: Exec,
    workdir: PathBuf,
    image_env: &[String],
    life: &CancellationToken,
) -> Result<ExecOutput> {
    let begun = Instant::now();
    let mark = format!("{}{}", mark_of(id), random_hex::<8>());
    let stdin = exec.stdin.take().map_or(Stdin::Empty, Stdin::from);
    let context = ProgramContext { workdir, user: None, image_env, mark: &mark };
    let mut child = spawn(&invocation(&exec, context), stdin)?;
    let mut drain = Drain::new(&mut child, exec.keep_bytes, exec.live.take());
    let ended = exec.cancel.child_token();
    let with_container = async {
        life.cancelled().await;
        ended.cancel();
        std::future::pending().await
    };
    let end = tokio::select! {
        end = drain.until_end(&mut child, &exec.limits, &ended) => end,
        end = with_container => end,
    };
    // A container that ended took its processes along; that is no exit of the command's own.
    let end = if life.is_cancelled() { DrainOutcome::Cancelled } else { end };
    let tree_ended = match end {
        DrainOutcome::Exited(_) => None,
        _ => Some(end_marked(&mark, exec.limits.grace).await),
    };
    let (stdout, stderr) = drain.finish(&mut child).await;
    Ok(ExecOutput::plain(end.into(), (stdout, stderr), tree_ended, begun.elapsed()))
}

/// Starts a command of a played guest.
pub(super) fn start(command: Command, plan: &SpawnSpec, context: ProgramContext<'_>) -> Result<Child> {
    let mut exec = Exec::new(command, Ids::ROOT, ContainerPath::root());
    let env = plan.env.iter().map(|it| String::from_utf8_lossy(it).into_owned());
    exec.env = env.filter_map(|it| it.split_once('=').map(|it| (it.0.to_owned(), it.1.to_owned()))).collect();
    let stdin = if plan.stdin { Stdin::Open } else { Stdin::Empty };
    let mut it = invocation(&exec, context);
    for variable in plan.session.variables().iter().filter(|_| !plan.bare) {
        let mut parts = variable.splitn(2, |byte| *byte == b'=');
        let name = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
        // The command's own variables win, and the mark cannot be removed.
        if !exec.env.contains_key(&name) && name != MARK {
            it.env.insert(name, OsString::from_vec(parts.next().unwrap_or_default().to_vec()));
        }
    }
    spawn(&it, stdin)
}

fn invocation(exec: &Exec, context: ProgramContext<'_>) -> Invocation {
    let ProgramContext { workdir, user, image_env, mark } = context;
    let enter = if user.is_some() { ENTER_AS } else { ENTER };
    let user = user.into_iter().flat_map(|it| [it.uid.to_string().into(), it.gid.to_string().into()]);
    let words = ["-c".into(), enter.into(), "fake".into(), workdir.into_os_string()].into_iter().chain(user);
    let command = exec.command.clone().into_argv().into_iter().map(OsString::from);
    let mut it = Invocation::new("/bin/sh", words.chain(command));
    it.env
        .extend(image_env.iter().filter_map(|it| it.split_once('=')).map(|(name, value)| (name.into(), value.into())));
    // Programs are the host's, so the image's search path has no meaning here.
    it.env.insert("PATH".into(), PATH.into());
    it.env.extend(exec.env.iter().map(|(name, value)| (name.clone(), value.into())));
    it.env.insert(MARK.into(), mark.into());
    it
}

/// KILL for all that runs in a container. Does not wait for the last of them to be gone.
pub(super) fn kill_now(id: &ContainerId) {
    let mark = mark_of(id);
    for _ in 0..ROUNDS {
        let left = marked(&mark);
        if left.is_empty() {
            return;
        }
        signal(&left, Signal::KILL);
    }
}

/// The common prefix of all marks of a container's programs.
fn mark_of(id: &ContainerId) -> String {
    format!("{}-", id.short())
}
