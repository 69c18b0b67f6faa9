//! Finds containers by name or id, and proves that they are Coracle's.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use coracle_client::Link;
use coracle_runtime::{Container, ContainerRuntime, LabelFilter};
use coracle_types::{ContainerName, ContainerPath, EngineKind, Handle, Ids, ProjectName, RecordId};

use crate::compose_stack::service;
use crate::record::{GuestRecord, Origin, Record, RecordedMount, Role};
use crate::store::LoadOutcome;
use crate::{Error, Links, ManagedContainer, ResourceKind, Result, SlotId, Store, StoreError, volume};

/// The engines of recorded containers.
#[async_trait]
pub trait Engines: Send + Sync {
    /// The engine of a record. Makes no engine call.
    async fn for_record(&self, kind: EngineKind, endpoint: &str) -> Result<Arc<dyn ContainerRuntime>>;

    /// The engine for new containers.
    async fn preferred(&self) -> Result<Arc<dyn ContainerRuntime>>;

    /// The same engine, with its calls logged for that slot's container.
    fn traced(&self, runtime: Arc<dyn ContainerRuntime>, _room: SlotId<'_>) -> Arc<dyn ContainerRuntime> {
        runtime
    }
}

/// Finds a managed container that can be reached without an engine call: over an open link or its socket.
pub async fn find_linked(store: &Store, links: &Links, handle: &Handle) -> Result<Option<(Record, Link)>> {
    let Some(record) = recorded(store, handle)? else { return Ok(None) };
    Ok(links.direct_link(store, &record).await.map(|link| (record, link)))
}

/// Finds a managed container by name or id.
///
/// # Errors
/// [`Error::NotManaged`] for a container that Coracle did not create; [`Error::Belongs`] for one of a session's tools
/// or of a sandbox; [`Error::NotFound`], also for one that the engine created after the process that requested it was
/// killed: the next call removes that.
pub async fn find(engines: &dyn Engines, store: &Store, handle: &Handle) -> Result<ManagedContainer> {
    if let Some(record) = recorded(store, handle)? {
        let runtime = engines.for_record(record.engine, &record.endpoint).await?;
        let container = proven(&*runtime, &record).await?;
        let record = signed_user_wins(store, &*runtime, record, container.as_ref());
        return Ok(ManagedContainer { runtime, record, container });
    }
    let runtime = engines.preferred().await?;
    match runtime.inspect(handle).await {
        Ok(container) => {
            let record = match service(store, &*runtime, &container)? {
                Some(service) => Some(service),
                None => rebuild(&*runtime, store, &container).await?,
            };
            let Some(record) = record else {
                if is_session_container(store, &*runtime, &container) {
                    return Err(Error::Belongs { kind: ResourceKind::Container, name: handle.to_string() });
                }
                let leftover = read_labels(&*runtime, store, &container, Role::Primary);
                return Err(match leftover {
                    Some(leftover) if is_abandoned(store, &leftover)? => not_found(store, handle),
                    _ => Error::NotManaged { kind: ResourceKind::Container, name: handle.to_string() },
                });
            };
            Ok(ManagedContainer { runtime, record, container: Some(container) })
        }
        Err(coracle_types::Error::NoSuchContainer(_)) => Err(not_found(store, handle)),
        Err(err) => Err(err.into()),
    }
}

/// Whether the container is provably the slot of a session.
pub(crate) fn is_session_container(store: &Store, runtime: &dyn ContainerRuntime, container: &Container) -> bool {
    let role = container.labels.get(&store.signer().key("role"));
    let slots = [Role::Workspace, Role::Run, Role::Sandbox].map(Role::as_str);
    role.is_some_and(|it| slots.contains(&it.as_str())) && store.signed(runtime.kind(), &container.labels)
}

pub(crate) fn not_found(store: &Store, handle: &Handle) -> Error {
    let wanted = handle.as_str().to_ascii_lowercase();
    let alike = |it: &String| strsim::jaro_winkler(&wanted, &it.to_ascii_lowercase());
    let names = store.records().unwrap_or_default().into_iter().map(|it| it.name.to_string());
    // The first measure is too low for a short name with two letters swapped.
    let is_near = |it: &String| alike(it) > 0.8 || strsim::osa_distance(&wanted, &it.to_ascii_lowercase()) <= 1;
    let mut near: Vec<String> = names.filter(is_near).collect();
    near.sort_by(|a, b| alike(b).total_cmp(&alike(a)));
    near.truncate(5);
    Error::NotFound { kind: ResourceKind::Container, name: handle.to_string(), near }
}

/// Finds a record by name or id. A session's slot is not found, since callers cannot name its container.
pub(crate) fn recorded(store: &Store, handle: &Handle) -> Result<Option<Record>> {
    let found = match handle {
        Handle::Name(name) => match store.load(name)? {
            LoadOutcome::Record(record) => Some(Arc::unwrap_or_clone(record)),
            LoadOutcome::Damaged | LoadOutcome::Missing => None,
        },
        Handle::IdPrefix(digits) => {
            let begins = |it: &Arc<Record>| it.id.as_ref().is_some_and(|id| id.as_str().starts_with(digits));
            let mut found: Vec<_> = store.records()?.into_iter().filter(begins).collect();
            found.pop().filter(|_| found.is_empty()).map(Arc::unwrap_or_clone)
        }
    };
    Ok(found.filter(|it| !it.role.is_session_container()))
}

