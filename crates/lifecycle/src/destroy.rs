//! Removal, of everything that only this container used.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::ContainerRuntime;

use crate::error::one_or_several;
use crate::host_review::{Review, SetIdReport, looked_through, take_off, writable};
use crate::record::{Record, RecordState, Role};
use crate::remove::remove_all;
use crate::save::{SaveContext, end_commands};
use crate::store::LoadOutcome;
use crate::{Links, Result, SaveLimits, SaveReport, Store};

/// What a removal found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DestroyReport {
    /// The container was gone from the engine before.
    pub already_gone: bool,
    /// What was saved of it.
    pub saved: Vec<SaveReport>,
    /// What is to be looked at in directories of the host that it could write.
    pub review: Review,
    /// It was adopted, and is left as it is.
    pub forgotten: bool,
    /// Directories of the host that were bound into it, and are gone or replaced: their content could not be reviewed.
    pub missing: Vec<PathBuf>,
}

impl DestroyReport {
    /// Nothing was left to remove.
    #[must_use]
    pub fn gone() -> Self {
        let (saved, review, missing) = Default::default();
        Self { already_gone: true, saved, review, forgotten: false, missing }
    }
}

/// What becomes of work that only the container has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SavePolicy {
    /// It is saved on the host before anything is removed.
    Keep(SaveLimits),
    /// It goes, by the word of who may say so.
    Discard,
}

/// How a container is removed.
#[derive(Clone, Copy, Debug)]
pub struct RemoveOptions<'a> {
    /// Connections to guests.
    pub links: &'a Links,
    /// What becomes of unsaved work.
    pub saving: SavePolicy,
    /// Time between TERM and KILL of commands that still run.
    pub grace: Duration,
    /// Also a container that was adopted, which is only forgotten otherwise: at the user's request.
    pub adopted_too: bool,
}

/// Saves what only this container has, removes it with its networks and its placeholders, and buries its record.
///
/// A record is `destroying` once everything is saved, so that a later call that completes it saves nothing. What
/// does not depend on a step that failed is done all the same; the record then stays so, and the next call goes on.
///
/// # Errors
/// [`SaveFailed`](crate::Error::SaveFailed): it is stopped and nothing was removed. [`Several`](crate::Error::Several)
/// with every failure.
pub async fn destroy(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
    removing: &RemoveOptions<'_>,
) -> Result<DestroyReport> {
    let done = destroy_if(runtime, store, record, removing, &|_| true).await?;
    Ok(done.unwrap_or_else(DestroyReport::gone))
}

/// The same, unless it was used since `record` was read: much may have been done before its turn came. `None` if it
/// was.
pub(crate) async fn destroy_unused(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
    removing: &RemoveOptions<'_>,
) -> Result<Option<DestroyReport>> {
    let is_unused = |now: &Record| now.lease.used == record.lease.used && now.last_used == record.last_used;
    destroy_if(runtime, store, record, removing, &is_unused).await
}

/// Destroys it if that is so of its record as it is under the lock.
async fn destroy_if(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
    removing: &RemoveOptions<'_>,
    is_due: &(dyn Fn(&Record) -> bool + Sync),
) -> Result<Option<DestroyReport>> {
    let _lock = store.lock(&record.name).await?;
    let record = match store.load(&record.name)? {
        // While we waited it was destroyed, and another of the same name was made.
        LoadOutcome::Record(now) if now.record_id != record.record_id => {
            return Ok(Some(DestroyReport::gone()));
        }
        LoadOutcome::Record(now) if !is_due(&now) => return Ok(None),
        // The record that was read before the lock may be older: without the id, or with other binds.
        LoadOutcome::Record(now) => Arc::unwrap_or_clone(now),
        _ => record.clone(),
    };
    if record.role == Role::Adopted && !removing.adopted_too {
        // Coracle did not create it, and only forgets it.
        store.forget(&record.name)?;
        return Ok(Some(DestroyReport { forgotten: true, already_gone: false, ..DestroyReport::gone() }));
    }
    let _removal = store.removal_lock(&record.name).await?;
    let RemoveOptions { links, saving, grace, .. } = *removing;
    let swept = swept(runtime, store, &record, removing).await;
    let saved = match saving {
        // A container that was never ready has no work. An adopted one's content is not managed, and it is unknown
        // where its work is.
        SavePolicy::Keep(limits) if record.state == RecordState::Ready && record.role != Role::Adopted => {
            SaveContext { runtime, store, links, limits, grace }.save(&record).await?
        }
        _ => Vec::new(),
    };
    let missing = missing_binds(&record);
    let already_gone = destroy_locked(runtime, store, &record).await?;
    record.id.iter().for_each(|id| links.forget(id));
    let review = review(record, swept).await;
    Ok(Some(DestroyReport { already_gone, saved, review, forgotten: false, missing }))
}

