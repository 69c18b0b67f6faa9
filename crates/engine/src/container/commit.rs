//! An image of a container's files.

use std::path::PathBuf;
use std::sync::Arc;

use coracle_protocol::paths;
use coracle_runtime::{Image, ImageCommit, Result};

use super::containers::{StoredContainer, find};
use super::freeze::{self, FrozenContainer};
use crate::blocking::blocking;
use crate::config::MountConfig;
use crate::engine::Engine;
use crate::error::store_error;
use crate::store::CommitSource;

/// What the kernel and the guest have in every container.
const KERNEL: [&str; 4] = [paths::DIR, "/proc", "/sys", "/dev"];

/// Files that the engine binds into every container.
const BOUND: [&str; 3] = ["/etc/hosts", "/etc/hostname", "/etc/resolv.conf"];

/// Makes an image of a container; its processes stand still meanwhile.
pub(crate) async fn commit(engine: &Arc<Engine>, request: &ImageCommit) -> Result<Image> {
    let container = find(engine, &(&request.container).into())?;
    let lock = freeze::lock(&container.dir, freeze::PATIENCE).await?;
    let (engine, source) = (engine.clone(), source_of(container.clone(), request));
    blocking("commit", move || {
        let frozen = FrozenContainer::freeze(&engine, &container, lock)?;
        let image = engine.store.commit(source).map_err(|err| store_error("commit", err));
        frozen.thaw()?;
        image
    })
    .await
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
