//! Starts a container with its OCI runtime.

use std::fs::File;
use std::os::fd::AsFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::Arc;

use coracle_host::process::ProgramFiles;
use coracle_types::{Capability, Error, Result};
use rustix::process::{Pid, PidfdFlags, getrlimit, pidfd_open};

use super::super::containers::{StoredContainer, layer_dirs};
use super::super::directory::{read_json, write_json};
use super::super::end::clear_network;
use super::super::plan::{HostMounts, RootRequest, TreeError, bundle_steps, init_arguments, root_mount};
use super::super::start::{BoundFiles, connect, init_program, volume_dirs, write_files};
use super::super::state::RunRecord;
use super::super::{host_error, unreadable};
use super::run_directory::RunDirectory;
use super::{calls, clear};
use crate::blocking::blocking;
use crate::cgroup::ContainerGroup;
use crate::config::{Init, NetworkMode};
use crate::engine::Engine;
use crate::error::unsupported;
use crate::ids::IdMap;
use crate::oci::{BundleParts, BundleRequest, ProcessRequest, RuntimeCalls, bundle};
use crate::oci_runtime::OciRuntime;
use crate::sys::{ChildPlace, RootMount, Step, run_in_child};

/// The descriptor to which the guest writes its exit code. Runtimes pass on no descriptors but the standard streams.
const EXIT_DESCRIPTOR: i32 = 0;

/// Starts a container and connects its network. The caller holds the container's lock.
pub(in super::super) async fn start(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    runtime: OciRuntime,
) -> Result<()> {
    if !engine.privileges.is_root() {
        // The engine creates the mounts, which requires root.
        return Err(unsupported(Capability::OciRuntime));
    }
    if runtime.has_own_kernel() && matches!(container.config.init, Init::Guest { .. }) {
        // gVisor reports the guest itself as the peer of a socket, so the guest would take the host for a process inside.
        return Err(unsupported(Capability::Guest));
    }
    clear(engine, container).await?;
    let calls = calls(engine, container, runtime)?;
    let started = create_and_start(engine, container, runtime, &calls).await;
    if started.is_err() {
        // The first error is the one to report.
        let _ = clear(engine, container).await;
        // If some of it is left, its record stays, and the next start or the removal tries again.
        let _ = clear_network(&engine.directories, &container.config.id, &container.dir).await;
        let run = read_json::<RunRecord>(&container.dir.run_file()).ok().flatten();
        if let Some(run) = run {
            let _ = run.group.kill().and_then(|()| run.group.remove());
        }
        let _ = std::fs::remove_file(container.dir.run_file());
        let _ = std::fs::remove_file(container.dir.process_file());
    }
    started
}

async fn create_and_start(
    engine: &Arc<Engine>,
    container: &StoredContainer,
    runtime: OciRuntime,
    calls: &RuntimeCalls,
) -> Result<()> {
    let prepared = {
        let (engine, container) = (engine.clone(), container.clone());
        blocking("start a container", move || prepare(&engine, &container, runtime)).await?
    };
    calls.create(prepared.streams).await?;
    let pid = calls.pid().await?.ok_or_else(|| unreadable("start", &"the runtime created no process"))?;
    check_group(&prepared.run.group, pid)?;
    let stat = std::fs::read(format!("/proc/{pid}/stat")).map_err(host_error("cannot read the container's process"))?;
    std::fs::write(container.dir.process_file(), stat).map_err(host_error("cannot record the container's process"))?;
    if runtime.has_own_kernel() && container.config.network.mode != NetworkMode::Host {
        blocking("bring up loopback", move || loopback_up(pid)).await?;
    }
    let starting = container.dir.starting_file();
    // Without this file, the network's record would mean that the start is complete, but the program has not started yet.
    std::fs::write(&starting, "").map_err(host_error("cannot record the start of the container"))?;
    connect(engine, container, pid, &prepared.files).await?;
    calls.start().await?;
    std::fs::remove_file(starting).map_err(host_error("cannot record that the container is started"))
}

/// Checks that the runtime put the process into the control group: otherwise no limit would apply.
fn check_group(group: &ContainerGroup, pid: u32) -> Result<()> {
    if group.holds(pid)? {
        return Ok(());
    }
    let source = std::io::Error::other("its process is not in the control group that the bundle names");
    Err(Error::Host { what: "the runtime does not enforce the limits of the container".into(), source })
}

/// Brings up loopback for runtimes that do not do so when they create a network namespace.
fn loopback_up(pid: u32) -> Result<()> {
    let failed = || host_error("cannot bring up loopback");
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| failed()(std::io::ErrorKind::InvalidInput.into()))?;
    let pidfd = pidfd_open(pid, PidfdFlags::empty()).map_err(|err| failed()(err.into()))?;
    let namespaces = vec![(pidfd.as_fd(), libc::CLONE_NEWNET)];
    let place = ChildPlace { namespaces, new_mounts: false, steps: vec![Step::LoopbackUp] };
    run_in_child(&place, || Ok(())).map_err(failed())
}

