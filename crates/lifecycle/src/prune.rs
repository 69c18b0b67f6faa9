//! What of ours nothing needs any more (containers.md 14.7).
//!
//! **Invariant:** what is found here is proven ours, one by one; a label alone makes nothing a candidate.

use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use coracle_runtime::{Container, ContainerId, ContainerName, ContainerRuntime, LabelFilter, RecordId, Volume};
use jiff::Timestamp;
use serde::Serialize;

use crate::clock::ClockReading;
use crate::lease::{LeaseTerms, Verdict, verdict};
use crate::networks::{OwnNetwork, networks_on};
use crate::packages;
use crate::reap::in_use;
use crate::record::{Record, Role, State};
use crate::remove::clear_directory;
use crate::{
    ContainerEntry, EndOptions, EndReason, Engines, Error, Links, ManagedContainer, RemoveOptions, Result, SAVE_TIME,
    SessionContainers, SlotLimits, SlotObserver, SlotRole, Store, StoreError, asked, destroy, destroy_network, list,
    reconcile,
};

/// Something of ours.
#[derive(Clone, Debug)]
pub struct PruneItem {
    /// What it is.
    pub kind: PruneKind,
    /// Its name.
    pub name: String,
    /// Its id, where it has one.
    pub id: Option<String>,
    /// When it was made, where that is known.
    pub made: Option<Timestamp>,
    /// The session that made it; missing where it is nobody's any more.
    pub session: Option<String>,
    /// Why it may go, or why it stays.
    pub reason: String,
    /// Bytes on the disk, where they are known.
    pub bytes: Option<u64>,
    way: PruneAction,
}

/// Kinds of things.
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

/// How it goes.
#[derive(Clone, Debug)]
enum PruneAction {
    Stays,
    Record(Arc<dyn ContainerRuntime>, Arc<Record>),
    Heal(RecordId),
    Container(Arc<dyn ContainerRuntime>, ContainerId),
    Network(Arc<dyn ContainerRuntime>, OwnNetwork),
    Volume(Arc<dyn ContainerRuntime>, String),
    Room(ContainerName, SlotRole),
    Directory(PathBuf),
}

/// What was found.
#[derive(Debug, Default)]
pub struct Prune {
    /// Nothing needs it.
    pub candidates: Vec<PruneItem>,
    /// Somebody does.
    pub kept: Vec<PruneItem>,
}

impl Prune {
    fn add(&mut self, thing: PruneItem) {
        if matches!(thing.way, PruneAction::Stays) { self.kept.push(thing) } else { self.candidates.push(thing) }
    }
}

/// Looks at all there is of these kinds, on every engine that holds some of ours. Changes nothing.
///
/// # Errors
/// When one of these engines does not answer: what it holds would be told as gone.
pub async fn prunable(
    engines: &dyn Engines,
    store: &Store,
    links: &Links,
    (terms, now): (&LeaseTerms, &ClockReading),
    (wanted, temp_dirs): (impl Fn(PruneKind) -> bool, &[PathBuf]),
) -> Result<Prune> {
    let mut found = Prune::default();
    let listing = list(engines, store).await?;
    if wanted(PruneKind::Containers) || wanted(PruneKind::Records) {
        for it in listing.containers {
            let thing = of_record(engines, store, links, (it, terms, now)).await?;
            if wanted(thing.kind) {
                found.add(thing);
            }
        }
        slots(store, now, (&wanted, &mut found))?;
        for name in listing.unverified.into_iter().filter(|_| wanted(PruneKind::Containers)) {
            let reason = "unverified: it carries our label without proof".to_owned();
            found.add(PruneItem { name, reason, ..PruneItem::of(PruneKind::Containers) });
        }
    }
    for runtime in asked(engines, &store.records()?).await? {
        if wanted(PruneKind::Containers) {
            builds(&runtime, store, &mut found).await?;
        }
        if wanted(PruneKind::Networks) {
            for it in networks_on(&*runtime, store).await? {
                found.add(of_network(&runtime, store, it)?);
            }
        }
        if wanted(PruneKind::Volumes) {
            volumes(&runtime, store, &mut found).await?;
        }
    }
    if wanted(PruneKind::Temporary) {
        temporary(store, &mut found)?;
        temp_dirs.iter().for_each(|it| clones(it, &mut found));
    }
    Ok(found)
}

