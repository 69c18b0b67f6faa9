//! A container as `inspect` shows it.

use std::path::PathBuf;

use coracle_runtime::{Container, MountPoint};
use coracle_types::{ContainerStatus, IsolationKind, Result};

use super::containers::StoredContainer;
use super::directory::read_json;
use super::exec::entered;
use super::health::health;
use super::host_error;
use super::state::State;
use crate::config::{Init, MountConfig, NetworkMode};
use crate::engine::Engine;
use crate::network::{AttachmentRecord, NetworkRecords};
use crate::oci_runtime::OciRuntime;

pub(crate) fn describe(engine: &Engine, stored: &StoredContainer) -> Result<Container> {
    let StoredContainer { config, dir } = stored;
    let failed = || host_error("cannot read the state of the container");
    let state = stored.state()?;
    let is_complete = stored.is_start_complete();
    let attached: Option<AttachmentRecord> = match &state {
        State::Running { .. } => read_json(&dir.network_file()).map_err(failed())?,
        State::Created | State::Exited { .. } => None,
    };
    let (status, exit_code) = match &state {
        State::Created => (ContainerStatus::Created, None),
        State::Running { run, .. } if run.group.is_frozen() => (ContainerStatus::Paused, None),
        // A start is in progress, or was interrupted. The next start waits for it, or starts the container again.
        State::Running { .. } if !is_complete => (ContainerStatus::Created, None),
        State::Running { .. } => (ContainerStatus::Running, None),
        State::Exited { code, .. } => (ContainerStatus::Exited, Some(*code)),
    };
    let group = state.run().map(|it| &it.group);
    Ok(Container {
        id: config.id.clone(),
        name: config.name.to_string(),
        image: config.image.clone(),
        status,
        pid: state.process().filter(|_| is_complete).map(|it| it.pid),
        exit_code,
        oom_killed: exit_code.is_some() && group.is_some_and(|it| it.oom_kills() > 0),
        created: config.created.clone(),
        started_at: state.run().map(|it| it.started_at.clone()),
        labels: config.labels.clone(),
        user: if config.user.is_root() { String::new() } else { config.user.to_string() },
        workdir: if config.workdir == "/" { String::new() } else { config.workdir.clone() },
        env: config.env.clone(),
        ports: attached.map(|it| it.ports).unwrap_or_default(),
        mounts: mounts(engine, stored),
        networks: match &config.network.mode {
            NetworkMode::None => vec!["none".to_owned()],
            NetworkMode::Host => vec!["host".to_owned()],
            NetworkMode::Outgoing => vec!["outgoing".to_owned()],
            NetworkMode::Named(id) => {
                // Falls back to the id if the network was removed.
                let network = NetworkRecords::new(&engine.directories).find(id)?;
                vec![network.map_or_else(|| id.clone(), |it| it.name)]
            }
        },
        limits: engine.cgroups.enforced(config.limits),
        execs: if let State::Running { run, process } = &state { entered(&stored.dir, run, process) } else { 0 },
        health: health(stored)?,
        lifetime_over: None,
        isolation: Some(config.runtime.map_or(IsolationKind::Namespaces, OciRuntime::isolation)),
    })
}

/// The mounts of the request and of the guest, without the files that the network binds.
fn mounts(engine: &Engine, StoredContainer { config, .. }: &StoredContainer) -> Vec<MountPoint> {
    let bind = |source: PathBuf, target: &str, writable| {
        let target = target.to_owned();
        MountPoint { source, target, writable, is_bind: true }
    };
    let mut points = Vec::new();
    if let Init::Guest { program, worker, link, .. } = &config.init {
        use coracle_protocol::paths;
        let bound = [(program, paths::PROGRAM, false), (worker, paths::WORKER, false), (link, paths::LINK, true)];
        let bound = bound.into_iter().filter_map(|(source, at, writable)| Some(bind(source.clone()?, at, writable)));
        points.extend(bound);
    }
    points.extend(config.mounts.iter().filter_map(|mount| match mount {
        MountConfig::Bind { source, target, writable } => Some(bind(source.clone(), target, *writable)),
        MountConfig::Volume { name, target, writable, .. } => {
            let source = engine.directories.volumes().join(name).join("_data");
            Some(MountPoint { is_bind: false, ..bind(source, target, *writable) })
        }
        MountConfig::Tmpfs { .. } => None,
    }));
    points
}
