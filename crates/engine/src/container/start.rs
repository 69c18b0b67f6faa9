//! Starts a container.

use std::fs::File;
use std::io::{PipeWriter, Write as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_types::{ContainerId, Error, Result};

use super::containers::{StoredContainer, find, layer_dirs};
use super::directory::{ContainerDir, KERNEL, write_json};
use super::freeze::{self, FreezeLock};
use super::plan::{HostMounts, RootRequest, StartParts, TreeError, child_plan, root_mount};
use super::repair::end_interrupted_start;
use super::state::{RunRecord, State};
use super::{by_runtime, end, host_error};
use crate::blocking::blocking;
use crate::cgroup::ContainerGroup;
use crate::config::{Init, MountConfig};
use crate::engine::Engine;
use crate::error::refused;
use crate::network::{Attachment, BoundFile, NetworkFilesRequest, attach, detach, network_files};
use crate::pending::Operation;
use crate::sys::{FirstProcess, spawn};
use crate::tree_history::finish_rewind;
use crate::uninterrupted::uninterrupted;
use crate::volume::{ImageDirectory, VolumeRecords};

/// Timeout for a container's lock, which is held for the few milliseconds of a start, or while the processes end.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(30);

/// Starts a container and connects its network. A running container stays as it is, but is thawed if it is frozen. A
/// container whose start was interrupted is ended and started again.
pub(crate) async fn start(engine: &Arc<Engine>, id: &ContainerId) -> Result<()> {
    let container = find(engine, &id.into())?;
    let _lock = lock_whole(engine, &container, "start").await?;
    let state = match container.state()? {
        State::Running { run, .. } if container.is_start_complete() => {
            if run.group.is_frozen() {
                // Waits for the lock: a copy of its files may have frozen it, and thaws it itself.
                return freeze::thaw(&container, &FreezeLock::take(&container).await?);
            }
            return Ok(());
        }
        State::Running { .. } => {
            // A start holds the lock until it is complete, so this one was interrupted.
            end_interrupted_start(engine, &container).await?;
            container.state()?
        }
        ended => ended,
    };
    // The run that an interrupted stop was for has ended. Finishing that stop later would end this run.
    engine.pending.forget_interrupted(&Operation::StopContainer(id.clone()))?;
    let pending = engine.pending.begin(&Operation::StartContainer(id.clone()))?;
    let started = match clear_last_run(engine, &container, &state).await {
        Err(err) => Err(err),
        Ok(()) => match container.config.runtime {
            Some(runtime) => by_runtime::start(engine, &container, runtime).await,
            None => start_ended(engine, &container).await,
        },
    };
    if started.is_ok() {
        pending.finish();
    }
    started
}

/// Cleans up after the last run. A network record that stayed would be taken for that of the new run, and then be
/// overwritten.
async fn clear_last_run(engine: &Arc<Engine>, container: &StoredContainer, state: &State) -> Result<()> {
    if let State::Exited { run, .. } = state {
        // Errors are ignored: of what may be left, only the network would be in the way, and it is cleared below.
        let _ = end::clear_run(engine, container, run).await;
    }
    end::clear_network(&engine.directories, &container.config.id, &container.dir).await
}

/// Starts a container that does not run, after its last run was cleaned up.
async fn start_ended(engine: &Arc<Engine>, container: &StoredContainer) -> Result<()> {
    let started = {
        let (engine, container) = (engine.clone(), container.clone());
        blocking("start a container", move || spawn_init(&engine, &container)).await?
    };
    let pid = started.spawned.pid.as_raw_nonzero().get().unsigned_abs();
    if let Err(err) = connect(engine, container, pid, &started.files).await {
        if let Err(err) = end::kill(engine, container).await {
            tracing::warn!(container = %container.config.name, %err, "a container without its network still runs");
        }
        return Err(err);
    }
    if let Some(mut gate) = started.gate {
        // Fails only if the process has already ended.
        let _ = gate.write_all(b"1");
    }
    reap_in_background(started.spawned.pidfd);
    Ok(())
}

/// PID 1 of a container that was just started.
struct Started {
    spawned: FirstProcess,
    /// For a container without a guest: its program starts when it reads the first byte, which is sent once the network is
    /// connected.
    gate: Option<PipeWriter>,
    files: BoundFiles,
}

/// The files that the engine binds into every container.
#[derive(Debug)]
pub(super) struct BoundFiles {
    hosts: BoundFile,
    resolv_conf: BoundFile,
    hostname: BoundFile,
}

/// Locks the container, and waits for other operations on it. `verb` names the operation in the error of a timeout.
pub(crate) async fn lock(container: &StoredContainer, verb: &'static str) -> Result<Lock> {
    let what = || format!("cannot lock the container `{}`", container.config.name);
    let lock = match Lock::take(&container.dir.lock(), LOCK_TIMEOUT).await {
        // The container was removed meanwhile.
        Err(err) if err.kind() == std::io::ErrorKind::NotFound => {
            return Err(Error::NoSuchContainer(container.config.id.to_string()));
        }
        taken => taken.map_err(host_error(what()))?,
    };
    lock.ok_or(Error::TimedOut { verb, after: LOCK_TIMEOUT })
}

/// [`lock`], after which a rewind that was interrupted is finished: until then, the container's files are of two states.
pub(crate) async fn lock_whole(engine: &Arc<Engine>, container: &StoredContainer, verb: &'static str) -> Result<Lock> {
    let lock = lock(container, verb).await?;
    let (engine, container) = (engine.clone(), container.clone());
    blocking("rewind a container", move || {
        let StoredContainer { config, dir } = &container;
        if container.process()?.is_some() {
            return Ok(());
        }
        let finished = finish_rewind(&dir.checkpoints(), &dir.upper(), &KERNEL, &engine.privileges);
        finished.map_err(host_error(format!("cannot restore the files of `{}`", config.name)))
    })
    .await?;
    Ok(lock)
}

/// Returns the state of a container that a process is about to enter. Waits for a start in progress, and ends a container
/// whose start was interrupted.
///
/// # Errors
/// If that container cannot be ended.
pub(crate) async fn state_to_enter(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    verb: &'static str,
) -> Result<State> {
    let enterable = || -> Result<Option<State>> {
        let state = container.state()?;
        Ok((state.process().is_none() || container.is_start_complete()).then_some(state))
    };
    if let Some(state) = enterable()? {
        return Ok(state);
    }
    let lock = lock(container, verb).await?;
    if let Some(state) = enterable()? {
        return Ok(state);
    }
    let (engine, container) = (engine.clone(), container.clone());
    // Uninterrupted, since the caller may be cancelled by its time limit while the container is being ended.
    let ended = async move {
        let _lock = lock;
        end_interrupted_start(&engine, &container).await?;
        container.state()
    };
    uninterrupted(verb, ended).await
}

pub(super) fn start_incomplete(container: &StoredContainer, verb: &'static str) -> Error {
    let name = &container.config.name;
    refused(verb, format_args!("the start of the container is not complete: `coracle start {name}` restarts it"))
}

/// Locks a container that does not run, so that nothing starts it while its files are used from outside. Returns `None` if it
/// runs. Waits for a start in progress.
pub(crate) async fn lock_at_rest(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    verb: &'static str,
) -> Result<Option<Lock>> {
    if container.process()?.is_some() && container.is_start_complete() {
        return Ok(None);
    }
    let lock = lock_whole(engine, container, verb).await?;
    Ok(container.process()?.is_none().then_some(lock))
}

fn spawn_init(engine: &Engine, container: &StoredContainer) -> Result<Started> {
    let files = write_files(container)?;
    let group = engine.cgroups.create(container.config.id.as_str(), &container.config.limits)?;
    let started = spawn_in_group(engine, container, &group, files);
    if started.is_err() {
        let _ = group.remove();
        let _ = std::fs::remove_file(container.dir.run_file());
    }
    started
}

fn spawn_in_group(
    engine: &Engine,
    container: &StoredContainer,
    group: &ContainerGroup,
    files: BoundFiles,
) -> Result<Started> {
    let run = RunRecord::new(group.clone());
    let started = match parts(engine, container, &run, true) {
        Err(TreeError::Unmappable(path)) => {
            let why = format!("`{}` lies on a file system that cannot map ids", path.display());
            tracing::warn!(container = %container.config.name, %why, "the container has no user namespace");
            let run = RunRecord { shares_users: Some(why), ..run };
            parts(engine, container, &run, false).map(|it| (run, it))
        }
        made => made.map(|it| (run, it)),
    };
    let (run, mut parts) = started.map_err(|err| match err {
        TreeError::Failed(err) => err,
        unmappable => Error::Host { what: unmappable.to_string(), source: std::io::ErrorKind::Unsupported.into() },
    })?;
    let recorded = write_json(&container.dir.run_file(), &run);
    recorded.map_err(host_error("cannot record the start of the container"))?;
    let pipe = parts.init.is_some().then(std::io::pipe).transpose();
    let (reader, gate) = pipe.map_err(host_error("cannot create a pipe"))?.unzip();
    parts.gate = reader.map(OwnedFd::from);
    if !engine.privileges.is_root() {
        parts.given = given_to_root(container, &files).map_err(host_error("cannot open files of the container"))?;
    }
    let plan = child_plan(&container.config, &container.dir, parts)?;
    let spawned = spawn(&plan).map_err(|err| Error::Host {
        what: format!("the container does not start: cannot {}", err.what),
        source: err.errno.into(),
    })?;
    Ok(Started { spawned, gate, files })
}

pub(super) fn write_files(container: &StoredContainer) -> Result<BoundFiles> {
    let config = &container.config;
    let request = NetworkFilesRequest { config: &config.network, hostname: &config.hostname, hosts: &config.hosts };
    let made = network_files(&request);
    let write = |name: &str, text: &str| {
        let path = container.dir.files().join(name);
        let what = format!("cannot write `{}`", path.display());
        BoundFile::create(path, text).map_err(host_error(what))
    };
    Ok(BoundFiles {
        hosts: write("hosts", &made.hosts)?,
        resolv_conf: write("resolv.conf", &made.resolv_conf)?,
        hostname: write("hostname", &made.hostname)?,
    })
}

/// Opens the files that become root's inside. A user without root created them, so without this they would belong to that
/// user inside, whose commands could change them.
fn given_to_root(container: &StoredContainer, files: &BoundFiles) -> std::io::Result<Vec<OwnedFd>> {
    let upper = open_upper(&container.dir)?;
    let bound = [&files.hosts, &files.resolv_conf, &files.hostname].map(BoundFile::descriptor);
    bound.into_iter().chain([Ok(upper)]).collect()
}

/// Opens the upper directory, whose owner is that of the container's root directory.
pub(super) fn open_upper(dir: &ContainerDir) -> std::io::Result<OwnedFd> {
    use std::os::unix::fs::OpenOptionsExt as _;
    Ok(File::options().read(true).custom_flags(libc::O_PATH | libc::O_DIRECTORY).open(dir.upper())?.into())
}

/// Opens and prepares what the child needs from the host.
fn parts(
    engine: &Engine,
    container: &StoredContainer,
    run: &RunRecord,
    with_users: bool,
) -> std::result::Result<StartParts, TreeError> {
    let StoredContainer { config, dir } = container;
    let opened = |what: &str, result: std::io::Result<OwnedFd>| result.map_err(host_error(what.to_owned()));
    let is_root = engine.privileges.is_root();
    let map = config.ids.as_ref().filter(|_| with_users);
    let users = map.map(|it| engine.privileges.create_namespace(it)).transpose();
    let users = users.map_err(host_error("cannot create a user namespace"))?;
    let ids = users.as_ref().map(|it| it.as_fd()).filter(|_| is_root);
    let layers = layer_dirs(engine, &config.image, "start")?;
    let root = root_mount(&RootRequest { layers: &layers, dir, ids: ids.zip(map), is_root })?;
    let init = init_program(engine, &config.init);
    let volumes = volume_dirs(engine, container, &layers)?;
    let binds = HostMounts { config, dir, init: init.as_deref(), volumes, ids, is_root }.steps()?;
    let log = matches!(config.init, Init::Command(_)).then(|| append_to(dir.log_file()));
    Ok(StartParts {
        groups: group_files(&run.group).map_err(host_error("cannot open the control group"))?,
        shown_groups: run.group.mounts(),
        root,
        binds,
        process: opened("cannot create a file of the container", fresh(dir.process_file()))?,
        exit: opened("cannot create a file of the container", fresh(dir.exit_file()))?,
        log: log.transpose().map_err(host_error("cannot open the log of the container"))?,
        user_namespace: users,
        init,
        gate: None,
        given: Vec::new(),
    })
}

/// Opens the files of the control groups: a process that writes to one joins the group.
pub(super) fn group_files(group: &ContainerGroup) -> std::io::Result<Vec<OwnedFd>> {
    let entry = group.entry();
    let files = entry.tasks.into_iter().chain(entry.unified.map(|it| it.join("cgroup.procs")));
    files.map(|it| Ok(File::options().write(true).open(it)?.into())).collect()
}

pub(super) fn init_program(engine: &Engine, init: &Init) -> Option<PathBuf> {
    match init {
        Init::Guest { .. } => None,
        Init::Command(_) => engine.options.guest.clone(),
    }
}

/// Returns the directories of the container's volumes, and creates missing ones.
pub(super) fn volume_dirs(engine: &Engine, container: &StoredContainer, layers: &[PathBuf]) -> Result<Vec<PathBuf>> {
    let mut dirs = Vec::new();
    for mount in &container.config.mounts {
        let MountConfig::Volume { name, target, as_in_image, .. } = mount else { continue };
        let image = as_in_image.then_some(ImageDirectory { layers, target });
        let dir = VolumeRecords::new(&engine.directories, &engine.privileges).prepare(name, image.as_ref());
        dirs.push(dir.map_err(host_error(format!("cannot use the volume `{name}`")))?);
    }
    Ok(dirs)
}

/// Creates an empty file for a child to write to.
fn fresh(path: PathBuf) -> std::io::Result<OwnedFd> {
    let _ = std::fs::remove_file(&path);
    Ok(File::options().write(true).create_new(true).mode(0o600).open(path)?.into())
}

fn append_to(path: PathBuf) -> std::io::Result<OwnedFd> {
    Ok(File::options().append(true).create(true).mode(0o600).open(path)?.into())
}

pub(super) async fn connect(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    pid: u32,
    files: &BoundFiles,
) -> Result<()> {
    let StoredContainer { config, dir } = container;
    let attached = attach(&Attachment {
        config: config.network.clone(),
        id: config.id.clone(),
        name: config.name.clone(),
        hostname: config.hostname.clone(),
        hosts: config.hosts.clone(),
        aliases: config.service.as_ref().map(|it| it.aliases.clone()).unwrap_or_default(),
        pid,
        hosts_file: files.hosts.clone(),
        resolv_conf_file: files.resolv_conf.clone(),
        pid_file: dir.network_pid_file(),
        guest: engine.options.guest.clone(),
        directories: engine.directories.clone(),
        privileges: engine.privileges.clone(),
    })
    .await?;
    let recorded = write_json(&dir.network_file(), &attached);
    if recorded.is_err() {
        // Without the record, nothing would ever end the network's helpers. The first error is the one to report.
        let _ = detach(&attached, &config.id, &engine.directories).await;
    }
    recorded.map_err(host_error("cannot record the network of the container"))
}

/// Reaps PID 1 when it ends: this process is its parent, and may outlive the container.
fn reap_in_background(pidfd: OwnedFd) {
    use rustix::process::{WaitId, WaitIdOptions, waitid};
    tokio::spawn(async move {
        let Ok(pidfd) = crate::sys::watch_process(pidfd) else { return };
        let _ = pidfd.readable().await;
        let _ = waitid(WaitId::PidFd(pidfd.get_ref().as_fd()), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    });
}

/// Whether a process is in the control groups of a running container.
pub(crate) fn has_process(container: &StoredContainer, pid: u32) -> Result<bool> {
    let state = container.state()?;
    let State::Running { run, .. } = state else { return Ok(false) };
    run.group.holds(pid)
}

#[cfg(test)]
mod tests;
