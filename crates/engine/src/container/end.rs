//! Stops and removes containers.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use coracle_host::fs;
use coracle_host::lock::Lock;
use coracle_runtime::RemovalOutcome;
use coracle_types::{ContainerId, Error, ProcessId, Result};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};

use super::containers::{StoredContainer, find, lock_names, release_name};
use super::directory::{ContainerDir, read_json};
use super::start::lock;
use super::state::{RunRecord, State};
use super::{by_runtime, host_error};
use crate::blocking::blocking;
use crate::directories::Directories;
use crate::engine::Engine;
use crate::network::{AttachmentRecord, detach, end_stack};
use crate::pending::Operation;

/// How long a killed process may take to end.
const KILL_TIMEOUT: Duration = Duration::from_secs(30);

/// Stops a container: sends its stop signal, and KILL after `grace`.
pub(crate) async fn stop(engine: &Arc<Engine>, id: &ContainerId, grace: Duration) -> Result<()> {
    let container = find(engine, &id.into())?;
    let _lock = lock(&container, "stop").await?;
    let state = container.state()?;
    let State::Running { run, process } = &state else { return Ok(()) };
    let pending = engine.pending.begin(&Operation::StopContainer(id.clone()))?;
    let signal = container.config.service.as_ref().and_then(|it| it.stop_signal);
    let signal = signal.and_then(Signal::from_named_raw).unwrap_or(Signal::TERM);
    end_process(process, EndBy::Signal { signal, grace }).await?;
    // Errors are ignored: the container has ended, and the next start or the removal clears what is still recorded.
    let _ = clear_run(engine, &container, run).await;
    pending.finish();
    Ok(())
}

/// Kills a container if it runs, and removes it.
pub(crate) async fn remove(engine: &Arc<Engine>, id: &ContainerId) -> Result<RemovalOutcome> {
    let container = match find(engine, &id.into()) {
        Err(Error::NoSuchContainer(_)) => return Ok(RemovalOutcome::AlreadyGone),
        found => found?,
    };
    let lock = match lock(&container, "remove").await {
        Err(Error::NoSuchContainer(_)) => return Ok(RemovalOutcome::AlreadyGone),
        taken => taken?,
    };
    let pending = engine.pending.begin(&Operation::RemoveContainer(id.clone()))?;
    let removed = remove_locked(engine, container, lock).await;
    if removed.is_ok() {
        pending.finish();
    }
    removed
}

/// Removes a container; `lock` is its lock.
pub(super) async fn remove_locked(
    engine: &Arc<Engine>,
    container: StoredContainer,
    lock: Lock,
) -> Result<RemovalOutcome> {
    let failed = || host_error("cannot remove the container");
    kill(engine, &container).await?;
    let taken = {
        let _names = lock_names(engine, "remove").await?;
        release_name(engine, &container.config);
        engine.trash.take(container.dir.path()).map_err(failed())?
    };
    drop(lock);
    let Some(taken) = taken else { return Ok(RemovalOutcome::AlreadyGone) };
    let engine = engine.clone();
    blocking("remove a container", move || engine.trash.delete(&[taken]).map_err(failed())).await?;
    Ok(RemovalOutcome::Now)
}

/// Kills a container's processes, and removes its control group and network.
///
/// # Errors
/// If some of it is left. The records of it stay, since nothing else tells what to clear.
pub(super) async fn kill(engine: &Arc<Engine>, container: &StoredContainer) -> Result<()> {
    let state = container.state()?;
    if let State::Running { process, .. } = &state {
        end_process(process, EndBy::Kill).await?;
    }
    match state.run() {
        Some(run) => clear_run(engine, container, run).await?,
        // A failed start may have connected the network.
        None => clear_network(&engine.directories, &container.config.id, &container.dir).await?,
    }
    // An interrupted start may have left mounts, which the removal of the directory would empty.
    by_runtime::clear(engine, container).await
}

/// Removes what a run leaves outside the container's directory. A failure does not stop the rest.
///
/// # Errors
/// The first failure; all of them are logged.
pub(super) async fn clear_run(engine: &Arc<Engine>, container: &StoredContainer, run: &RunRecord) -> Result<()> {
    let mounts = by_runtime::clear(engine, container).await;
    let network = clear_network(&engine.directories, &container.config.id, &container.dir).await;
    let group = run.group.remove();
    for (what, cleared) in [("mounts", &mounts), ("the network", &network), ("the control group", &group)] {
        if let Err(err) = cleared {
            tracing::warn!(container = %container.config.name, %err, "{what} of the container cannot be removed");
        }
    }
    mounts.and(network).and(group)
}

