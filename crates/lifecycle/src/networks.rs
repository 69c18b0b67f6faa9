//! Coracle's networks, created and removed by name: those that a caller requests, that of one slot, and the one that
//! all other containers share.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coracle_runtime::{ContainerRuntime, LabelFilter, Network, NetworkAttachment, NetworkCreate, NetworkRequest};
use coracle_types::{ContainerName, EngineKind, Error as Engine, NetworkName, ProjectName, random_hex};
use ipnet::IpNet;

use crate::record::{Record, RecordState};
use crate::{Engines, Error, ResourceKind, Result, Store, recorded_engines};

/// The label `kind` of a network that a caller requested by name.
const NAMED: &str = "network";

/// The label `kind` of a network of one slot alone, and the label that names the slot's session. It has no label
/// `session`: that is for networks that a session shares.
const OF_SLOT: &str = "room";

/// The label `kind` of the network that all other containers share.
const SHARED: &str = "lone";

/// Who may use a network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkOwner {
    /// Containers that name it, at the request of this session.
    Session(String),
    /// The slot of this session alone.
    Slot(ContainerName),
}

/// A network to be created.
#[derive(Clone, Debug)]
pub struct NewNetwork {
    /// Its name.
    pub name: NetworkName,
    /// Who may use it.
    pub owner: NetworkOwner,
    /// No way out.
    pub internal: bool,
}

/// A managed network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNetwork {
    /// Its name.
    pub name: String,
    /// The engine's id.
    pub id: String,
    /// When it was created, as its label says.
    pub created: String,
    /// No way out.
    pub internal: bool,
    /// The session that created it; missing for that of a slot.
    pub session: Option<String>,
    /// The stack that it belongs to.
    pub project: Option<ProjectName>,
    /// Names of the containers on it, running or not.
    pub containers: Vec<String>,
    /// Addresses by which they see the host.
    pub gateways: Vec<IpAddr>,
    /// Where theirs are from.
    pub subnets: Vec<IpNet>,
    /// The session of the slot that it is for, if it is one slot's alone.
    pub slot: Option<String>,
    kind: String,
}

impl NewNetwork {
    fn kind(&self) -> &'static str {
        if matches!(self.owner, NetworkOwner::Session(_)) { NAMED } else { OF_SLOT }
    }

    /// Why the existing network with that name does not fit, and how it differs if it is of the same kind.
    fn difference(&self, own: &OwnNetwork) -> Option<Vec<&'static str>> {
        let other_slot = matches!(&self.owner, NetworkOwner::Slot(slot) if own.slot.as_deref() != Some(slot.as_str()));
        match own.kind == self.kind() {
            false => Some(Vec::new()),
            true if other_slot => Some(vec!["room"]),
            true if own.internal != self.internal => Some(vec!["internal"]),
            true => None,
        }
    }

    fn taken(&self, ours: bool, differs: Vec<&'static str>) -> Error {
        Error::NetworkTaken { name: self.name.clone(), ours, differs }
    }
}

/// Creates a bridge network on which containers find each other by name. Returns an existing one of Coracle's
/// unchanged. The flag is whether it was created.
///
/// # Errors
/// [`Error::NetworkTaken`] if the name belongs to a foreign network, or to one of Coracle's with another owner or other
/// access to the outside.
pub async fn create_network(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    new: &NewNetwork,
) -> Result<(OwnNetwork, bool)> {
    let _lock = store.common_lock("networks").await?;
    if let Some(found) = named(runtime, &new.name).await? {
        let own = own(store, runtime, &found).ok_or_else(|| new.taken(false, Vec::new()))?;
        return new.difference(&own).map_or(Ok((own, false)), |differs| Err(new.taken(true, differs)));
    }
    let owner = match &new.owner {
        NetworkOwner::Session(session) => ("session", session.clone()),
        NetworkOwner::Slot(session) => (OF_SLOT, session.to_string()),
    };
    let labels = vec![("name", new.name.to_string()), ("kind", new.kind().to_owned()), owner];
    let found = match create(runtime, store, &new.name, Reach { labels, reach: true, internal: new.internal }).await {
        // Another process was faster.
        Err(Engine::NetworkTaken(_)) => return Err(new.taken(false, Vec::new())),
        created => created?,
    };
    let own = own(store, runtime, &found);
    store.remove_network_tombstone(&new.name)?;
    let unreadable = || Engine::Unreadable { verb: "network create", detail: "no network of ours".into() };
    Ok((own.ok_or_else(unreadable)?, true))
}