/// What was bound, and is not there any more under the path that was checked.
fn missing_binds(record: &Record) -> Vec<PathBuf> {
    let is_there = |host: &Path| host.canonicalize().is_ok_and(|real| real == host);
    let hosts = record.mounts.iter().map(|mount| mount.host.as_path());
    hosts.filter(|host| record.state == RecordState::Ready && !is_there(host)).map(Path::to_owned).collect()
}

/// Ends what runs, and takes off what root inside must not leave on the host. Without root on the
/// host, root inside can leave nothing there.
async fn swept(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
    removing: &RemoveOptions<'_>,
) -> SetIdReport {
    let RemoveOptions { links, grace, .. } = *removing;
    if record.state != RecordState::Ready || runtime.endpoint().rootless || writable(record).next().is_none() {
        return SetIdReport::default();
    }
    match links.direct_link(store, record).await {
        Some(link) => {
            if let Err(err) = end_commands(&link, grace).await {
                tracing::debug!(container = %record.name, %err, "its commands cannot be ended");
            }
            take_off(&link, record).await
        }
        None => SetIdReport::default(),
    }
}

async fn review(record: Record, swept: SetIdReport) -> Review {
    if record.state != RecordState::Ready || writable(&record).next().is_none() {
        return Review::default();
    }
    let name = record.name.clone();
    let looked = tokio::task::spawn_blocking(move || looked_through(&record, &swept)).await;
    looked.unwrap_or_else(|err| {
        tracing::warn!(container = %name, %err, "what it left in directories of the host was not looked through");
        Review { more: true, ..Review::default() }
    })
}

/// Removes what has nothing to save, or was saved. Whether the container was gone before.
pub(crate) async fn destroy_locked(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<bool> {
    let record = Record { state: RecordState::Destroying, ..record.clone() };
    store.save(&record)?;
    let removal = remove_all(runtime, store, &record).await;
    if !removal.failed.is_empty() {
        return Err(one_or_several(removal.failed));
    }
    store.write_tombstone(&record.name, record.id.as_ref())?;
    store.forget(&record.name)?;
    Ok(!removal.found)
}

#[cfg(test)]
mod tests {
    use coracle_client::LinkSettings;
    use coracle_runtime::FakeRuntime;
    use coracle_runtime::fake::Verb;
    use coracle_types::{ContainerPath, LabelNamespace};

    use super::*;
    use crate::record::tests::record;

    #[tokio::test]
    async fn what_was_used_since_it_was_looked_at_stays() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let seen = Record { id: Some(fake.runs("web").await), state: RecordState::Ready, ..record("web") };
        store.save(&seen).unwrap();
        store.touch(&Record { last_used: jiff::Timestamp::UNIX_EPOCH, ..seen.clone() }).unwrap();
        let links = Links::new(LinkSettings::default());
        let removing =
            RemoveOptions { links: &links, saving: SavePolicy::Discard, grace: Duration::ZERO, adopted_too: false };
        assert_eq!(destroy_unused(&fake, &store, &seen, &removing).await.unwrap(), None);
        assert!(!fake.calls().contains(&Verb::Remove));
        let now = Arc::unwrap_or_clone(store.load(&seen.name).unwrap().record().unwrap());
        assert!(destroy_unused(&fake, &store, &now, &removing).await.unwrap().is_some());
    }

    #[tokio::test]
    async fn others_see_that_it_is_being_removed() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let record = Record { id: Some(fake.runs("web").await), state: RecordState::Ready, ..record("web") };
        store.save(&record).unwrap();
        fake.slow(Verb::Remove, Duration::from_secs(1));
        let links = Links::new(LinkSettings::default());
        let removing =
            RemoveOptions { links: &links, saving: SavePolicy::Discard, grace: Duration::ZERO, adopted_too: false };
        let seen = async {
            while !store.is_being_removed(&record.name).await.unwrap() {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        assert!(!store.is_being_removed(&record.name).await.unwrap());
        let removal = destroy(&fake, &store, &record, &removing);
        let (removed, seen) = tokio::join!(removal, tokio::time::timeout(Duration::from_secs(5), seen));
        assert!(removed.is_ok() && seen.is_ok(), "{removed:?}");
        assert!(!store.is_being_removed(&record.name).await.unwrap());
    }

    #[tokio::test]
    async fn an_adopted_container_is_removed_on_request_without_a_save() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        let id = fake.runs("theirs").await;
        let record = Record {
            id: Some(id),
            state: RecordState::Ready,
            role: Role::Adopted,
            workdir: ContainerPath::root(),
            ..record("theirs")
        };
        store.save(&record).unwrap();
        let links = Links::new(LinkSettings::default());
        let saving = SavePolicy::Keep(SaveLimits { max_bytes: 1, time: Duration::from_secs(10) });
        let removing = RemoveOptions { links: &links, saving, grace: Duration::ZERO, adopted_too: true };
        let done = destroy(&fake, &store, &record, &removing).await.unwrap();
        assert_eq!((done.forgotten, done.already_gone, done.saved), (false, false, vec![]));
        assert!(!fake.calls().contains(&Verb::Download));
    }
}
