//! Unused resources of Coracle.
//!
//! **Invariant:** each resource found here is proven to be Coracle's; a label alone is not enough.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coracle_runtime::{Container, ContainerRuntime, LabelFilter, MountPoint, Policy, Volume};
use coracle_types::{ContainerId, ContainerName, ProjectName, RecordId};
use jiff::Timestamp;
use serde::Serialize;

use crate::clock::ClockReading;
use crate::destroy::destroy_unused;
use crate::find::proven;
use crate::lease::{LeaseTerms, Verdict, is_unused_for, jobs_are_over, verdict};
use crate::networks::{OwnNetwork, networks_on};
use crate::reap::{Activity, activity, is_joined};
use crate::record::{Record, RecordState, Role};
use crate::remove::clear_directory;
use crate::{
    AbandonedCopy, ContainerEntry, EndOptions, EndReason, Engines, Error, GuestProgram, Links, ManagedContainer,
    RemoveOptions, Result, SAVE_TIME, SessionContainers, SharedPackages, SlotKey, SlotLimits, SlotObserver, SlotRole,
    Store, StoreError, abandoned_copies, destroy_network, list, packages, reconcile, recorded_engines,
};

/// A resource of Coracle.
#[derive(Clone, Debug)]
pub struct PruneItem {
    /// What it is.
    pub kind: PruneKind,
    /// Its name.
    pub name: String,
    /// Its id, where it has one.
    pub id: Option<String>,
    /// When it was created, where that is known.
    pub made: Option<Timestamp>,
    /// The session that created it; missing where that has ended.
    pub session: Option<String>,
    /// Why it may be removed, or why it stays.
    pub reason: String,
    /// Bytes on the disk, where they are known.
    pub bytes: Option<u64>,
    /// How it is removed; it stays without.
    action: Option<PruneAction>,
}

/// Kinds of resources.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum PruneKind {
    /// A container.
    Containers,
    /// A network.
    Networks,
    /// A volume of a stack.
    Volumes,
    /// What is remembered of a container that is gone.
    Records,
    /// A directory that some process left.
    Temporary,
}

impl PruneKind {
    /// All kinds.
    pub const ALL: [Self; 5] = [Self::Containers, Self::Networks, Self::Volumes, Self::Records, Self::Temporary];
}

#[derive(Clone, Debug)]
enum PruneAction {
    Record { runtime: Arc<dyn ContainerRuntime>, record: Arc<Record>, with_jobs: bool },
    Heal(RecordId),
    Container(Arc<dyn ContainerRuntime>, ContainerId),
    Network(Arc<dyn ContainerRuntime>, Box<OwnNetwork>),
    Volume(Arc<dyn ContainerRuntime>, String),
    Slot(ContainerName, SlotRole),
    Directory(PathBuf),
    Copy(AbandonedCopy),
}

/// What was found.
#[derive(Debug, Default)]
pub struct Prune {
    /// Unused.
    pub candidates: Vec<PruneItem>,
    /// In use.
    pub retained: Vec<PruneItem>,
}

impl Prune {
    fn add(&mut self, item: PruneItem) {
        if item.action.is_none() { self.retained.push(item) } else { self.candidates.push(item) }
    }
}

/// What is looked for.
#[derive(Clone, Copy, Debug)]
pub struct PruneScope<'a> {
    /// Kinds of resources.
    pub kinds: &'a [PruneKind],
    /// How long containers are retained.
    pub terms: &'a LeaseTerms,
    /// Containers that no call has used for that time, with their jobs, are unused too.
    pub idle_for: Option<Duration>,
    /// The time.
    pub now: &'a ClockReading,
    /// Where Coracle's calls create temporary directories.
    pub temp_dirs: &'a [PathBuf],
}

impl PruneScope<'_> {
    fn has(&self, kind: PruneKind) -> bool {
        self.kinds.contains(&kind)
    }
}

