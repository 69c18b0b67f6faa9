//! Brings records and engines together again after something died (containers.md 14.8).

use std::time::Duration;

use coracle_runtime::ContainerRuntime;

use crate::destroy::destroy_locked;
use crate::record::{Record, RecordState};
use crate::remove::{remove_all, sweep};
use crate::store::LoadOutcome;
use crate::{Engines, Result, Store};

/// Removes what dead makers left half made, goes on with what was being destroyed, and lets go of records whose
/// container has been gone for `gone_for`. Answers the names that were healed.
///
/// # Errors
/// When records cannot be read. A record whose engine does not answer is left for the next time.
pub async fn reconcile(engines: &dyn Engines, store: &Store, gone_for: Duration) -> Result<Vec<String>> {
    let mut healed = Vec::new();
    // Whoever is at it heals for all; nobody waits for an engine that hangs there.
    let Some(_one_at_a_time) = store.try_common_lock("reconcile")? else { return Ok(healed) };
    store.clear_unwritten()?;
    for candidate in store.records()?.into_iter().filter(|it| needs_healing(it)) {
        // Whoever holds the lock is still at it.
        let Some(_lock) = store.try_lock(&candidate.name)? else { continue };
        // What was read before the lock may have become another container since.
        let LoadOutcome::Record(record) = store.load(&candidate.name)? else { continue };
        if record.record_id != candidate.record_id || !needs_healing(&record) {
            continue;
        }
        let healing = async {
            let runtime = engines.for_record(record.engine, &record.endpoint).await?;
            recover(&*runtime, store, &record).await
        };
        match healing.await {
            Ok(()) => healed.push(record.name.to_string()),
            Err(err) => tracing::warn!(container = %record.name, %err, "it could not be healed now"),
        }
    }
    sweep_doomed(engines, store).await?;
    let gone_for = jiff::SignedDuration::try_from(gone_for).unwrap_or(jiff::SignedDuration::MAX);
    if let Ok(before) = jiff::Timestamp::now().checked_sub(gone_for) {
        store.forget_gone(before)?;
    }
    Ok(healed)
}

/// An engine's program outlives the process that was killed with it, and may still be making what was just found
/// missing. For longer than any such call may take, every look sweeps again.
const DOOMED_FOR: jiff::SignedDuration = jiff::SignedDuration::from_mins(10);

async fn sweep_doomed(engines: &dyn Engines, store: &Store) -> Result<()> {
    for record in store.abandoned()? {
        let swept = match engines.for_record(record.engine, &record.endpoint).await {
            Ok(runtime) => sweep(&*runtime, store, &record).await,
            Err(err) => Err(err),
        };
        if let Err(err) = swept {
            tracing::warn!(container = %record.name, %err, "what a given-up call may have made cannot be swept now");
        }
        if jiff::Timestamp::now().duration_since(record.last_used) > DOOMED_FOR {
            store.forget_abandoned(&record)?;
        }
    }
    Ok(())
}

fn needs_healing(record: &Record) -> bool {
    match record.state {
        RecordState::Intent | RecordState::Created => !record.maker.alive(),
        RecordState::Destroying => true,
        RecordState::Ready => false,
    }
}

async fn recover(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<()> {
    tracing::info!(container = %record.name, state = ?record.state, "healing what a dead process left");
    if record.state == RecordState::Destroying {
        return destroy_locked(runtime, store, record).await.map(drop);
    }
    if record.state == RecordState::Intent {
        store.abandon(&Record { last_used: jiff::Timestamp::now(), ..record.clone() })?;
    }
    let failed = remove_all(runtime, store, record).await.failed;
    if let Some(err) = failed.into_iter().next() {
        return Err(err);
    }
    Ok(store.forget(&record.name)?)
}
