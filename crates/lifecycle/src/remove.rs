//! Removes by id all that was made for a record, whatever it holds.

mod link;

use std::path::PathBuf;

use coracle_runtime::labels::{SNAPSHOT, SNAPSHOT_NAME};
use coracle_runtime::{ContainerRuntime, LabelFilter, RemovalOutcome};
use coracle_types::ProjectName;

use crate::compose_stack::remove_stack;
use crate::networks::drop_shared;
use crate::record::{MadeFrom, Record};
use crate::{Error, Result, Store, StoreError, protected_paths, volume};

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
    if let Err(err) = remove_volume(runtime, store, record).await {
        removal.failed.push(err);
    }
    if let Some(project) = own_stack(record) {
        match remove_stack(runtime, store, project).await {
            Ok(found) => {
                removal.found |= found;
                clear_own(store, "stack", record).await;
            }
            Err(err) => removal.failed.push(err),
        }
    }
    // The creating process may have died before it recorded the guest.
    if record.guest.is_some() || store.root().join("link").join(record.record_id.as_str()).exists() {
        clear_own(store, "link", record).await;
    }
    if record.proxied {
        clear_own(store, "proxy", record).await;
    }
    if let Err(err) = clear_placeholders(store, record).await {
        removal.failed.push(err);
    }
    if let Err(err) = drop_own_snapshot(runtime, store, record).await {
        // Something was made of it meanwhile, say: then it is listed like any other, and can be deleted later.
        tracing::warn!(%err, "the snapshot of the container stays");
    }
    if let Err(err) = drop_shared(runtime, store, Some(record)).await {
        // The container is removed. A shared network that another container still uses is no failure of the removal.
        tracing::warn!(%err, "the shared network stays");
    }
    removal
}

/// The stack that was created with it and is removed with it.
fn own_stack(record: &Record) -> Option<&ProjectName> {
    record.compose_project.as_ref().filter(|_| !record.compose_joined)
}

/// Removes the snapshot that was created only for this container. Finds it by its labels, since a call that died before
/// it knew the image's id may have created it.
async fn drop_own_snapshot(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<()> {
    let Some(MadeFrom { name, own: true }) = &record.snapshot else { return Ok(()) };
    let label = |key: &str, value: &str| (store.signer().key(key), Some(value.to_owned()));
    let its = LabelFilter(vec![label("kind", SNAPSHOT), label(SNAPSHOT_NAME, name.as_str())]);
    for image in runtime.list_images(&its).await? {
        if store.signed(runtime.kind(), &image.labels) {
            runtime.remove_image(&image.id).await?;
        }
    }
    Ok(())
}

/// Removes the record's own directory of that kind. That some of it stays is no reason to keep the record: `prune` finds it.
async fn clear_own(store: &Store, kind: &'static str, record: &Record) {
    let (above, name) = (store.root().join(kind), record.record_id.to_string());
    let cleared = tokio::task::spawn_blocking(move || link::clear(&above, &name, link::MAX_ENTRIES)).await;
    if let Err(err) = cleared {
        tracing::warn!(%err, kind, "a directory of the container stays");
    }
}

/// Removes one of Coracle's directories with its content.
pub(crate) async fn clear_directory(above: PathBuf, name: String) -> Result<()> {
    let path = above.join(&name);
    let cleared = tokio::task::spawn_blocking(move || link::remove(&above, &name, link::MAX_ENTRIES)).await;
    let cleared = cleared.map_err(std::io::Error::from).and_then(|it| it.map_err(std::io::Error::from));
    Ok(cleared.map_err(StoreError::io(&path))?)
}

/// Removes placeholders that only this container needed. Another container with the same directory may need the same
/// file; then it removes the file at its own end.
async fn clear_placeholders(store: &Store, record: &Record) -> Result<()> {
    if record.placeholders.is_empty() {
        return Ok(());
    }
    let _lock = store.common_lock("placeholders").await?;
    let (records, newer) = store.all_records()?;
    if !newer.is_empty() {
        return Ok(()); // a container that is not known here may need them
    }
    let others: Vec<_> = records.into_iter().filter(|it| it.record_id != record.record_id).collect();
    let needed = |path: &&std::path::PathBuf| others.iter().any(|it| it.placeholders.contains(path));
    let mine: Vec<_> = record.placeholders.iter().filter(|it| !needed(it)).cloned().collect();
    protected_paths::clear(&mine);
    Ok(())
}

/// Removes what a call that was given up may have made since.
pub(crate) async fn sweep(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<()> {
    remove_containers(runtime, store, record).await?;
    remove_volume(runtime, store, record).await?;
    if let Some(project) = own_stack(record) {
        // A later call may have made another stack of that name.
        if store.stack_owner(project)?.is_none() {
            remove_stack(runtime, store, project).await?;
        }
        // Podman makes the directory of a bind that is missing when a late container is created.
        clear_own(store, "stack", record).await;
    }
    Ok(())
}

async fn remove_volume(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<()> {
    match &record.volume {
        Some(own) => volume::remove(runtime, store, &own.name).await,
        None => Ok(()),
    }
}

/// Whether there were any.
async fn remove_containers(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<bool> {
    let mut found = false;
    for id in containers_of(runtime, store, record).await? {
        found |= runtime.remove(&id).await? == RemovalOutcome::Now;
    }
    Ok(found)
}

async fn containers_of(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
) -> Result<Vec<coracle_types::ContainerId>> {
    if let Some(id) = &record.id {
        return Ok(vec![id.clone()]);
    }
    let ours = LabelFilter(vec![(store.signer().key("id"), Some(record.record_id.to_string()))]);
    let found = runtime.list(&ours).await?;
    Ok(found.into_iter().filter(|it| store.signed(runtime.kind(), &it.labels)).map(|it| it.id).collect())
}
