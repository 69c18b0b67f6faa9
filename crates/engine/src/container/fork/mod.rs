//! Creates a container with the current files of another one.
//!
//! The upper directory of the new container is a copy of the parent's. The parent keeps its own directory, so open files,
//! mappings and working directories of its processes stay valid, and no write is lost. Most files are copied while the
//! processes run. Then the processes are frozen, and the files that changed meanwhile are copied.
//!
//! The alternative would be to share the parent's upper directory as a lower layer, and to give the parent a new overlay.
//! That copies nothing, but loses later writes through descriptors and directories of the old overlay. Descriptors of other
//! processes cannot be replaced, and there are always some: the guest holds the root directory open.

mod mappings;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use coracle_host::lock::Lock;
use coracle_runtime::Placed;
use coracle_types::{ContainerId, Error, Result};

use self::mappings::share_files;
use super::commit::KERNEL;
use super::containers::{StoredContainer, discard, find, no_such_image, prepare, publish};
use super::directory::ContainerDir;
use super::freeze::{FreezeLock, running_group, while_frozen};
use super::from_spec::config_of;
use super::start::lock;
use super::{by_runtime, host_error};
use crate::blocking::blocking;
use crate::cgroup::ContainerGroup;
use crate::config::{ContainerConfig, MountConfig};
use crate::engine::Engine;
use crate::error::refused;
use crate::pending::Operation;
use crate::tree_copy::{CopyPass, CopyRequest, CopyState, copy_tree};

/// Creates a container with the files of `parent`, which may be running and stays so.
pub(crate) async fn fork(engine: &Arc<Engine>, parent: &ContainerId, placed: &Placed) -> Result<ContainerId> {
    let parent = find(engine, &parent.into())?;
    if *placed.image() != parent.config.image {
        return Err(other_image(&parent.config));
    }
    let missing = || no_such_image("fork", placed.image());
    let hold = engine.store.hold(placed.image())?.ok_or_else(missing)?;
    let image = engine.store.image(placed.image())?.ok_or_else(missing)?;
    let inherited_stubs = inherited_stubs(&parent.config);
    let config = ContainerConfig { inherited_stubs, ..config_of(engine, placed, &image)? };
    let locked = LockedParent { _lock: lock(&parent, "fork").await?, freeze: FreezeLock::take(&parent).await?, parent };
    let pending = engine.pending.begin(&Operation::CreateContainer(config.id.clone()))?;
    let published = match draft_of(engine, &config, locked).await {
        Ok(draft) => draft.publish(&config).await,
        Err(err) => Err(err),
    };
    pending.finish();
    drop(hold);
    published.map(|()| config.id)
}

async fn draft_of(engine: &Arc<Engine>, config: &ContainerConfig, locked: LockedParent) -> Result<Draft> {
    let (parent, engine_of_draft, config) = (locked.parent.clone(), engine.clone(), config.clone());
    let draft = blocking("fork a container", move || Draft::create(engine_of_draft, &config, &locked));
    by_runtime::while_paused(engine, &parent, draft).await
}

/// A container with the locks that keep other calls from removing, starting or freezing it.
struct LockedParent {
    parent: StoredContainer,
    freeze: FreezeLock,
    _lock: Lock,
}

/// A new container that is not published yet. It is discarded when this is dropped.
#[derive(Debug)]
struct Draft {
    engine: Arc<Engine>,
    dir: Option<ContainerDir>,
}

impl Draft {
    /// Prepares a container and copies the parent's files. Blocks.
    fn create(engine: Arc<Engine>, config: &ContainerConfig, locked: &LockedParent) -> Result<Self> {
        let dir = prepare(&engine, config)?;
        let draft = Self { engine, dir: Some(dir.clone()) };
        copy_files(&draft.engine, locked, &dir)?;
        Ok(draft)
    }

    async fn publish(mut self, config: &ContainerConfig) -> Result<()> {
        match self.dir.take() {
            Some(dir) => publish(&self.engine, config, &dir).await,
            None => Ok(()),
        }
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        if let Some(dir) = self.dir.take() {
            discard(&self.engine, &dir);
        }
    }
}

/// Copies a consistent state of the upper directory.
fn copy_files(engine: &Engine, locked: &LockedParent, into: &ContainerDir) -> Result<()> {
    let LockedParent { parent, freeze, .. } = locked;
    let request = CopyRequest { from: &parent.dir.upper(), to: &into.upper(), left_out: &KERNEL };
    let pass = |pass: CopyPass, before: CopyState| {
        let copied = engine.privileges.run_as_owner(|| copy_tree(&request, pass, before));
        copied.map_err(host_error(format!("cannot copy the files of `{}`", parent.config.name)))
    };
    let begun = Instant::now();
    // Writes through a shared mapping may not change a file's times, so later changes could be missed: then all is copied
    // while the processes are frozen.
    let running = running_group(parent)?;
    let last = match &running {
        Some(group) if !group.can_freeze() => CopyPass::Unfrozen,
        _ => CopyPass::Still,
    };
    let group = running.filter(ContainerGroup::can_freeze);
    let traceable = match &group {
        Some(group) => !while_frozen(engine, parent, freeze, || share_files(group))??,
        None => false,
    };
    let before = if traceable { pass(CopyPass::Running, CopyState::default())? } else { CopyState::default() };
    let frozen = Instant::now();
    while_frozen(engine, parent, freeze, || pass(last, before))??;
    tracing::debug!(parent = %parent.config.name, traceable, took = ?begun.elapsed(), still = ?frozen.elapsed(), "forked");
    Ok(())
}

/// The mount points that exist in a container's files only because of its own mounts, and those of the containers that it
/// was forked from.
fn inherited_stubs(parent: &ContainerConfig) -> Vec<String> {
    let own = parent.mounts.iter().map(MountConfig::target);
    let mut stubs: Vec<_> = own.chain(parent.inherited_stubs.iter().map(String::as_str)).map(str::to_owned).collect();
    stubs.sort();
    stubs.dedup();
    stubs
}

fn other_image(parent: &ContainerConfig) -> Error {
    refused("fork", format_args!("a fork of `{}` must have its image, `{}`", parent.name, parent.image))
}