/// Ends the network helpers of a container that does not run, and then removes their records, which nothing else could
/// replace. Also removes the marker file of an interrupted start.
pub(super) async fn clear_network(directories: &Directories, id: &ContainerId, dir: &ContainerDir) -> Result<()> {
    let (file, pid_file) = (dir.network_file(), dir.network_pid_file());
    let read = read_json::<AttachmentRecord>(&file).map_err(host_error("cannot read the record of its network"))?;
    match read {
        Some(attached) => detach(&attached, id, directories).await?,
        None if pid_file.exists() => {
            let (pid_file, failed) = (pid_file.clone(), host_error("cannot end the network of the container"));
            blocking("end helpers", move || end_stack(&pid_file, None).map_err(failed)).await?;
        }
        None => {}
    }
    // In this order: a record without the marker file means that the start was complete.
    let mut records = [file, pid_file, dir.starting_file()].into_iter();
    records.try_for_each(|it| fs::remove(&it)).map_err(host_error("cannot remove the record of its network"))
}

/// How PID 1 is ended.
#[derive(Clone, Copy, Debug)]
enum EndBy {
    /// By a signal, and by KILL if it still runs after `grace`.
    Signal {
        signal: Signal,
        grace: Duration,
    },
    Kill,
}

/// Ends PID 1. The kernel ends all other processes of its namespace first.
async fn end_process(process: &ProcessId, by: EndBy) -> Result<()> {
    let Some(pidfd) = open(process) else { return Ok(()) };
    let failed = || host_error("cannot end the container's processes");
    let pidfd = crate::sys::watch_process(pidfd).map_err(failed())?;
    let ended = async |timeout| tokio::time::timeout(timeout, pidfd.readable()).await.is_ok();
    let has_ended = match by {
        EndBy::Signal { signal, grace } => pidfd_send_signal(pidfd.get_ref(), signal).is_ok() && ended(grace).await,
        EndBy::Kill => false,
    };
    if !has_ended {
        match pidfd_send_signal(pidfd.get_ref(), Signal::KILL) {
            Ok(()) | Err(rustix::io::Errno::SRCH) => {}
            Err(err) => return Err(failed()(err.into())),
        }
        if !ended(KILL_TIMEOUT).await {
            return Err(Error::TimedOut { verb: "stop", after: KILL_TIMEOUT });
        }
    }
    // Reaps it, if this process is its parent.
    let _ = waitid(WaitId::PidFd(pidfd.get_ref().as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    Ok(())
}

/// Whether PID 1 has ended or is exiting, which takes until the kernel has ended all others of its namespace. If so, waits
/// until it has ended.
pub(super) async fn ends(process: &ProcessId) -> bool {
    let Some(pidfd) = open(process) else { return true };
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", process.pid)).unwrap_or_default();
    if !is_exiting(&stat) {
        return false;
    }
    let Ok(pidfd) = crate::sys::watch_process(pidfd) else { return false };
    tokio::time::timeout(KILL_TIMEOUT, pidfd.readable()).await.is_ok()
}

/// Whether a process exits, by the flags in field 9 of its `/proc/PID/stat`. An empty line is that of a process that has
/// ended.
fn is_exiting(stat: &str) -> bool {
    const PF_EXITING: u32 = 0x4;
    let flags = stat.rsplit_once(')').and_then(|it| it.1.split_whitespace().nth(6)?.parse::<u32>().ok());
    flags.is_none_or(|it| it & PF_EXITING != 0)
}

/// Opens a process. `None` if it has ended, or another one has its number.
pub(super) fn open(process: &ProcessId) -> Option<OwnedFd> {
    let pid = Pid::from_raw(i32::try_from(process.pid).ok()?)?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).ok()?;
    process.alive().then_some(pidfd)
}

#[cfg(test)]
mod tests {
    use coracle_host::process::{Invocation, spawn_detached};
    use coracle_runtime::{ContainerRuntime as _, RemovalOutcome};
    use coracle_types::{ContainerId, ProcessId};

    use super::super::containers::{add, find};
    use super::super::directory::{ContainerDir, write_json};
    use super::super::state::RunRecord;
    use super::{clear_network, is_exiting};
    use crate::cgroup::ContainerGroup;
    use crate::directories::Directories;
    use crate::network::AttachmentRecord;
    use crate::{EmbeddedRuntime, EngineOptions};

    #[tokio::test]
    async fn the_record_of_a_network_stays_until_the_network_is_cleared() {
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories::open(dir.path()).unwrap();
        let container = ContainerDir::at(dir.path().join("it"));
        let id = ContainerId::parse("0123456789abcdef".repeat(4)).unwrap();
        std::fs::create_dir(container.path()).unwrap();
        clear_network(&directories, &id, &container).await.unwrap();
        let attached = AttachmentRecord { network: Some("some".into()), ..AttachmentRecord::default() };
        write_json(&container.network_file(), &attached).unwrap();
        // A directory in the place of the member's record cannot be removed as a file.
        let member = directories.networks().join("some.members").join(format!("{id}.json"));
        std::fs::create_dir_all(&member).unwrap();
        assert!(clear_network(&directories, &id, &container).await.is_err());
        assert!(container.network_file().exists());
        std::fs::remove_dir(&member).unwrap();
        clear_network(&directories, &id, &container).await.unwrap();
        assert!(!container.network_file().exists());
        // What cannot be read may be a record.
        std::fs::create_dir(container.network_file()).unwrap();
        assert!(clear_network(&directories, &id, &container).await.is_err());
    }

    #[tokio::test]
    async fn a_helper_that_was_started_before_the_network_was_recorded_ends_with_the_network() {
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories::open(dir.path()).unwrap();
        let container = ContainerDir::at(dir.path().join("it"));
        let id = ContainerId::parse("0123456789abcdef".repeat(4)).unwrap();
        std::fs::create_dir(container.path()).unwrap();
        let sleep = Invocation::new("/bin/sleep", ["60"]);
        let pid = spawn_detached(&sleep, std::fs::File::open("/dev/null").unwrap()).unwrap();
        let process = ProcessId::from_pid(pid).unwrap();
        write_json(&container.network_pid_file(), &process).unwrap();
        std::fs::write(container.starting_file(), "").unwrap();
        clear_network(&directories, &id, &container).await.unwrap();
        assert!(!process.alive());
        assert!(!container.network_pid_file().exists() && !container.starting_file().exists());
    }

    #[tokio::test]
    async fn a_container_is_not_removed_while_some_of_its_network_is_left() {
        is_not_removed_while_some_of_its_network_is_left(true).await;
    }

    #[tokio::test]
    async fn a_container_whose_start_failed_is_not_removed_while_some_of_its_network_is_left() {
        is_not_removed_while_some_of_its_network_is_left(false).await;
    }

    async fn is_not_removed_while_some_of_its_network_is_left(has_run: bool) {
        let dir = tempfile::tempdir().unwrap();
        let runtime = EmbeddedRuntime::open(EngineOptions::example(dir.path())).unwrap();
        let (engine, config) = (runtime.engine(), crate::config::example(Vec::new()));
        add(engine, &config, |_| Ok(())).await.unwrap();
        let files = find(engine, &(&config.id).into()).unwrap().dir;
        // Of a process that has ended: this one started later.
        let stat = format!("{} (init) S {}1", ProcessId::current().pid, "0 ".repeat(18));
        std::fs::write(files.process_file(), stat).unwrap();
        if has_run {
            write_json(&files.run_file(), &RunRecord::new(ContainerGroup::default())).unwrap();
        }
        let attached = AttachmentRecord { network: Some("some".into()), ..AttachmentRecord::default() };
        write_json(&files.network_file(), &attached).unwrap();
        // A directory in the place of the member's record cannot be removed as a file.
        let member = engine.directories.networks().join("some.members").join(format!("{}.json", config.id));
        std::fs::create_dir_all(&member).unwrap();
        assert!(runtime.remove(&config.id).await.is_err());
        assert!(files.network_file().exists());
        std::fs::remove_dir(&member).unwrap();
        assert!(matches!(runtime.remove(&config.id).await, Ok(RemovalOutcome::Now)));
        assert!(!files.path().exists());
    }

    #[test]
    fn a_process_that_exits_is_known_by_its_flags() {
        assert!(!is_exiting(&std::fs::read_to_string("/proc/self/stat").unwrap()));
        assert!(is_exiting("7 (a) b) S 1 7 7 0 -1 4194628 20 0"));
        assert!(is_exiting(""));
    }
}
