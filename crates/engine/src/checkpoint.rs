//! Saves the state of a container's files, and goes back to it.

mod diff;

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use coracle_runtime::{Checkpoint, CheckpointOutcome, CheckpointRequest};
use coracle_types::{ContainerId, Error, Result};
use rustix::fs::{CWD, Mode, OFlags, ioctl_ficlone, openat};

pub(crate) use self::diff::checkpoint_diff;
use crate::blocking::blocking;
use crate::cgroup::ContainerGroup;
use crate::container::directory::KERNEL;
use crate::container::freeze::{FreezeLock, running_group, while_frozen};
use crate::container::{LockedContainer, StoredContainer, by_runtime, find, host_error, lock};
use crate::engine::Engine;
use crate::error::refused;
use crate::oci_runtime::OciRuntime;
use crate::shared_mappings::shared_files;
use crate::tree_copy::CopyPass;
use crate::tree_history::{
    CaptureRequest, Captured, Index, StoredCheckpoint, begin_rewind, capture, finish_rewind, is_unchanged,
};

/// Whether files of containers can share their content.
pub(crate) async fn shares_content(engine: &Arc<Engine>) -> Result<bool> {
    // Such a kernel writes late, so each look pauses the container.
    if engine.runtime.is_some_and(OciRuntime::has_own_kernel) {
        return Ok(false);
    }
    if let Some(known) = engine.shares_content.get() {
        return Ok(*known);
    }
    let containers = engine.directories.containers();
    let tried = blocking("try the file system", move || {
        try_to_share(&containers).map_err(host_error("cannot try what the file system can"))
    });
    let shares = tried.await?;
    Ok(*engine.shares_content.get_or_init(|| shares))
}

/// Lets a new file share the content of another one. Both have no name, so nothing is left.
fn try_to_share(dir: &Path) -> std::io::Result<bool> {
    let unnamed = || openat(CWD, dir, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, Mode::from_raw_mode(0o600));
    // A file system without such files cannot share content either.
    let (Ok(from), Ok(to)) = (unnamed(), unnamed()) else { return Ok(false) };
    rustix::io::write(&from, &[1; 4096])?;
    Ok(ioctl_ficlone(&to, &from).is_ok())
}

/// Saves the files of a container, which may be running and stays so.
pub(crate) async fn checkpoint(
    engine: &Arc<Engine>,
    id: &ContainerId,
    request: &CheckpointRequest,
) -> Result<CheckpointOutcome> {
    let locked = LockedContainer::lock(engine, find(engine, &id.into())?, "checkpoint").await?;
    let (container, engine_of_work, request) = (locked.container.clone(), engine.clone(), request.clone());
    let saving = blocking("save a checkpoint", move || save(&engine_of_work, &locked, &request));
    by_runtime::while_paused(engine, &container, saving).await
}

fn save(engine: &Engine, locked: &LockedContainer, request: &CheckpointRequest) -> Result<CheckpointOutcome> {
    let container = &locked.container;
    let failed = || host_error(format!("cannot save a checkpoint of `{}`", container.config.name));
    let dir = container.dir.checkpoints();
    if let Some(current) = unchanged(engine, container).map_err(failed())? {
        dir.rename(current, request).map_err(failed())?;
        return Ok(CheckpointOutcome::Unchanged(current));
    }
    dir.create().map_err(failed())?;
    let before = dir.repaired_index().map_err(failed())?;
    dir.begin().map_err(failed())?;
    let captured = capture_files(engine, locked, request, &before).inspect_err(|_| {
        // Its copies would stay on a disk that is full, perhaps.
        if let Err(err) = dir.repaired_index() {
            tracing::debug!(%err, "copies of a failed checkpoint stay until the next one");
        }
    });
    let Captured::Index(index) = captured? else {
        dir.repaired_index().map_err(failed())?;
        return Ok(CheckpointOutcome::TooLarge);
    };
    let Some(saved) = dir.save(request, &before, index).map_err(failed())? else {
        dir.rename(before.current, request).map_err(failed())?;
        return Ok(CheckpointOutcome::Unchanged(before.current));
    };
    dir.prune(request).map_err(failed())?;
    let number = saved.number;
    Ok(CheckpointOutcome::Saved(described(saved, number)))
}

/// The current checkpoint, if the files are those of it, as far as this can be seen without a look into them. The processes
/// go on meanwhile: what they change belongs to the next checkpoint.
fn unchanged(engine: &Engine, container: &StoredContainer) -> std::io::Result<Option<u64>> {
    let dir = container.dir.checkpoints();
    // A kernel of its own writes later.
    if dir.is_unfinished() || container.config.runtime.is_some_and(OciRuntime::has_own_kernel) {
        return Ok(None);
    }
    let Some(known) = engine.indexes.read(&dir)?.filter(|it| it.current > 0) else { return Ok(None) };
    let upper = container.dir.upper();
    let is_unchanged = engine.privileges.run_as_owner(|| is_unchanged(&upper, &known))?;
    Ok(is_unchanged.then_some(known.current))
}