/// Finds unused resources of these kinds, on every engine with managed objects. Changes nothing.
///
/// # Errors
/// If one of these engines does not respond, since its objects would be reported as missing. [`StoreError::Newer`] if
/// there are records of a newer version, since their objects would be reported as unused.
///
/// [`StoreError::Newer`]: crate::StoreError::Newer
pub async fn prunable(engines: &dyn Engines, store: &Store, links: &Links, scope: &PruneScope<'_>) -> Result<Prune> {
    if let Some(file) = store.newer_files()?.into_iter().next() {
        return Err(StoreError::Newer(file).into());
    }
    let mut found = Prune::default();
    let listing = list(engines, store).await?;
    if scope.has(PruneKind::Containers) || scope.has(PruneKind::Records) {
        for entry in listing.containers {
            let runtime = engines.for_record(entry.record.engine, &entry.record.endpoint).await?;
            let item = of_record(&RecordContext { runtime: &runtime, store, links }, entry, scope).await;
            if scope.has(item.kind) {
                found.add(item);
            }
        }
    }
    if scope.has(PruneKind::Containers) {
        store.slots()?.iter().for_each(|it| found.add(of_slot(it, scope.now)));
        for name in listing.unverified {
            let reason = "unverified: it carries our label without proof";
            found.add(PruneItem::new(PruneKind::Containers, name, reason));
        }
    }
    for runtime in recorded_engines(engines, &store.records()?).await? {
        if scope.has(PruneKind::Containers) {
            builds(&runtime, store, &mut found).await?;
        }
        if scope.has(PruneKind::Networks) {
            for it in networks_on(&*runtime, store).await? {
                found.add(of_network(&runtime, &store.records()?, it));
            }
        }
        if scope.has(PruneKind::Volumes) {
            volumes(&runtime, store, &mut found).await?;
        }
    }
    if scope.has(PruneKind::Temporary) {
        for kind in ["link", "proxy", "stack"] {
            directories_left(store, kind, &mut found)?;
        }
        copies_left(store, &mut found);
        scope.temp_dirs.iter().for_each(|it| temporary(it, &mut found));
    }
    Ok(found)
}

impl PruneItem {
    /// Something that stays.
    fn new(kind: PruneKind, name: impl Into<String>, reason: impl Into<String>) -> Self {
        let (name, reason) = (name.into(), reason.into());
        Self { kind, name, id: None, made: None, session: None, reason, bytes: None, action: None }
    }

    /// Something that may be removed, for that reason.
    fn unused(self, reason: impl Into<String>, action: PruneAction) -> Self {
        Self { reason: reason.into(), action: Some(action), ..self }
    }

    /// Removes it by its id. Work in a container is saved as by any other `destroy`, that in the volume of a session by
    /// `reader`, where its container is gone.
    ///
    /// # Errors
    /// Those of its removal. [`Error::Busy`] for what was used since it was looked at.
    pub async fn remove(
        &self,
        engines: &dyn Engines,
        store: &Store,
        removing: &RemoveOptions<'_>,
        reader: Option<(&GuestProgram, &Policy)>,
        observer: &SlotObserver<'_>,
    ) -> Result<()> {
        match self.action.as_ref() {
            None => Ok(()),
            Some(PruneAction::Heal(id)) => {
                reconcile(engines, store, Duration::MAX).await?;
                // The log has the details of a failure. The caller only needs to know that the record still exists.
                let there = store.records()?.iter().any(|it| it.record_id == *id);
                if there { Err(Error::Busy { name: self.name.clone() }) } else { Ok(()) }
            }
            Some(PruneAction::Record { runtime, record, with_jobs }) => {
                remove_unused(runtime, store, record, removing, *with_jobs).await
            }
            Some(PruneAction::Container(runtime, id)) => Ok(runtime.remove(id).await.map(drop)?),
            Some(PruneAction::Network(runtime, network)) => destroy_network(&**runtime, store, network).await,
            Some(PruneAction::Volume(runtime, name)) => Ok(runtime.remove_volume(name).await?),
            Some(PruneAction::Slot(session, role)) => {
                let slots = SessionContainers::new(store.clone(), removing.links.clone(), SlotLimits::default());
                let RemoveOptions { saving, grace, .. } = *removing;
                let reason = EndReason::LeaseExpired;
                let ending = EndOptions { saving, reader, grace, within: 2 * SAVE_TIME, observer, reason };
                slots.end_slot(engines, SlotKey::new(session, *role), &ending).await
            }
            Some(PruneAction::Copy(copy)) => {
                let failed = |source| coracle_types::Error::Host {
                    what: format!("cannot remove `{}`", copy.path.display()),
                    source,
                };
                Ok(copy.remove().map_err(failed)?)
            }
            Some(PruneAction::Directory(path)) => match (path.parent(), path.file_name().and_then(|it| it.to_str())) {
                (Some(above), Some(name)) => clear_directory(above.to_owned(), name.to_owned()).await,
                _ => Ok(()),
            },
        }
    }
}

