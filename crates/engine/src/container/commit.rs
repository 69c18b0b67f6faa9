//! Creates an image of a container's files.

use std::os::unix::fs::chown;
use std::path::PathBuf;
use std::sync::Arc;

use coracle_runtime::{Image, ImageCommit};
use coracle_types::Result;

use super::containers::{StoredContainer, find};
use super::directory::KERNEL;
use super::freeze::{FreezeLock, while_frozen};
use super::start::lock_at_rest;
use super::state::State;
use super::{by_runtime, host_error};
use crate::blocking::blocking;
use crate::config::MountConfig;
use crate::engine::Engine;
use crate::error::store_error;
use crate::store::{CommitSource, LayerLimits};

/// Files that the engine binds into every container.
const BOUND: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// Creates an image of a container, whose processes are frozen meanwhile.
pub(crate) async fn commit(engine: &Arc<Engine>, request: &ImageCommit) -> Result<Image> {
    let container = find(engine, &(&request.container).into())?;
    let resting = lock_at_rest(engine, &container, "commit").await?;
    let lock = FreezeLock::take(&container).await?;
    let commit = {
        let (engine, container, request) = (engine.clone(), container.clone(), request.clone());
        blocking("commit", move || {
            give_upper_to_root(&engine, &container)?;
            let source = CommitSource { limits: engine.layer_limits(), ..source_of(container.clone(), &request) };
            let image = while_frozen(&engine, &container, &lock, || engine.store.commit(source))?;
            drop(resting);
            image.map_err(|err| store_error("commit", err))
        })
    };
    let image = by_runtime::while_paused(engine, &container, commit).await;
    if image.is_err() {
        // The commit may have failed after its layer was complete, so unused layers are collected.
        let store = engine.store.clone();
        // Its errors are ignored: the reason why the commit failed is the one to report.
        let _ = tokio::task::spawn_blocking(move || store.collect_leftovers()).await;
    }
    image
}

/// Gives the upper directory of a container that was never started to root, as its first start would do.
fn give_upper_to_root(engine: &Engine, container: &StoredContainer) -> Result<()> {
    let state = container.state()?;
    if !matches!(state, State::Created) {
        return Ok(());
    }
    let given = engine.privileges.run_as_owner(|| chown(container.dir.upper(), Some(0), Some(0)));
    given.map_err(host_error("cannot read the container's files"))
}

fn source_of(container: StoredContainer, request: &ImageCommit) -> CommitSource {
    let StoredContainer { config, dir } = container;
    let targets =
        config.mounts.iter().map(MountConfig::target).chain(config.inherited_stubs.iter().map(String::as_str));
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
        limits: LayerLimits::default(),
    }
}
