//! Brings records and engines together again after something died.

use std::time::Duration;

use coracle_runtime::ContainerRuntime;

use crate::destroy::destroy_locked;
use crate::record::{Record, RecordState};
use crate::remove::{remove_all, sweep};
use crate::store::LoadOutcome;
use crate::{Engines, Result, Store};

/// Undoes incomplete creations, continues destructions, and drops records whose container has been missing for
/// `gone_for`. Returns the names of repaired containers.
///
/// # Errors
/// If records cannot be read. A record whose engine does not respond is left for the next time.
pub async fn reconcile(engines: &dyn Engines, store: &Store, gone_for: Duration) -> Result<Vec<String>> {
    let mut healed = Vec::new();
    // One process repairs for all; no other waits for an engine that hangs.
    let Some(_one_at_a_time) = store.try_common_lock("reconcile")? else { return Ok(healed) };
    store.clear_unwritten()?;
    for candidate in store.records()?.into_iter().filter(|it| needs_healing(it)) {
        // The holder of the lock is still making or removing it.
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

/// Whether its creation or removal was broken off, if its lock is free: a creation holds the lock to its end, and also
/// releases it when a panic ends it in a server that lives on.
fn needs_healing(record: &Record) -> bool {
    record.state != RecordState::Ready
}

/// Removes what a broken-off making left, so that its name is free again. The caller holds the container's lock.
pub(crate) async fn recover_making(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<()> {
    match record.state {
        RecordState::Intent | RecordState::Created => recover(runtime, store, record).await,
        RecordState::Destroying | RecordState::Ready => Ok(()),
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

#[cfg(test)]
pub(crate) mod tests {
    use coracle_runtime::FakeRuntime;
    use coracle_types::{ContainerName, ContainerPath, LabelNamespace, ProjectName};

    use super::*;
    use crate::networks::tests::SingleEngine;
    use crate::{Creation, Error, NewRecord};

    pub(crate) fn draft() -> NewRecord {
        let workdir = ContainerPath::parse("/workspace").unwrap();
        NewRecord::new(ContainerName::parse("web").unwrap(), "s", workdir)
    }

    #[tokio::test]
    async fn a_directory_that_an_engine_makes_late_for_a_stack_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let fake = FakeRuntime::new();
        let engines = SingleEngine(fake.clone());
        let with_stack = NewRecord { compose_project: Some(ProjectName::parse("web").unwrap()), ..draft() };
        let making = Creation::begin(&fake, &store, with_stack).await.unwrap();
        let late = dir.path().join("stack").join(making.record().record_id.as_str());
        drop(making);
        reconcile(&engines, &store, Duration::MAX).await.unwrap();
        std::fs::create_dir_all(late.join("0")).unwrap();
        reconcile(&engines, &store, Duration::MAX).await.unwrap();
        assert!(!late.exists());
    }

    /// A panic in a server drops a making without its undo, and the server lives on.
    #[tokio::test]
    async fn a_making_that_was_dropped_frees_its_name_though_its_process_lives() {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let fake = FakeRuntime::new();
        let engines = SingleEngine(fake.clone());
        let making = Creation::begin(&fake, &store, draft()).await.unwrap();
        assert_eq!(reconcile(&engines, &store, Duration::MAX).await.unwrap(), [""; 0], "it is being made");
        drop(making);
        drop(Creation::begin(&fake, &store, draft()).await.unwrap());
        assert_eq!(reconcile(&engines, &store, Duration::MAX).await.unwrap(), ["web"]);
        assert!(store.records().unwrap().is_empty());
        let mut ready = Creation::begin(&fake, &store, draft()).await.unwrap();
        ready.ready(serde_json::Value::Null, serde_json::Map::new()).unwrap();
        drop(ready);
        assert!(matches!(Creation::begin(&fake, &store, draft()).await, Err(Error::NameTaken { .. })));
    }
}