/// What a new network leads to, and what its labels say of it.
struct Reach {
    labels: Vec<(&'static str, String)>,
    /// Its members reach each other.
    reach: bool,
    internal: bool,
}

async fn create(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    name: &NetworkName,
    new: Reach,
) -> coracle_types::Result<Network> {
    let Reach { labels, reach, internal } = new;
    let labels = store.labels(runtime.kind(), [("id", random_hex::<16>())].into_iter().chain(labels));
    let labels = labels.into_iter().collect();
    runtime.create_network(&NetworkCreate { name: name.clone(), labels, reach, internal }).await
}

/// Finds the network that a caller requested by that name.
///
/// # Errors
/// [`Error::NotManaged`] for a foreign network; [`Error::Belongs`] for one that belongs to another of Coracle's
/// objects.
pub async fn find_network(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    name: &NetworkName,
) -> Result<Option<OwnNetwork>> {
    let Some(found) = named(runtime, name).await? else { return Ok(None) };
    match own(store, runtime, &found) {
        Some(own) if own.kind == NAMED => Ok(Some(own)),
        Some(_) => Err(Error::Belongs { kind: ResourceKind::Network, name: name.to_string() }),
        None => Err(Error::NotManaged { kind: ResourceKind::Network, name: name.to_string() }),
    }
}

/// Removes a managed network, and records that it was Coracle's.
///
/// # Errors
/// [`Error::InUse`] while containers are on it; then nothing changes.
pub async fn destroy_network(runtime: &dyn ContainerRuntime, store: &Store, network: &OwnNetwork) -> Result<()> {
    let _lock = store.common_lock("networks").await?;
    let mut members = members(runtime).await?;
    if let Some(containers) = members.remove(&network.name) {
        return Err(Error::InUse { kind: ResourceKind::Network, name: network.name.clone(), containers });
    }
    runtime.remove_network(&network.id).await?;
    if let Ok(name) = NetworkName::parse(&network.name) {
        store.write_network_tombstone(&name, &network.id)?;
    }
    Ok(())
}

/// The managed networks on the preferred engine and on every recorded engine, oldest first. Without the shared one and
/// those of slots.
///
/// # Errors
/// If one of these engines does not respond.
pub async fn networks(engines: &dyn Engines, store: &Store) -> Result<Vec<OwnNetwork>> {
    let mut all = Vec::new();
    for runtime in recorded_engines(engines, &store.records()?).await? {
        all.extend(networks_on(&*runtime, store).await?.into_iter().filter(|it| it.slot.is_none()));
    }
    all.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
    Ok(all)
}

/// The same on one engine, with those of slots.
pub(crate) async fn networks_on(runtime: &dyn ContainerRuntime, store: &Store) -> Result<Vec<OwnNetwork>> {
    let mut own = labelled(runtime, store, ("managed", "true")).await?;
    own.retain(|it| it.kind != SHARED);
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let mut members = members(runtime).await?;
    for network in &mut own {
        network.containers = members.remove(&network.name).unwrap_or_default();
    }
    Ok(own)
}

/// The networks of one slot alone.
///
/// # Errors
/// When the engine does not answer.
pub async fn slot_networks(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    slot: &ContainerName,
) -> Result<Vec<OwnNetwork>> {
    let mut own = labelled(runtime, store, (OF_SLOT, slot.as_str())).await?;
    own.retain(|it| it.slot.as_deref() == Some(slot.as_str()));
    Ok(own)
}

/// The managed networks with that label.
async fn labelled(runtime: &dyn ContainerRuntime, store: &Store, label: (&str, &str)) -> Result<Vec<OwnNetwork>> {
    let filter = LabelFilter(vec![(store.signer().key(label.0), Some(label.1.to_owned()))]);
    let found = runtime.list_networks(&filter).await?;
    Ok(found.iter().filter_map(|it| own(store, runtime, it)).collect())
}

/// Removes the networks of a session that no container is on any more; what cannot be removed stays. Their names.
///
/// # Errors
/// When an engine does not answer.
pub async fn drop_networks(
    engines: &dyn Engines,
    store: &Store,
    of: impl Fn(&OwnNetwork) -> bool,
) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    for runtime in recorded_engines(engines, &store.records()?).await? {
        let unused = |it: &OwnNetwork| it.containers.is_empty() && it.project.is_none() && it.slot.is_none() && of(it);
        for network in networks_on(&*runtime, store).await?.into_iter().filter(unused) {
            match destroy_network(&*runtime, store, &network).await {
                Ok(()) => gone.push(network.name),
                Err(err) => tracing::warn!(network = network.name, %err, "the network stays"),
            }
        }
    }
    Ok(gone)
}