/// Others were removed before it, which takes its time: it is looked at once more.
async fn remove_unused(
    runtime: &Arc<dyn ContainerRuntime>,
    store: &Store,
    record: &Record,
    removing: &RemoveOptions<'_>,
    with_jobs: bool,
) -> Result<()> {
    let container = proven(&**runtime, record).await?;
    let mut found = ManagedContainer { runtime: runtime.clone(), record: record.clone(), container };
    let is_free = activity(store, removing.links, &mut found).await.allows_removal(with_jobs);
    if is_free && destroy_unused(&**runtime, store, record, removing).await?.is_some() {
        return Ok(());
    }
    Err(Error::Busy { name: record.name.to_string() })
}

/// Where a container and its record are.
struct RecordContext<'a> {
    runtime: &'a Arc<dyn ContainerRuntime>,
    store: &'a Store,
    links: &'a Links,
}

async fn of_record(record_context: &RecordContext<'_>, entry: ContainerEntry, scope: &PruneScope<'_>) -> PruneItem {
    let RecordContext { runtime, store, links } = *record_context;
    let (record, gone) = (entry.record.clone(), entry.container.is_none());
    let mut item = PruneItem {
        id: record.id.as_ref().map(ToString::to_string),
        made: Some(record.created),
        session: Some(record.session.clone()),
        ..PruneItem::new(PruneKind::Containers, record.name.as_str(), "")
    };
    let stays = |reason: &str| PruneItem { reason: reason.to_owned(), ..item.clone() };
    if record.state != RecordState::Ready {
        let is_being_made = store.try_lock(&record.name).is_ok_and(|lock| lock.is_none());
        if record.state != RecordState::Destroying && is_being_made {
            return stays("it is just being made");
        }
        item.session = None;
        return item.unused("its making or removal was broken off", PruneAction::Heal(record.record_id.clone()));
    }
    let removal = |with_jobs: bool| PruneAction::Record { runtime: runtime.clone(), record: record.clone(), with_jobs };
    if gone {
        item.kind = PruneKind::Records;
        if is_joined(store, &record) {
            return PruneItem { reason: "others joined its stack".to_owned(), ..item };
        }
        return item.unused("its container is gone", removal(false));
    }
    if record.persistent {
        return stays("it is persistent");
    }
    let orphan = record.owner.as_ref().is_some_and(|it| !it.alive());
    let over = verdict(&record, true, scope.terms, scope.now) == Verdict::Over;
    let idle = scope.idle_for.is_some_and(|time| is_unused_for(&record, time, scope.terms, scope.now));
    if !orphan && !over && !idle {
        return stays(if record.owner.is_some() { "its session lives" } else { "it was used not long ago" });
    }
    let mut found = entry.on(runtime.clone());
    let with_jobs = idle || jobs_are_over(&record, scope.terms, scope.now);
    match activity(store, links, &mut found).await {
        Activity::Jobs if !with_jobs => return stays("jobs run in it"),
        Activity::Other => return stays("something runs in it"),
        Activity::Jobs | Activity::None => {}
    }
    if let Some(container) = found.container.filter(Container::running) {
        item.bytes = runtime.usage(&container.id).await.ok().flatten().and_then(|it| it.disk_bytes);
    }
    item.session = item.session.filter(|_| !over);
    let reason = if orphan { "the process of its session is dead" } else { "unused for a long time" };
    item.unused(reason, removal(with_jobs))
}

/// A session's container is unused when the session's process is dead and has not renewed its lease.
fn of_slot(slot: &crate::session_container::SlotRecord, now: &ClockReading) -> PruneItem {
    let name = slot.name.as_ref().map_or_else(|| slot.volume.name.as_str(), ContainerName::as_str);
    let item = PruneItem {
        id: slot.container_id().map(ToString::to_string),
        made: Some(slot.started_at),
        ..PruneItem::new(PruneKind::Containers, name, "its session lives")
    };
    match slot.is_over(now.wall) {
        true => item.unused("the process of its session is dead", PruneAction::Slot(slot.session.clone(), slot.role)),
        false => PruneItem { session: Some(slot.session.to_string()), ..item },
    }
}