/// A container that is ready for the runtime to create.
struct PreparedRun {
    run: RunRecord,
    files: BoundFiles,
    streams: ProgramFiles,
}

/// Prepares what the runtime needs: control group, mounts, bundle and streams. Blocks.
fn prepare(engine: &Engine, container: &StoredContainer, runtime: OciRuntime) -> Result<PreparedRun> {
    let files = write_files(container)?;
    let group = engine.cgroups.create_for_runtime(container.config.id.as_str(), &container.config.limits)?;
    let mut run = RunRecord::new(group);
    run.shares_users = shares_users(container, runtime);
    let prepared = match mount(engine, container, runtime, &run) {
        Err(TreeError::Unmappable(path)) => {
            let why = format!("`{}` lies on a file system that cannot map ids", path.display());
            tracing::warn!(container = %container.config.name, %why, "the container has no user namespace");
            run.shares_users = Some(why);
            mount(engine, container, runtime, &run)
        }
        made => made,
    };
    let failed = prepared.map_err(|err| match err {
        TreeError::Failed(err) => err,
        unmappable => Error::Host { what: unmappable.to_string(), source: std::io::ErrorKind::Unsupported.into() },
    });
    // Written even after a failure, since the caller reads the control group from it.
    let recorded = write_json(&container.dir.run_file(), &run);
    recorded.map_err(host_error("cannot record the start of the container"))?;
    failed?;
    let streams = streams(container).map_err(host_error("cannot open the streams of the container"))?;
    Ok(PreparedRun { run, files, streams })
}

/// Returns why the container has no user namespace of its own, if so: gVisor cannot use one together with the network of a
/// network namespace.
fn shares_users(container: &StoredContainer, runtime: OciRuntime) -> Option<String> {
    let shares = runtime.has_own_kernel() && container.config.network.mode != NetworkMode::None;
    let why = || format!("`{runtime}` has no user namespace where a container has a network");
    (shares || container.config.ids.is_none()).then(why)
}

fn mount(
    engine: &Engine,
    container: &StoredContainer,
    runtime: OciRuntime,
    run: &RunRecord,
) -> std::result::Result<(), TreeError> {
    let StoredContainer { config, dir } = container;
    let with_users = run.shares_users.is_none();
    let map = config.ids.as_ref().filter(|_| with_users);
    let users = map.map(|it| engine.privileges.create_namespace(it)).transpose();
    let users = users.map_err(host_error("cannot create a user namespace"))?;
    let ids = users.as_ref().map(|it| it.as_fd());
    let layers = layer_dirs(engine, &config.image, "start")?;
    let root = root_mount(&RootRequest { layers: &layers, dir, ids: ids.zip(map), is_root: true })?;
    let init = init_program(engine, &config.init);
    let volumes = volume_dirs(engine, container, &layers)?;
    let binds = HostMounts { config, dir, init: init.as_deref(), volumes, ids, is_root: true }.steps()?;
    let place = RunDirectory::new(engine, &config.id);
    let highest = |resource| getrlimit(resource).maximum;
    let parts = BundleParts::new(bundle_steps(config, binds, with_users), &place.sources(), highest);
    place.create(runtime, map.and_then(IdMap::host_root).map(|it| it.1))?;
    let RootMount::Prepared(root) = root else {
        return Err(unsupported(Capability::OciRuntime).into());
    };
    place.attach(&root, &parts.trees)?;
    let words = init_arguments(config, EXIT_DESCRIPTOR, init.is_some());
    let process = ProcessRequest {
        words: &words,
        env: &config.env,
        workdir: &config.workdir,
        user: config.user,
        capabilities: config.capabilities,
    };
    let control_group = run.group.path_in_hierarchies();
    let request =
        BundleRequest { runtime, config, process, root: &place.root(), ids: map, control_group: &control_group };
    place.write_bundle(&bundle(&request, &parts))?;
    Ok(())
}

fn streams(container: &StoredContainer) -> std::io::Result<ProgramFiles> {
    let dir = &container.dir;
    let exit = dir.exit_file();
    let _ = std::fs::remove_file(&exit);
    let stdin = File::options().read(true).write(true).create_new(true).mode(0o600).open(exit)?;
    let output = || match container.config.init {
        Init::Command(_) => File::options().append(true).create(true).mode(0o600).open(dir.log_file()),
        Init::Guest { .. } => File::options().write(true).open(Path::new("/dev/null")),
    };
    Ok(ProgramFiles { stdin, stdout: output()?, stderr: output()? })
}
