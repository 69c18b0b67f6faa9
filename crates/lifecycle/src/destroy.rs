//! Removal, of everything that only this container used.

mod link;

use coracle_runtime::{ContainerRuntime, LabelFilter, Removed};

use crate::network::drop_shared;
use crate::record::{Record, State};
use crate::store::Loaded;
use crate::{Error, Result, Store, protect};

/// What a removal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destroyed {
    /// The container was gone from the engine before.
    pub already_gone: bool,
}

/// Removes a container of ours, its networks and its placeholders, and buries its record.
///
/// What does not depend on a step that failed is done all the same; the record then stays as `destroying`, and the next
/// call goes on from there.
///
/// # Errors
/// [`Error::Several`] with every failure.
pub async fn destroy(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<Destroyed> {
    let _lock = store.lock(&record.name).await?;
    match store.load(&record.name)? {
        // While we waited it was destroyed, and another of the same name was made.
        Loaded::Record(now) if now.record_id != record.record_id => Ok(Destroyed { already_gone: true }),
        // What was read before the lock may know less: of the id, of what lies beneath its binds.
        Loaded::Record(now) => destroy_locked(runtime, store, &now).await,
        _ => destroy_locked(runtime, store, record).await,
    }
}

pub(crate) async fn destroy_locked(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
) -> Result<Destroyed> {
    let record = Record { state: State::Destroying, ..record.clone() };
    store.save(&record)?;
    let removal = remove_all(runtime, store, &record).await;
    if !removal.failed.is_empty() {
        return Err(one_or_several(removal.failed));
    }
    store.bury(&record.name, record.id.clone())?;
    store.forget(&record.name)?;
    Ok(Destroyed { already_gone: !removal.found })
}

fn one_or_several(mut failed: Vec<Error>) -> Error {
    if failed.len() == 1 { failed.remove(0) } else { Error::Several(failed) }
}

/// What became of all that was made for a record.
#[derive(Debug, Default)]
pub(crate) struct Removal {
    /// The engine had the container.
    pub(crate) found: bool,
    /// Every step that failed.
    pub(crate) failed: Vec<Error>,
}

/// Removes by id all that was made for a record: also a container whose id never reached it, found by our own id in its
/// labels.
pub(crate) async fn remove_all(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Removal {
    let mut removal = Removal::default();
    match remove_containers(runtime, store, record).await {
        Ok(found) => removal.found = found,
        Err(err) => {
            // The files beneath its binds are still in use.
            removal.failed.push(err);
            return removal;
        }
    }
    if record.guest.is_some() {
        clear_link(store, record).await;
    }
    if let Err(err) = clear_placeholders(store, record).await {
        removal.failed.push(err);
    }
    if let Err(err) = drop_shared(runtime, store, record).await {
        // The container is gone; a network that somebody else put a container on is no reason to say otherwise.
        tracing::warn!(%err, "the shared network stays");
    }
    removal
}

/// What the container left in it is its own business: that some of it stays is no reason to keep the record.
async fn clear_link(store: &Store, record: &Record) {
    let (above, name) = (store.root().join("link"), record.record_id.to_string());
    let cleared = tokio::task::spawn_blocking(move || link::clear(&above, &name, link::MAX_ENTRIES)).await;
    if let Err(err) = cleared {
        tracing::warn!(%err, "the link of the container stays");
    }
}

/// Takes away what only this container needed beneath its binds. Another container that has the same directory may be
/// protected by the same file: then that one takes it away at its own end.
async fn clear_placeholders(store: &Store, record: &Record) -> Result<()> {
    if record.placeholders.is_empty() {
        return Ok(());
    }
    let _lock = store.common_lock("placeholders").await?;
    let others: Vec<_> = store.records()?.into_iter().filter(|it| it.record_id != record.record_id).collect();
    let needed = |path: &&std::path::PathBuf| others.iter().any(|it| it.placeholders.contains(path));
    let mine: Vec<_> = record.placeholders.iter().filter(|it| !needed(it)).cloned().collect();
    protect::clear(&mine);
    Ok(())
}

/// Whether there were any.
pub(crate) async fn remove_containers(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<bool> {
    let mut found = false;
    for id in containers_of(runtime, store, record).await? {
        found |= runtime.remove(&id).await? == Removed::Now;
    }
    Ok(found)
}

async fn containers_of(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
) -> Result<Vec<coracle_runtime::ContainerId>> {
    if let Some(id) = &record.id {
        return Ok(vec![id.clone()]);
    }
    let ours = LabelFilter(vec![(store.signer().key("id"), Some(record.record_id.to_string()))]);
    let found = runtime.list(&ours).await?;
    Ok(found.into_iter().filter(|it| store.signed(runtime.kind(), &it.labels)).map(|it| it.id).collect())
}