/// Containers that images were to be built in, and that no record names any more.
async fn builds(runtime: &Arc<dyn ContainerRuntime>, store: &Store, found: &mut Prune) -> Result<()> {
    let label = |name: &str| store.signer().key(name);
    let filter = LabelFilter(vec![(label("managed"), Some("true".into())), (label("role"), Some("build".into()))]);
    let mut listed = runtime.list(&filter).await?;
    listed.retain(|it| store.signed(runtime.kind(), &it.labels));
    // The record of a build is on the disk before the engine is called, so records are read after.
    let records = store.records()?;
    for it in listed {
        let id = it.labels.get(&label("id")).map(String::as_str).unwrap_or_default();
        if records.iter().any(|known| known.record_id.as_str() == id) {
            continue;
        }
        let item = PruneItem {
            id: Some(it.id.to_string()),
            made: it.labels.get(&label("created")).and_then(|it| it.parse().ok()),
            ..PruneItem::new(PruneKind::Containers, it.name, "")
        };
        let removal = PruneAction::Container(runtime.clone(), it.id);
        found.add(item.unused("it was made for an image, and its maker is gone", removal));
    }
    Ok(())
}

fn of_network(runtime: &Arc<dyn ContainerRuntime>, records: &[Arc<Record>], it: OwnNetwork) -> PruneItem {
    let item = PruneItem {
        id: Some(it.id.clone()),
        made: it.created.parse().ok(),
        session: it.session.clone().filter(|session| records.iter().any(|record| record.session == *session)),
        ..PruneItem::new(PruneKind::Networks, it.name.as_str(), "")
    };
    if !it.containers.is_empty() {
        return PruneItem { reason: format!("used by {}", it.containers.join(", ")), ..item };
    }
    if it.project.is_some() && records.iter().any(|record| record.compose_project == it.project) {
        return PruneItem { reason: "its stack is there".to_owned(), ..item };
    }
    item.unused("no container is on it", PruneAction::Network(runtime.clone(), Box::new(it)))
}

async fn volumes(runtime: &Arc<dyn ContainerRuntime>, store: &Store, found: &mut Prune) -> Result<()> {
    let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
    let mut listed = runtime.list_volumes(&managed).await?;
    listed.retain(|it| store.signed(runtime.kind(), &it.labels));
    let owners = VolumeOwners::load(store)?;
    let mut packages = None;
    for it in listed {
        let (reason, stays) = if owners.role(&it) == packages::ROLE {
            if packages.is_none() {
                packages = Some(PackageUse::load(&**runtime, store).await?);
            }
            packages.as_ref().map_or(("", true), |packages| packages.describe_use(&it.name))
        } else {
            owners.describe_use(&it)
        };
        let item = PruneItem {
            id: Some(it.name.clone()),
            made: it.created.parse().ok(),
            ..PruneItem::new(PruneKind::Volumes, it.name.as_str(), reason)
        };
        found.add(match stays {
            true => item,
            false => item.unused(reason, PruneAction::Volume(runtime.clone(), it.name)),
        });
    }
    Ok(())
}

/// What volumes are needed for.
struct VolumeOwners<'a> {
    store: &'a Store,
    records: Vec<Arc<Record>>,
    slots: Vec<crate::session_container::SlotRecord>,
}

impl<'a> VolumeOwners<'a> {
    fn load(store: &'a Store) -> Result<Self, StoreError> {
        Ok(Self { store, records: store.records()?, slots: store.slots()? })
    }

    fn role<'v>(&self, it: &'v Volume) -> &'v str {
        it.labels.get(&self.store.signer().key("role")).map(String::as_str).unwrap_or_default()
    }

    /// Whether the owner of a volume is there.
    fn describe_use(&self, it: &Volume) -> (&'static str, bool) {
        let role = self.role(it);
        if SlotRole::ALL.iter().any(|it| it.as_str() == role) {
            let there = self.slots.iter().any(|slot| slot.volume.name.as_str() == it.name);
            return (if there { "its session is there" } else { "its session is gone" }, there);
        }
        if role == Role::Primary.as_str() {
            let owns = |record: &Arc<Record>| record.volume.as_ref().is_some_and(|own| own.name.as_str() == it.name);
            let there = self.records.iter().any(owns);
            return (if there { "its container is there" } else { "its container is gone" }, there);
        }
        let of_ours = it.labels.get(&self.store.signer().key("compose_project"));
        let project = of_ours.or_else(|| it.labels.get("com.docker.compose.project"));
        let is_project = |it: &ProjectName| project.is_some_and(|project| project == it.as_str());
        let there = self.records.iter().any(|it| it.compose_project.as_ref().is_some_and(is_project));
        (if there { "its stack is there" } else { "its stack is gone" }, there)
    }
}

