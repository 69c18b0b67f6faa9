//! An image of a container's files.

use std::path::PathBuf;
use std::sync::Arc;

use coracle_protocol::paths;
use coracle_runtime::{Image, ImageCommit, Result};

use super::containers::{StoredContainer, find};
use super::state::State;
use super::{by_runtime, host_error};
use crate::blocking::blocking;
use crate::config::MountConfig;
use crate::engine::Engine;
use crate::error::store_error;
use crate::oci_runtime::OciRuntime;
use crate::store::CommitSource;

/// What the kernel and the guest have in every container.
const KERNEL: [&str; 4] = [paths::DIR, "/proc", "/sys", "/dev"];

/// Files that the engine binds into every container.
const BOUND: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// Makes an image of a container, whose runtime stops its processes where no control group can.
pub(crate) async fn commit(engine: &Arc<Engine>, request: &ImageCommit) -> Result<Image> {
    let container = find(engine, &(&request.container).into())?;
    let paused = by_runtime::pause(engine, &container).await?;
    let image = {
        let (engine, request) = (engine.clone(), request.clone());
        blocking("commit", move || commit_files(&engine, container, &request)).await
    };
    if let Some(runtime) = paused {
        runtime.resume().await?;
    }
    image
}

/// Makes an image of a container; its processes stand still meanwhile, where a control group can do that. Blocks.
fn commit_files(engine: &Engine, container: StoredContainer, request: &ImageCommit) -> Result<Image> {
    let state = State::read(&container.dir).map_err(host_error("cannot read the state of the container"))?;
    let is_paused = container.config.runtime.is_some_and(OciRuntime::has_own_kernel);
    let group = state.process().and(state.run()).map(|it| &it.group).filter(|_| !is_paused);
    if let Some(group) = group {
        group.freeze()?;
    }
    let source = source_of(container, request);
    let image = engine.store.commit(source).map_err(|err| store_error("commit", err));
    if let Some(group) = group {
        group.thaw()?;
    }
    image
}

fn source_of(container: StoredContainer, request: &ImageCommit) -> CommitSource {
    let StoredContainer { config, dir } = container;
    let targets = config.mounts.iter().map(|it| match it {
        MountConfig::Bind { target, .. } | MountConfig::Volume { target, .. } | MountConfig::Tmpfs { target, .. } => {
            target
        }
    });
    let stubs = targets.map(PathBuf::from).chain(BOUND.map(PathBuf::from)).collect();
    let mut labels = config.labels;
    labels.extend(request.labels.iter().cloned());
    CommitSource {
        upper: dir.upper(),
        base: config.image,
        mount_points: KERNEL.map(PathBuf::from).to_vec(),
        stubs,
        config: request.config.clone(),
        env: config.env,
        labels: labels.into_iter().collect(),
        tag: request.tag.clone(),
        intermediate: false,
    }
}
