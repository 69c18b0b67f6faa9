//! Creates a container with the current files of another one.
//!
//! The upper directory of the new container is a copy of the parent's. The parent keeps its own directory, so open files,
//! mappings and working directories of its processes stay valid, and no write is lost. Most files are copied while the
//! processes run. Then the processes are frozen, and the files that changed meanwhile are copied.
//!
//! The alternative would be to share the parent's upper directory as a lower layer, and to give the parent a new overlay.
//! That copies nothing, but loses later writes through descriptors and directories of the old overlay. Descriptors of other
//! processes cannot be replaced, and there are always some: the guest holds the root directory open.

#[cfg(test)]
pub(crate) mod tests;

use std::sync::Arc;
use std::time::Instant;

use coracle_runtime::Placed;
use coracle_types::{ContainerId, Error, Result};

use super::containers::{StoredContainer, discard, find, no_such_image, prepare, publish};
use super::directory::{ContainerDir, KERNEL};
use super::freeze::{running_group, while_frozen};
use super::from_spec::config_of;
use super::locked::LockedContainer;
use super::{by_runtime, host_error};
use crate::blocking::blocking;
use crate::cgroup::ContainerGroup;
use crate::config::{ContainerConfig, MountConfig};
use crate::engine::Engine;
use crate::error::refused;
use crate::pending::Operation;
use crate::shared_mappings::shared_files;
use crate::tree_copy::{CopyPass, CopyRequest, CopyState, copy_tree};
use crate::tree_history::{Index, RestoreRequest, restore_tree};

/// Which files of the parent a new container gets.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ForkSource {
    /// Those that it has now.
    Current,
    /// Those of a checkpoint.
    Checkpoint(u64),
}

/// Creates a container with files of `parent`, which may be running and stays so.
pub(crate) async fn fork(
    engine: &Arc<Engine>,
    parent: &ContainerId,
    source: ForkSource,
    placed: &Placed,
) -> Result<ContainerId> {
    let parent = find(engine, &parent.into())?;
    if *placed.image() != parent.config.image {
        return Err(other_image(&parent.config));
    }
    let missing = || no_such_image("fork", placed.image());
    let hold = engine.store.hold(placed.image())?.ok_or_else(missing)?;
    let image = engine.store.image(placed.image())?.ok_or_else(missing)?;
    let inherited_stubs = inherited_stubs(&parent.config);
    let config = ContainerConfig { inherited_stubs, ..config_of(engine, placed, &image)? };
    let locked = LockedContainer::lock(engine, parent, "fork").await?;
    let pending = engine.pending.begin(&Operation::CreateContainer(config.id.clone()))?;
    let published = match draft_of(engine, &config, locked, source).await {
        Ok(draft) => draft.publish(&config).await,
        Err(err) => Err(err),
    };
    pending.finish();
    drop(hold);
    published.map(|()| config.id)
}

async fn draft_of(
    engine: &Arc<Engine>,
    config: &ContainerConfig,
    locked: LockedContainer,
    source: ForkSource,
) -> Result<Draft> {
    let (parent, engine_of_draft, config) = (locked.container.clone(), engine.clone(), config.clone());
    let draft = blocking("fork a container", move || Draft::create(engine_of_draft, &config, &locked, source));
    by_runtime::while_paused(engine, &parent, draft).await
}

/// A new container that is not published yet. It is discarded when this is dropped.
#[derive(Debug)]
struct Draft {
    engine: Arc<Engine>,
    dir: Option<ContainerDir>,
}

impl Draft {
    /// Prepares a container and copies the parent's files. Blocks.
    fn create(
        engine: Arc<Engine>,
        config: &ContainerConfig,
        locked: &LockedContainer,
        source: ForkSource,
    ) -> Result<Self> {
        let dir = prepare(&engine, config)?;
        let draft = Self { engine, dir: Some(dir.clone()) };
        match source {
            ForkSource::Current => copy_files(&draft.engine, locked, &dir)?,
            ForkSource::Checkpoint(number) => copy_checkpoint(&draft.engine, &locked.container, number, &dir)?,
        }
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

/// Copies the files of a checkpoint.
fn copy_checkpoint(engine: &Engine, parent: &StoredContainer, number: u64, into: &ContainerDir) -> Result<()> {
    let dir = parent.dir.checkpoints();
    let failed = || host_error(format!("cannot copy the files of `{}`", parent.config.name));
    let missing = || refused("fork", format_args!("`{}` has no checkpoint {number}", parent.config.name));
    let tree = dir.tree(number).map_err(failed())?.ok_or_else(missing)?;
    let request = RestoreRequest { upper: &into.upper(), objects: &dir.objects(), left_out: &KERNEL, tree: &tree };
    restore_tree(&request, &Index::default(), &engine.privileges).map(drop).map_err(failed())
}

/// Copies a consistent state of the upper directory.
fn copy_files(engine: &Engine, locked: &LockedContainer, into: &ContainerDir) -> Result<()> {
    let LockedContainer { container: parent, freeze, .. } = locked;
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
        Some(group) => while_frozen(engine, parent, freeze, || shared_files(group))??.is_empty(),
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
