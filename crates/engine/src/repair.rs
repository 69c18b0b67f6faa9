//! Repairs what a process left behind if it died in the middle of an operation.

use std::sync::Arc;
use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_types::{Error, Result};

use crate::blocking::blocking;
use crate::container;
use crate::engine::Engine;
use crate::network::NetworkRecords;
use crate::pending::Operation;
use crate::volume::VolumeRecords;

/// Timeout to wait for another process that repairs, so that the caller finds everything repaired.
const TIMEOUT: Duration = Duration::from_secs(30);

/// How often a long-running process checks whether another program removed rules of networks.
const RULES_INTERVAL: Duration = Duration::from_secs(5);

/// Repairs what dead processes left, and every few seconds what other programs removed. If there is nothing to repair, it
/// only lists one directory.
pub(crate) async fn repair(engine: &Arc<Engine>) {
    if engine.rules_check.is_due(RULES_INTERVAL) {
        let at = Arc::clone(engine);
        let checked = blocking("look for the rules of networks", move || {
            restore_rules(&at);
            Ok(())
        });
        if let Err(err) = checked.await {
            tracing::warn!(%err, "cannot look for the rules of networks");
        }
    }
    let is_needed = engine.pending.interrupted().map(|it| !it.is_empty());
    match is_needed {
        Ok(true) => repair_all(engine).await,
        Ok(false) => Ok(()),
        Err(source) => Err(failed(source)),
    }
    .unwrap_or_else(|err| tracing::warn!(%err, "cannot look for what killed processes left"));
}

/// The same for callers that are not asynchronous, in a Tokio runtime or not. Always restores what other programs removed.
pub(crate) fn repair_at_opening(engine: &Arc<Engine>) -> Result<()> {
    if engine.rules_check.is_due(RULES_INTERVAL) {
        restore_rules(engine);
    }
    if engine.pending.interrupted().map_err(failed)?.is_empty() {
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    // A thread of a Tokio runtime may not block on another runtime.
    std::thread::scope(|scope| {
        scope.spawn(move || runtime.block_on(repair(engine)));
    });
    Ok(())
}

fn restore_rules(engine: &Engine) {
    if engine.privileges.is_root()
        && let Err(err) = NetworkRecords::new(&engine.directories).restore_rules()
    {
        tracing::warn!(%err, "cannot restore network rules: containers may reach addresses that they should not");
    }
}

async fn repair_all(engine: &Arc<Engine>) -> Result<()> {
    let lock = Lock::take(&engine.directories.repair_lock(), TIMEOUT).await.map_err(failed)?;
    let _lock = lock.ok_or(Error::TimedOut { verb: "repair", after: TIMEOUT })?;
    for interrupted in engine.pending.interrupted().map_err(failed)? {
        tracing::debug!(operation = ?interrupted.operation, "repair what a killed process left");
        match repair_one(engine, &interrupted.operation).await {
            Ok(()) => interrupted.forget(),
            // The next process tries again.
            Err(err) => {
                tracing::warn!(%err, operation = ?interrupted.operation, "what a killed process left stays for now");
            }
        }
    }
    engine.trash.empty().map(drop).map_err(failed)
}

async fn repair_one(engine: &Arc<Engine>, operation: &Operation) -> Result<()> {
    match operation {
        Operation::CreateContainer(id) => container::repair_creation(engine, id).await,
        Operation::StartContainer(id) => {
            container::repair_start(engine, id).await?;
            NetworkRecords::new(&engine.directories).repair().await?;
            VolumeRecords::new(&engine.directories, &engine.privileges).repair()
        }
        Operation::StopContainer(id) => {
            container::repair_stop(engine, id).await?;
            NetworkRecords::new(&engine.directories).repair().await
        }
        Operation::RemoveContainer(id) => {
            container::repair_removal(engine, id).await?;
            NetworkRecords::new(&engine.directories).repair().await
        }
        Operation::FreezeContainer(id) => container::repair_freeze(engine, id).await,
        Operation::Networks => NetworkRecords::new(&engine.directories).repair().await,
        Operation::Volumes => VolumeRecords::new(&engine.directories, &engine.privileges).repair(),
    }
}

fn failed(source: std::io::Error) -> Error {
    Error::Host { what: "cannot repair the engine's data".into(), source }
}