/// Copies a consistent state of the upper directory.
fn capture_files(
    engine: &Engine,
    locked: &LockedContainer,
    request: &CheckpointRequest,
    before: &Index,
) -> Result<Captured> {
    let LockedContainer { container, freeze, .. } = locked;
    let (upper, objects) = (container.dir.upper(), container.dir.checkpoints().objects());
    let pass = |pass: CopyPass, known: &Index, mapped: &BTreeSet<Vec<u8>>| {
        let request = CaptureRequest {
            upper: &upper,
            objects: &objects,
            left_out: &KERNEL,
            mapped,
            max_copied: request.max_copied,
        };
        let captured = engine.privileges.run_as_owner(|| capture(&request, pass, known));
        captured.map_err(host_error(format!("cannot save the files of `{}`", container.config.name)))
    };
    let running = running_group(container)?;
    let last = match &running {
        Some(group) if !group.can_freeze() => CopyPass::Unfrozen,
        _ => CopyPass::Still,
    };
    // Files that are mapped now, and those that are mapped later: a program may end between the two passes.
    let mapped = || running.as_ref().map(shared_files).transpose().map(Option::unwrap_or_default);
    let can_freeze = running.as_ref().is_some_and(ContainerGroup::can_freeze);
    let first = while_frozen(engine, container, freeze, mapped)??;
    let processes = running.as_ref().map(ContainerGroup::processes).transpose()?.unwrap_or_default();
    let is_busy = can_freeze && processes.len() > 1;
    let known = match is_busy {
        // With PID 1 alone, nothing waits for the copy.
        true => match pass(CopyPass::Running, before, &first)? {
            // Entries that could not be read in this pass are copied by the next one.
            Captured::Index(index) => index,
            Captured::TooLarge => return Ok(Captured::TooLarge),
        },
        false => before.clone(),
    };
    while_frozen(engine, container, freeze, || {
        let mapped = first.union(&mapped()?).cloned().collect();
        pass(last, &known, &mapped)
    })?
}

/// Lists the checkpoints of a container.
pub(crate) async fn checkpoints(engine: &Arc<Engine>, id: &ContainerId) -> Result<Vec<Checkpoint>> {
    let container = find(engine, &id.into())?;
    blocking("list checkpoints", move || {
        let dir = container.dir.checkpoints();
        let read = || Ok((dir.index()?.current, dir.checkpoints()?));
        let (current, all) = read().map_err(host_error("cannot read the checkpoints"))?;
        Ok(all.into_values().map(|it| described(it, current)).collect())
    })
    .await
}

/// Gives a container that does not run the files of a checkpoint.
pub(crate) async fn rewind(engine: &Arc<Engine>, id: &ContainerId, number: u64) -> Result<()> {
    let container = find(engine, &id.into())?;
    let lock = lock(&container, "rewind").await?;
    if container.process()?.is_some() {
        return Err(refused("rewind", format_args!("`{}` runs: stop it first", container.config.name)));
    }
    let engine = engine.clone();
    blocking("rewind a container", move || {
        let _lock = lock;
        let dir = container.dir.checkpoints();
        let failed = || host_error(format!("cannot restore the files of `{}`", container.config.name));
        if dir.checkpoint(number).map_err(failed())?.is_none() {
            return Err(no_checkpoint("rewind", number));
        }
        let upper = container.dir.upper();
        let rewound = begin_rewind(&dir, number);
        rewound.and_then(|()| finish_rewind(&dir, &upper, &KERNEL, &engine.privileges)).map_err(failed())
    })
    .await
}

/// Removes a checkpoint.
pub(crate) async fn remove_checkpoint(engine: &Arc<Engine>, id: &ContainerId, number: u64) -> Result<()> {
    let container = find(engine, &id.into())?;
    // Also while a rewind waits for free space, which a removal makes.
    let lock = lock(&container, "remove").await?;
    let freeze = FreezeLock::take(&container).await?;
    blocking("remove a checkpoint", move || {
        let (_lock, _freeze) = (lock, freeze);
        let dir = container.dir.checkpoints();
        let failed = || host_error("cannot remove the checkpoint");
        let is_target = dir.rewind_target().map_err(failed())? == Some(number);
        if is_target || dir.index().map_err(failed())?.current == number {
            let why = format_args!("checkpoint {number} is the current one, which the next one is compared with");
            return Err(refused("remove", why));
        }
        if dir.checkpoint(number).map_err(failed())?.is_none() {
            return Err(no_checkpoint("remove", number));
        }
        dir.remove(&[number]).map_err(failed())
    })
    .await
}

fn described(checkpoint: StoredCheckpoint, current: u64) -> Checkpoint {
    let StoredCheckpoint { number, parent, created, note, bytes, changes, .. } = checkpoint;
    Checkpoint {
        number,
        parent,
        created: UNIX_EPOCH + Duration::from_millis(created),
        note,
        changes: changes.len() as u64,
        bytes,
        is_current: number == current,
    }
}

fn no_checkpoint(verb: &'static str, number: u64) -> Error {
    refused(verb, format_args!("no checkpoint {number}"))
}

#[cfg(test)]
mod tests;