/// Where packages for snippets are used: they stay until they are cleared, and earlier ones as long as a container has
/// them.
struct PackageUse {
    packages: Vec<SharedPackages>,
    at_rest: bool,
    containers: Vec<Container>,
}

impl PackageUse {
    async fn load(runtime: &dyn ContainerRuntime, store: &Store) -> Result<Self> {
        // While packages are added, their volume is not recorded yet.
        let at_rest = store.try_common_lock(packages::ROLE)?.is_some();
        let packages = store.shared_packages()?;
        let managed = LabelFilter(vec![(store.signer().key("managed"), None)]);
        Ok(Self { packages, at_rest, containers: runtime.list(&managed).await? })
    }

    fn describe_use(&self, volume: &str) -> (&'static str, bool) {
        let is_it = |part: Component<'_>| part.as_os_str() == volume;
        let has_it = |it: &MountPoint| it.source.components().any(is_it);
        match () {
            () if self.packages.iter().any(|packages| packages.volume.as_str() == volume) => {
                ("snippets get these packages", true)
            }
            () if !self.at_rest => ("packages are just being changed", true),
            () if self.containers.iter().any(|it| it.mounts.iter().any(has_it)) => {
                ("a container has these packages", true)
            }
            () => ("snippets get other packages now", false),
        }
    }
}

/// What containers saw as their link, and files of their stacks; also what was put aside when it was to be cleared.
fn directories_left(store: &Store, kind: &str, found: &mut Prune) -> Result<()> {
    let above = store.root().join(kind);
    let left = names_in(&above);
    let (records, abandoned) = (store.records()?, store.abandoned()?);
    for name in left {
        let of_record = |it: &Record| it.record_id.as_str() == name;
        if records.iter().any(|it| of_record(it)) || abandoned.iter().any(of_record) {
            continue;
        }
        let path = above.join(&name);
        let item = PruneItem {
            made: path.symlink_metadata().ok().as_ref().and_then(modified),
            ..PruneItem::new(PruneKind::Temporary, format!("{kind}/{name}"), "")
        };
        found.add(item.unused("its container is gone", PruneAction::Directory(path)));
    }
    Ok(())
}

/// What copies left on the host whose process was killed.
fn copies_left(store: &Store, found: &mut Prune) {
    for copy in abandoned_copies(&store.unfinished_copies()) {
        let item = PruneItem {
            made: copy.path.symlink_metadata().ok().as_ref().and_then(modified),
            ..PruneItem::new(PruneKind::Temporary, copy.path.display().to_string(), "")
        };
        found.add(item.unused("the process that copied it is gone", PruneAction::Copy(copy)));
    }
}

/// No call takes more than an hour or two; its directory is left behind only by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(86400);

/// What is below such a directory is needed for one call: a clone that is looked at, a copy, Podman's socket, a
/// snippet, a build, the user's logins for a pull.
const TEMPORARY: &[&str] =
    &["coracle-git-", "coracle-copy-", "coracle-podman-", "coracle-run-", "coracle-build-", "coracle-pull-"];

/// Temporary directories of calls.
fn temporary(dir: &Path, found: &mut Prune) {
    for name in names_in(dir).into_iter().filter(|it| TEMPORARY.iter().any(|begin| it.starts_with(begin))) {
        let path = dir.join(&name);
        let Ok(meta) = path.symlink_metadata() else { continue };
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let old = meta.modified().ok().and_then(|it| it.elapsed().ok()).is_some_and(|it| it > ABANDONED);
        let item = PruneItem::new(PruneKind::Temporary, name, "it may be in use");
        let item = PruneItem { made: modified(&meta), ..item };
        found.add(match old {
            true => item.unused("the process that made it is gone", PruneAction::Directory(path)),
            false => item,
        });
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|it| it.ok()?.file_name().into_string().ok()).collect()
}

fn modified(meta: &std::fs::Metadata) -> Option<Timestamp> {
    meta.modified().ok().and_then(|it| Timestamp::try_from(it).ok())
}

#[cfg(test)]
mod tests;