async fn named(runtime: &dyn ContainerRuntime, name: &NetworkName) -> Result<Option<Network>> {
    // Engines take the first digits of an id for a name as well.
    let found = runtime.find_network(name).await?;
    Ok(found.filter(|it| it.name == name.as_str()))
}

/// A network whose labels are signed, and signed for its name: a set that was copied to another one is no proof.
fn own(store: &Store, runtime: &dyn ContainerRuntime, network: &Network) -> Option<OwnNetwork> {
    let label = |name: &str| network.labels.get(&store.signer().key(name)).map(String::as_str);
    if !store.signed(runtime.kind(), &network.labels) || label("name").is_some_and(|it| it != network.name) {
        return None;
    }
    let kind = label("kind").filter(|it| !matches!(*it, NAMED | OF_SLOT) || label("name").is_some())?;
    Some(OwnNetwork {
        name: network.name.clone(),
        id: network.id.clone(),
        created: label("created").unwrap_or_default().to_owned(),
        internal: network.internal,
        session: label("session").map(str::to_owned),
        project: label("compose_project").and_then(|it| ProjectName::parse(it).ok()),
        containers: Vec::new(),
        gateways: network.gateways.clone(),
        subnets: network.subnets.clone(),
        slot: label(OF_SLOT).filter(|_| kind == OF_SLOT).map(str::to_owned),
        kind: kind.to_owned(),
    })
}

/// The containers on each network. Engines differ in what they report of a network's members, and not in what they report
/// of a container's networks.
async fn members(runtime: &dyn ContainerRuntime) -> Result<BTreeMap<String, Vec<String>>> {
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for container in runtime.list(&LabelFilter::default()).await? {
        for network in container.networks {
            members.entry(network).or_default().push(container.name.clone());
        }
    }
    Ok(members)
}

/// The network that a container joins; creates what is missing.
pub(crate) async fn place(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    request: &NetworkRequest,
) -> Result<NetworkAttachment> {
    match request {
        NetworkRequest::None => Ok(NetworkAttachment::None),
        NetworkRequest::Host => Ok(NetworkAttachment::Host),
        NetworkRequest::Named(name) => proven(runtime, store, name).await.map(NetworkAttachment::Id),
        NetworkRequest::Bridge => match shared_name(runtime, store) {
            Some(name) => ensure_shared(runtime, store, &name).await.map(NetworkAttachment::Id),
            None => Ok(NetworkAttachment::Alone),
        },
    }
}

/// The network that all of our containers share on an engine that keeps its members apart. Podman separates networks and
/// not their members, and its firewall forgets even that whenever a container leaves (netavark 1.4): there each container
/// has a network stack of its own.
fn shared_name(runtime: &dyn ContainerRuntime, store: &Store) -> Option<NetworkName> {
    if !shares_network(runtime.kind()) {
        return None;
    }
    // Each state directory has its own: it would not know another's signature.
    let name = format!("{}-lone-{}", store.signer().namespace(), store.signer().fingerprint());
    Some(NetworkName::parse(name).expect("a namespace and hex digits are a name"))
}

/// Apple's engine does not separate members either, and reports that it has no such stack. The embedded engine gives
/// each container a separate stack, and a Pod has its own address.
pub(crate) fn shares_network(engine: EngineKind) -> bool {
    matches!(engine, EngineKind::Docker | EngineKind::Fake)
}

/// Looked for first without a lock: it is there but for the first time.
async fn ensure_shared(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    if let Ok(id) = proven(runtime, store, name).await {
        return Ok(id);
    }
    let _lock = match store.common_lock("network").await {
        // Many came at once, and each looks while it holds the lock: the first of them has created it long ago.
        Err(Error::Busy { .. }) => return proven(runtime, store, name).await,
        lock => lock?,
    };
    let new = Reach { labels: vec![("kind", SHARED.to_owned())], reach: false, internal: false };
    match create(runtime, store, name, new).await {
        // Another process was faster, between the look and the lock.
        Err(Engine::NetworkTaken(_)) => proven(runtime, store, name).await,
        created => Ok(created?.id),
    }
}

