//! Gives two containers the files of each other.

use std::fs::File;
use std::sync::Arc;

use coracle_host::fs::sync_entry;
use coracle_types::{ContainerId, Result};
use rustix::fs::{CWD, RenameFlags, renameat_with, syncfs};

use crate::blocking::blocking;
use crate::container::{StoredContainer, find, host_error, lock_at_rest};
use crate::engine::Engine;
use crate::error::refused;

/// Exchanges the files of two containers that do not run and have the same image. It is one act of the file system: after an
/// interruption, either both have been exchanged or none.
pub(crate) async fn exchange_files(engine: &Arc<Engine>, id: &ContainerId, other: &ContainerId) -> Result<()> {
    let (one, other) = (find(engine, &id.into())?, find(engine, &other.into())?);
    if one.config.id == other.config.id {
        return Err(refused("exchange", format_args!("`{}` is both containers", one.config.name)));
    }
    if one.config.image != other.config.image {
        let names = (&one.config.name, &other.config.name);
        return Err(refused("exchange", format_args!("`{}` and `{}` have different images", names.0, names.1)));
    }
    // In the same order in every process: two exchanges do not wait for each other.
    let mut both = [one, other];
    both.sort_by(|one, other| one.config.id.cmp(&other.config.id));
    let mut locks = Vec::new();
    for container in &both {
        let lock = lock_at_rest(engine, container, "exchange").await?;
        let runs = || refused("exchange", format_args!("`{}` runs: stop it first", container.config.name));
        locks.push(lock.ok_or_else(runs)?);
    }
    let engine = engine.clone();
    blocking("exchange files", move || {
        let _locks = locks;
        let [one, other] = both.each_ref().map(|it: &StoredContainer| it.dir.upper());
        // Otherwise, a file could be empty after a loss of power whose name is on the disk already.
        let written = File::open(both[0].dir.path()).and_then(|it| Ok(syncfs(it)?));
        let exchange = || Ok(renameat_with(CWD, &one, CWD, &other, RenameFlags::EXCHANGE)?);
        let exchanged = written.and_then(|()| engine.privileges.run_as_owner(exchange));
        let synced = exchanged.and_then(|()| sync_entry(&one)).and_then(|()| sync_entry(&other));
        synced.map_err(host_error(format!("cannot exchange the files of `{}`", both[0].config.name)))
    })
    .await
}