/// Removes one that was found, by its id. Work in a container is saved as by any other `destroy`.
///
/// # Errors
/// Those of its removal.
pub async fn prune(
    engines: &dyn Engines,
    store: &Store,
    (removing, tell): (&RemoveOptions<'_>, &SlotObserver<'_>),
    thing: &PruneItem,
) -> Result<()> {
    match &thing.way {
        PruneAction::Stays => {}
        PruneAction::Heal(id) => {
            reconcile(engines, store, Duration::MAX).await?;
            // What it could not do is in its log; that the record is there says enough.
            if store.records()?.iter().any(|it| it.record_id == *id) {
                return Err(Error::Busy { name: thing.name.clone() });
            }
        }
        PruneAction::Record(runtime, record) => {
            destroy(&**runtime, store, record, removing).await?;
        }
        PruneAction::Container(runtime, id) => drop(runtime.remove(id).await?),
        PruneAction::Network(runtime, network) => destroy_network(&**runtime, store, network).await?,
        PruneAction::Volume(runtime, name) => runtime.remove_volume(name).await?,
        PruneAction::Room(session, role) => {
            let slots = SessionContainers::new(store.clone(), removing.links.clone(), SlotLimits::default());
            let RemoveOptions { saving, grace, .. } = *removing;
            let reason = EndReason::LeaseExpired;
            let ending = EndOptions { saving, reader: None, grace, within: SAVE_TIME, tell, reason };
            slots.end_slot(engines, (session, *role), &ending).await?;
        }
        PruneAction::Directory(path) => {
            if let (Some(above), Some(name)) = (path.parent(), path.file_name().and_then(|it| it.to_str())) {
                clear_directory(above.to_owned(), name.to_owned()).await?;
            }
        }
    }
    Ok(())
}

impl PruneItem {
    fn of(kind: PruneKind) -> Self {
        let (name, reason) = (String::new(), String::new());
        Self { kind, name, id: None, made: None, session: None, reason, bytes: None, way: PruneAction::Stays }
    }
}

async fn of_record(
    engines: &dyn Engines,
    store: &Store,
    links: &Links,
    (it, terms, now): (ContainerEntry, &LeaseTerms, &ClockReading),
) -> Result<PruneItem> {
    let ContainerEntry { record, container } = it;
    let thing = PruneItem {
        name: record.name.to_string(),
        id: record.id.as_ref().map(ToString::to_string),
        made: Some(record.created),
        session: Some(record.session.clone()),
        ..PruneItem::of(if container.is_none() { PruneKind::Records } else { PruneKind::Containers })
    };
    let stays = |reason: &str| PruneItem { reason: reason.to_owned(), ..thing.clone() };
    let broken_off = record.state == State::Destroying || !record.maker.alive();
    if record.state != State::Ready {
        let kind = PruneKind::Containers;
        return Ok(match broken_off {
            true => PruneItem {
                kind,
                way: PruneAction::Heal(record.record_id.clone()),
                session: None,
                ..stays("its making or removal was broken off")
            },
            false => PruneItem { kind, ..stays("it is just being made") },
        });
    }
    let runtime = engines.of(record.engine, &record.endpoint).await?;
    let goes = PruneAction::Record(runtime.clone(), record.clone());
    if container.is_none() {
        return Ok(PruneItem { way: goes, ..stays("its container is gone") });
    }
    if record.persistent {
        return Ok(stays("it is persistent"));
    }
    let orphan = record.owner.as_ref().is_some_and(|it| !it.alive());
    let over = verdict(&record, true, terms, now) == Verdict::Over;
    if !orphan && !over {
        return Ok(stays(if record.owner.is_some() { "its session lives" } else { "it was used not long ago" }));
    }
    let mut found = ManagedContainer {
        runtime,
        record: Arc::unwrap_or_clone(record),
        container: container.map(Arc::unwrap_or_clone),
    };
    if in_use(store, links, &mut found).await {
        return Ok(stays("something runs in it"));
    }
    let bytes = match found
        .record
        .id
        .as_ref()
        .filter(|_| found.container.as_ref().is_some_and(coracle_runtime::Container::running))
    {
        Some(id) => found.runtime.usage(id).await.ok().flatten().and_then(|it| it.disk_bytes),
        None => None,
    };
    let session = thing.session.clone().filter(|_| !over);
    let reason = if orphan { "the process of its session is dead" } else { "nobody has used it for long" };
    Ok(PruneItem { way: goes, bytes, session, ..stays(reason) })
}