/// Inspects the container with the full id of the record. Another container with the same name has another id.
pub(crate) async fn proven(runtime: &dyn ContainerRuntime, record: &Record) -> Result<Option<Container>> {
    let Some(id) = &record.id else { return Ok(None) };
    match runtime.inspect(&Handle::from(id)).await {
        Ok(container) if container.id == *id => Ok(Some(container)),
        Ok(_) | Err(coracle_types::Error::NoSuchContainer(_)) => Ok(None),
        Err(err) => Err(err.into()),
    }
}

/// Takes the exec user from the signed labels, which are trusted more than the record.
fn signed_user_wins(
    store: &Store,
    runtime: &dyn ContainerRuntime,
    mut record: Record,
    container: Option<&Container>,
) -> Record {
    let Some(container) = container.filter(|it| store.signed(runtime.kind(), &it.labels)) else { return record };
    if let Some(signed) = label(store, &container.labels, "exec_user").and_then(|it| Ids::parse(it).ok()) {
        record.exec_user = Some(signed);
    }
    record
}

fn label<'a>(store: &Store, labels: &'a BTreeMap<String, String>, name: &str) -> Option<&'a str> {
    labels.get(&store.signer().key(name)).map(String::as_str)
}

/// Rebuilds the lost record of a primary from signed labels. `None` if the labels prove nothing.
pub(crate) async fn rebuild(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    container: &Container,
) -> Result<Option<Record>> {
    let Some(record) = read_labels(runtime, store, container, Role::Primary) else { return Ok(None) };
    // Labels may be copied to another container: an id that two containers have proves nothing.
    let same = LabelFilter(vec![(store.signer().key("id"), Some(record.record_id.to_string()))]);
    if runtime.list(&same).await?.len() != 1 {
        return Ok(None);
    }
    if is_abandoned(store, &record)? {
        return Ok(None);
    }
    match remember(store, &record) {
        // It has a record of a newer version.
        Err(Error::Store(StoreError::Newer(_))) => Ok(None),
        remembered => remembered.map(|()| Some(record)),
    }
}

/// Whether its creation was cancelled, so that it is removed when it appears.
fn is_abandoned(store: &Store, record: &Record) -> Result<bool> {
    Ok(store.abandoned()?.iter().any(|it| it.record_id == record.record_id))
}

/// Saves a record that was read from labels, unless one exists or another call holds its lock.
pub(crate) fn remember(store: &Store, record: &Record) -> Result<()> {
    let Some(_lock) = store.try_lock(&record.name)? else { return Ok(()) };
    match store.load(&record.name)? {
        LoadOutcome::Record(_) => Ok(()),
        LoadOutcome::Damaged | LoadOutcome::Missing => Ok(store.save(record)?),
    }
}

/// Builds a record from the labels of a container of that role, if their signature is valid.
pub(crate) fn read_labels(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    container: &Container,
    role: Role,
) -> Option<Record> {
    let it = |name: &str| label(store, &container.labels, name);
    if !store.signed(runtime.kind(), &container.labels) || it("role") != Some(role.as_str()) {
        return None;
    }
    let name = ContainerName::parse(it("name")?).ok()?;
    // If it was renamed with the engine's own program, the record has the original name.
    let created = it("created")?.parse().ok()?;
    let user = Ids::parse(it("exec_user")?).ok()?;
    // The volume of a slot belongs to the slot and not to the container.
    let volume = if role == Role::Primary { volume::of_labels(it("volume"), it("volume_at")) } else { None };
    let of_host = |it: &RecordedMount| volume.as_ref().is_none_or(|volume| it.container != volume.at);
    Some(Record {
        record_id: RecordId::parse(it("id")?).ok()?,
        role,
        purpose: it("purpose").filter(|it| !it.is_empty()).map(str::to_owned),
        created,
        persistent: it("persistent") == Some("true"),
        mounts: container.mounts.iter().filter_map(recorded_mount).filter(of_host).collect(),
        volume,
        workdir: ContainerPath::parse(it("workdir")?).ok()?,
        exec_user: Some(user),
        guest: it("guest").and_then(|word| GuestRecord::of_labels(word, it("init_user"))),
        compose_project: it("compose_project").and_then(|it| ProjectName::parse(it).ok()),
        compose_joined: it("compose_joined") == Some("true"),
        tool_version: it("version").unwrap_or_default().to_owned(),
        ..Record::intent(Origin::for_runtime(runtime, store.signer().namespace()), name, it("session")?)
            .shown(container)
    })
}

/// The guest's directory, whose mounts are not the user's.
const GUEST_DIR: &str = "/.coracle";

fn recorded_mount(mount: &coracle_runtime::MountPoint) -> Option<RecordedMount> {
    use coracle_runtime::Access::{ReadOnly, ReadWrite};
    let container = ContainerPath::parse(&mount.target).ok().filter(|it| !it.is_beneath(GUEST_DIR))?;
    let mode = if mount.writable { ReadWrite } else { ReadOnly };
    Some(RecordedMount::new(mount.source.clone(), container, mode))
}