/// The id of the network with that name, which must be managed.
async fn proven(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    let (kind, text) = (ResourceKind::Network, name.to_string());
    match named(runtime, name).await? {
        Some(network) if store.signed(runtime.kind(), &network.labels) => Ok(network.id),
        Some(_) => Err(Error::NotManaged { kind, name: text }),
        None => Err(Error::NotFound { kind, name: text, near: Vec::new() }),
    }
}

/// Ends what [`Store::keep_network`] began: the network is removed unless a container uses it.
///
/// # Errors
/// Those of the removal.
pub async fn release_network(engines: &dyn Engines, store: &Store) -> Result<()> {
    let Some((engine, endpoint)) = store.network.release() else { return Ok(()) };
    let runtime = engines.for_record(engine, &endpoint).await?;
    drop_shared(&*runtime, store, None).await
}

/// Removes the network that all containers share when the last of them goes. A process that creates one holds it.
///
/// Of several that go at once each finds the others' records, so those that are going do not count: one that is too early
/// is refused by the engine, and the last one is not. They take turns, or one would keep another from its try.
pub(crate) async fn drop_shared(runtime: &dyn ContainerRuntime, store: &Store, last: Option<&Record>) -> Result<()> {
    let Some(name) = shared_name(runtime, store) else { return Ok(()) };
    let _turn = store.common_lock("network").await?;
    let Some(_mine) = store.try_own_network()? else { return Ok(()) };
    let stays = |record: &Record| {
        let is_last = last.is_some_and(|last| last.record_id == record.record_id);
        record.engine == runtime.kind() && record.state != RecordState::Destroying && !is_last
    };
    if store.records()?.iter().any(|record| stays(record)) {
        return Ok(());
    }
    match proven(runtime, store, &name).await {
        Ok(id) => Ok(runtime.remove_network(&id).await?),
        Err(Error::NotFound { .. } | Error::NotManaged { .. }) => Ok(()),
        Err(err) => Err(err),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use coracle_runtime::Networks as _;
    use std::sync::Arc;

    use async_trait::async_trait;
    use coracle_runtime::FakeRuntime;
    use coracle_types::{EngineKind, LabelNamespace};

    use super::*;
    use crate::record::tests::record;

    /// One engine for all.
    pub(crate) struct SingleEngine(pub(crate) FakeRuntime);

    #[async_trait]
    impl Engines for SingleEngine {
        async fn for_record(&self, _: EngineKind, _: &str) -> Result<Arc<dyn ContainerRuntime>> {
            Ok(Arc::new(self.0.clone()))
        }

        async fn preferred(&self) -> Result<Arc<dyn ContainerRuntime>> {
            Ok(Arc::new(self.0.clone()))
        }
    }

    fn store(dir: &std::path::Path) -> Store {
        Store::open(dir, LabelNamespace::parse("coracle").unwrap()).unwrap()
    }

    fn team(internal: bool) -> NewNetwork {
        let owner = NetworkOwner::Session("a".into());
        NewNetwork { name: NetworkName::parse("team").unwrap(), owner, internal }
    }

    #[tokio::test]
    async fn a_network_is_made_once_and_removed_once() {
        let dir = tempfile::tempdir().unwrap();
        let (store, fake) = (store(dir.path()), FakeRuntime::new());
        let (made, now) = create_network(&fake, &store, &team(false)).await.unwrap();
        assert!(now && made.session.as_deref() == Some("a"));
        assert_eq!(create_network(&fake, &store, &team(false)).await.unwrap(), (made.clone(), false));
        let err = create_network(&fake, &store, &team(true)).await.unwrap_err();
        assert!(matches!(err, Error::NetworkTaken { ours: true, .. }), "an open network is no internal one");
        destroy_network(&fake, &store, &made).await.unwrap();
        assert_eq!(find_network(&fake, &store, &team(false).name).await.unwrap(), None);
        assert!(store.network_destroyed(&team(false).name).unwrap());
    }

    #[tokio::test]
    async fn the_network_of_a_session_container_is_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let (store, fake) = (store(dir.path()), FakeRuntime::new());
        let name = |it: &str| ContainerName::parse(it).unwrap();
        let of = |slot: &str| NewNetwork { owner: NetworkOwner::Slot(name(slot)), ..team(true) };
        let (one, team) = (of("sbx-1"), team(true));
        // A network that a caller created by that name is not given to a slot.
        let (requested, _) = create_network(&fake, &store, &team).await.unwrap();
        let err = create_network(&fake, &store, &one).await.unwrap_err();
        assert!(matches!(&err, Error::NetworkTaken { ours: true, differs, .. } if differs.is_empty()), "{err:?}");
        assert_eq!(slot_networks(&fake, &store, &name("sbx-1")).await.unwrap(), []);
        destroy_network(&fake, &store, &requested).await.unwrap();

        let (made, _) = create_network(&fake, &store, &one).await.unwrap();
        assert_eq!(create_network(&fake, &store, &one).await.unwrap(), (made.clone(), false));
        assert_eq!(slot_networks(&fake, &store, &name("sbx-1")).await.unwrap(), std::slice::from_ref(&made));
        for taken in [
            create_network(&fake, &store, &of("sbx-2")).await.map(drop),
            create_network(&fake, &store, &NewNetwork { internal: false, ..one.clone() }).await.map(drop),
            create_network(&fake, &store, &team).await.map(drop),
        ] {
            assert!(matches!(taken, Err(Error::NetworkTaken { ours: true, .. })), "{taken:?}");
        }
        assert_eq!(slot_networks(&fake, &store, &name("sbx-2")).await.unwrap(), []);
        assert!(matches!(find_network(&fake, &store, &one.name).await, Err(Error::Belongs { .. })));
        // A session that may use every other session's may still not use this.
        assert_eq!((made.session.as_deref(), made.slot.as_deref()), (None, Some("sbx-1")));
        let engines = SingleEngine(fake.clone());
        assert_eq!(networks(&engines, &store).await.unwrap(), []);
        assert_eq!(drop_networks(&engines, &store, |_| true).await.unwrap(), [""; 0]);
        assert_eq!(networks_on(&fake, &store).await.unwrap(), [made], "it can be pruned");
    }

    #[tokio::test]
    async fn signed_labels_on_a_network_of_another_name_prove_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (store, fake) = (store(dir.path()), FakeRuntime::new());
        create_network(&fake, &store, &team(false)).await.unwrap();
        let of_team = fake.find_network(&team(false).name).await.unwrap().unwrap();
        let copy = NetworkName::parse("copy").unwrap();
        let labels = of_team.labels.into_iter().collect();
        fake.create_network(&NetworkCreate { name: copy.clone(), labels, reach: true, internal: false }).await.unwrap();
        assert!(matches!(find_network(&fake, &store, &copy).await, Err(Error::NotManaged { .. })));
        assert_eq!(networks_on(&fake, &store).await.unwrap().len(), 1);
    }

    #[tokio::test]
    async fn the_last_of_those_that_go_at_once_takes_the_network_along() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        place(&fake, &store, &NetworkRequest::Bridge).await.unwrap();
        let there = async || {
            let name = shared_name(&fake, &store).unwrap();
            fake.find_network(&name).await.unwrap().is_some()
        };
        let [one, other] = ["one", "other"].map(|it| Record { state: RecordState::Destroying, ..record(it) });
        let staying = Record { state: RecordState::Ready, ..record("staying") };
        for it in [&one, &other, &staying] {
            store.save(it).unwrap();
        }
        drop_shared(&fake, &store, Some(&one)).await.unwrap();
        assert!(there().await, "one stays on it");
        store.forget(&staying.name).unwrap();
        let making = store.hold_network().await.unwrap();
        drop_shared(&fake, &store, Some(&one)).await.unwrap();
        assert!(there().await, "a container is being created");
        store.keep_network();
        assert!(store.network.keep(making, &fake).is_none());
        drop_shared(&fake, &store, Some(&one)).await.unwrap();
        assert!(there().await, "this process keeps it");
        store.save(&staying).unwrap();
        let engines = SingleEngine(fake.clone());
        release_network(&engines, &store).await.unwrap();
        assert!(there().await, "one stays on it");
        store.forget(&staying.name).unwrap();
        let other_lock = store.hold_network().await.unwrap();
        assert!(store.network.keep(other_lock, &fake).is_none());
        release_network(&engines, &store).await.unwrap();
        assert!(!there().await);
        place(&fake, &store, &NetworkRequest::Bridge).await.unwrap();
        drop_shared(&fake, &store, Some(&one)).await.unwrap();
        assert!(!there().await, "the other goes, too");
    }
}