/// SessionContainers of sessions, which go when their process is dead and has not renewed its lease.
fn slots(
    store: &Store,
    now: &ClockReading,
    (wanted, found): (&impl Fn(PruneKind) -> bool, &mut Prune),
) -> Result<(), StoreError> {
    for slot in store.slots()?.into_iter().filter(|_| wanted(PruneKind::Containers)) {
        let over = slot.is_over(now.wall);
        let way = if over { PruneAction::Room(slot.session.clone(), slot.role) } else { PruneAction::Stays };
        let reason = if over { "the process of its session is dead" } else { "its session lives" }.to_owned();
        found.add(PruneItem {
            name: slot.name.as_ref().map_or_else(|| slot.volume.name.to_string(), ToString::to_string),
            id: slot.container_id().map(ToString::to_string),
            made: Some(slot.started_at),
            session: Some(slot.session.to_string()).filter(|_| !over),
            reason,
            way,
            ..PruneItem::of(PruneKind::Containers)
        });
    }
    Ok(())
}

/// Containers that images were to be made of, and that no record knows any more.
async fn builds(runtime: &Arc<dyn ContainerRuntime>, store: &Store, found: &mut Prune) -> Result<()> {
    let label = |name: &str| store.signer().key(name);
    let filter = LabelFilter(vec![(label("managed"), Some("true".into())), (label("role"), Some("build".into()))]);
    let mut listed = runtime.list(&filter).await?;
    listed.retain(|it| store.signed(runtime.kind(), &it.labels));
    // Whoever makes one has its record on the disk before the engine hears of it, so records are read after.
    let known: Vec<RecordId> = store.records()?.into_iter().map(|it| it.record_id.clone()).collect();
    for it in listed {
        let id = it.labels.get(&label("id")).cloned().unwrap_or_default();
        if known.iter().any(|known| known.as_str() == id) {
            continue;
        }
        found.add(PruneItem {
            name: it.name.clone(),
            id: Some(it.id.to_string()),
            made: it.labels.get(&label("created")).and_then(|it| it.parse().ok()),
            reason: "it was made for an image, and its maker is gone".to_owned(),
            way: PruneAction::Container(runtime.clone(), it.id),
            ..PruneItem::of(PruneKind::Containers)
        });
    }
    Ok(())
}

fn of_network(runtime: &Arc<dyn ContainerRuntime>, store: &Store, it: OwnNetwork) -> Result<PruneItem> {
    let records = store.records()?;
    let thing = PruneItem {
        name: it.name.clone(),
        id: Some(it.id.clone()),
        made: it.created.parse().ok(),
        session: it.session.clone().filter(|session| records.iter().any(|record| record.session == *session)),
        ..PruneItem::of(PruneKind::Networks)
    };
    if !it.containers.is_empty() {
        return Ok(PruneItem { reason: format!("used by {}", it.containers.join(", ")), ..thing });
    }
    if it.project.is_some() && records.iter().any(|record| record.compose_project == it.project) {
        return Ok(PruneItem { reason: "its stack is there".to_owned(), ..thing });
    }
    Ok(PruneItem {
        reason: "no container is on it".to_owned(),
        way: PruneAction::Network(runtime.clone(), it),
        ..thing
    })
}

async fn volumes(runtime: &Arc<dyn ContainerRuntime>, store: &Store, found: &mut Prune) -> Result<()> {
    let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
    let listed = runtime.list_volumes(&managed).await?;
    let (records, slots, role_label) = (store.records()?, store.slots()?, store.signer().key("role"));
    let (of_packages, listed): (Vec<_>, Vec<_>) =
        listed.into_iter().partition(|it| it.labels.get(&role_label).is_some_and(|it| it == packages::ROLE));
    packages_of_before(runtime, store, of_packages, found).await?;
    for it in listed.into_iter().filter(|it| store.signed(runtime.kind(), &it.labels)) {
        let of_ours = it.labels.get(&store.signer().key("compose_project"));
        let project = of_ours.or_else(|| it.labels.get("com.docker.compose.project")).cloned().unwrap_or_default();
        let of_room = SlotRole::ALL.iter().any(|role| it.labels.get(&role_label).is_some_and(|it| it == role.as_str()));
        let of_container = it.labels.get(&role_label).is_some_and(|it| it == Role::Primary.as_str());
        let (there, whose) = if of_room {
            (slots.iter().any(|slot| slot.volume.name.as_str() == it.name), "session")
        } else if of_container {
            let is_its = |record: &Arc<Record>| record.volume.as_ref().is_some_and(|own| own.name.as_str() == it.name);
            (records.iter().any(is_its), "container")
        } else {
            let of_project = |it: &Arc<Record>| it.compose_project.as_ref().is_some_and(|it| it.as_str() == project);
            (records.iter().any(of_project), "stack")
        };
        let way = if there { PruneAction::Stays } else { PruneAction::Volume(runtime.clone(), it.name.clone()) };
        let reason = format!("its {whose} is {}", if there { "there" } else { "gone" });
        let made = it.created.parse().ok();
        found.add(PruneItem {
            id: Some(it.name.clone()),
            name: it.name,
            made,
            reason,
            way,
            ..PruneItem::of(PruneKind::Volumes)
        });
    }
    Ok(())
}

