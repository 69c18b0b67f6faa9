//! Removal, of everything that only this container used.

use coracle_runtime::{ContainerRuntime, LabelFilter, NetworkAct, Removed};

use crate::network::drop_shared;
use crate::record::{Record, State};
use crate::{Error, Result, Store, protect};

/// What a removal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Destroyed {
    /// The container was gone from the engine before.
    pub already_gone: bool,
}

/// Removes a container of ours, its networks and its placeholders, and buries its record.
///
/// It carries on through every step; when one fails the record stays as `destroying`, and the next call goes on from
/// there.
///
/// # Errors
/// [`Error::Several`] with every failure.
pub async fn destroy(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<Destroyed> {
    let _lock = store.lock(&record.name).await?;
    destroy_locked(runtime, store, record).await
}

pub(crate) async fn destroy_locked(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
) -> Result<Destroyed> {
    let record = Record { state: State::Destroying, ..record.clone() };
    store.save(&record)?;
    let already_gone = match &record.id {
        Some(id) => runtime.inspect(&id.into()).await.is_err(),
        None => true,
    };
    let failed = remove_all(runtime, store, &record).await;
    if !failed.is_empty() {
        return Err(one_or_several(failed));
    }
    store.bury(&record.name, record.id.clone())?;
    store.forget(&record.name)?;
    Ok(Destroyed { already_gone })
}

fn one_or_several(mut failed: Vec<Error>) -> Error {
    if failed.len() == 1 { failed.remove(0) } else { Error::Several(failed) }
}

/// Removes by id all that was made for a record: also a container whose id never reached it, found by our own id in its
/// labels.
pub(crate) async fn remove_all(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Vec<Error> {
    let mut failed = Vec::new();
    match containers_of(runtime, store, record).await {
        Ok(ids) => {
            for id in ids {
                if let Err(err) = remove_one(runtime, &id).await {
                    failed.push(err);
                }
            }
        }
        Err(err) => failed.push(err),
    }
    if !failed.is_empty() {
        return failed;
    }
    for network in &record.networks {
        if let Err(err) = remove_network(runtime, store, network).await {
            failed.push(err);
        }
    }
    if failed.is_empty()
        && let Err(err) = drop_shared(runtime, store, record).await
    {
        failed.push(err);
    }
    protect::clear(&record.placeholders);
    failed
}

async fn remove_one(runtime: &dyn ContainerRuntime, id: &coracle_runtime::ContainerId) -> Result<()> {
    match runtime.remove(id).await? {
        Removed::Now | Removed::AlreadyGone => Ok(()),
    }
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

/// Only if it carries our signature: the name may have gone to somebody else.
async fn remove_network(runtime: &dyn ContainerRuntime, store: &Store, name: &str) -> Result<()> {
    let Ok(parsed) = coracle_runtime::NetworkName::parse(name) else { return Ok(()) };
    let found = runtime.network(NetworkAct::Find(parsed)).await?;
    for network in found.into_iter().filter(|it| it.name == name && store.signed(runtime.kind(), &it.labels)) {
        runtime.network(NetworkAct::Remove(network.id)).await?;
    }
    Ok(())
}