/// Packages for snippets stay as long as nobody clears them; those of before, as long as a container has them.
async fn packages_of_before(
    runtime: &Arc<dyn ContainerRuntime>,
    store: &Store,
    listed: Vec<Volume>,
    found: &mut Prune,
) -> Result<()> {
    let ours = |it: &Volume| store.signed(runtime.kind(), &it.labels);
    let listed: Vec<_> = listed.into_iter().filter(ours).collect();
    if listed.is_empty() {
        return Ok(());
    }
    // Whoever adds some has a volume that is remembered nowhere yet.
    let at_rest = store.try_common_lock(packages::ROLE)?.is_some();
    let kept = store.shared_packages()?;
    let containers = runtime.list(&LabelFilter(vec![(store.signer().key("managed"), None)])).await?;
    for it in listed {
        let is_it = |part: Component<'_>| part.as_os_str() == it.name.as_str();
        let has_it = |container: &Container| container.mounts.iter().any(|it| it.source.components().any(is_it));
        let (reason, goes) = match () {
            () if kept.iter().any(|kept| kept.volume.as_str() == it.name) => ("snippets get these packages", false),
            () if !at_rest => ("packages are just being changed", false),
            () if containers.iter().any(has_it) => ("a container has these packages", false),
            () => ("snippets get other packages now", true),
        };
        let way = if goes { PruneAction::Volume(runtime.clone(), it.name.clone()) } else { PruneAction::Stays };
        found.add(PruneItem {
            id: Some(it.name.clone()),
            made: it.created.parse().ok(),
            reason: reason.to_owned(),
            way,
            name: it.name,
            ..PruneItem::of(PruneKind::Volumes)
        });
    }
    Ok(())
}

/// What containers saw as their link, and what was put aside when it was to be cleared.
fn temporary(store: &Store, found: &mut Prune) -> Result<()> {
    let above = store.root().join("link");
    let left: Vec<_> = names_in(&above);
    let (records, doomed) = (store.records()?, store.doomed()?);
    for name in left {
        let of_record = |it: &Record| it.record_id.as_str() == name;
        if records.iter().any(|it| of_record(it)) || doomed.iter().any(of_record) {
            continue;
        }
        let path = above.join(&name);
        let meta = path.symlink_metadata().ok();
        let made = meta.as_ref().and_then(|it| it.modified().ok()).and_then(timestamp);
        found.add(PruneItem {
            reason: "its container is gone".to_owned(),
            made,
            way: PruneAction::Directory(path),
            name: format!("link/{name}"),
            ..PruneItem::of(PruneKind::Temporary)
        });
    }
    Ok(())
}

/// No call takes more than an hour or two; its directory is not left behind but by a process that was killed.
const ABANDONED: Duration = Duration::from_secs(86400);

/// What is below such a directory is needed for one call: a clone that is looked at, a copy, Podman's socket, a snippet.
const TEMPORARY: &[&str] = &["coracle-git-", "coracle-copy-", "coracle-podman-", "coracle-run-"];

/// Temporary directories of calls.
fn clones(dir: &Path, found: &mut Prune) {
    for name in names_in(dir).into_iter().filter(|it| TEMPORARY.iter().any(|begin| it.starts_with(begin))) {
        let path = dir.join(&name);
        let Ok(meta) = path.symlink_metadata() else { continue };
        let old = meta.modified().ok().and_then(|it| it.elapsed().ok()).is_some_and(|it| it > ABANDONED);
        if !meta.is_dir() || meta.uid() != rustix::process::geteuid().as_raw() {
            continue;
        }
        let made = meta.modified().ok().and_then(timestamp);
        let way = if old { PruneAction::Directory(path) } else { PruneAction::Stays };
        let reason = if old { "the process that made it is gone" } else { "somebody may be using it" };
        found.add(PruneItem { name, made, way, reason: reason.to_owned(), ..PruneItem::of(PruneKind::Temporary) });
    }
}

fn names_in(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).into_iter().flatten();
    entries.filter_map(|it| it.ok()?.file_name().into_string().ok()).collect()
}

fn timestamp(time: SystemTime) -> Option<Timestamp> {
    Timestamp::try_from(time).ok()
}
