//! Networks that containers share, made and removed by name (containers.md 12.1 to 12.3).

use std::collections::BTreeMap;
use std::net::IpAddr;

use coracle_runtime::{
    ContainerName, ContainerRuntime, Error as Engine, IpNet, LabelFilter, Network, NetworkCreate, NetworkName,
    ProjectName, random_hex,
};

use crate::default_network::LONE;
use crate::{Engines, Error, Kind, Result, Store, asked};

/// The value of the label `kind` on a network that somebody asked for by name.
const NAMED: &str = "network";

/// The same on the network of a slot alone, which is made and removed with the slot's container.
const OF_SLOT: &str = "room";

/// The label that names the slot. No `session`: a network that has one is a session's, to be shared.
const SESSION_LABEL: &str = "room";

/// A network to be made.
#[derive(Clone, Debug)]
pub struct NewNetwork {
    /// Its name.
    pub name: NetworkName,
    /// The session that makes it.
    pub session: String,
    /// No way out.
    pub internal: bool,
}

/// The network of a slot alone.
#[derive(Clone, Debug)]
pub struct SlotNetwork {
    /// Its name.
    pub name: NetworkName,
    /// The session of the slot.
    pub slot: ContainerName,
    /// No way out.
    pub internal: bool,
}

/// A network of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnNetwork {
    /// Its name.
    pub name: String,
    /// The engine's id.
    pub id: String,
    /// When it was made, as its label says.
    pub created: String,
    /// No way out.
    pub internal: bool,
    /// The session that made it; missing for those of a stack.
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
}

/// Makes a bridge network on which containers find each other by name. One of ours that exists is given as it is;
/// `true` says that it was made now.
///
/// # Errors
/// [`Error::NetworkTaken`] for a name that something else has, or one of ours with another way out.
pub async fn create_network(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    new: &NewNetwork,
) -> Result<(OwnNetwork, bool)> {
    let _lock = store.common_lock("networks").await?;
    let taken = |ours, differs| Error::NetworkTaken { name: new.name.clone(), ours, differs };
    if let Some(found) = named(runtime, &new.name).await? {
        return match own(store, runtime, &found) {
            Some((own, kind)) if kind == NAMED && own.internal == new.internal => Ok((own, false)),
            Some((_, kind)) if kind == NAMED => Err(taken(true, vec!["internal"])),
            Some(_) => Err(taken(true, Vec::new())),
            None => Err(taken(false, Vec::new())),
        };
    }
    let whose = [("kind", NAMED.to_owned()), ("session", new.session.clone())];
    Ok((make(runtime, store, (&new.name, new.internal), whose).await?, true))
}

/// The network of a slot, created if it is missing. It belongs to that slot alone.
///
/// # Errors
/// [`Error::NetworkTaken`] for a name that anything else has.
pub async fn ensure_slot_network(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    new: &SlotNetwork,
) -> Result<OwnNetwork> {
    let _lock = store.common_lock("networks").await?;
    if let Some(found) = named(runtime, &new.name).await? {
        let own = own(store, runtime, &found);
        let differs = match &own {
            Some((own, kind)) if is_of(own, kind, &new.slot) && own.internal == new.internal => vec![],
            Some((own, kind)) if is_of(own, kind, &new.slot) => vec!["internal"],
            Some((_, kind)) if kind == OF_SLOT => vec!["room"],
            _ => vec!["kind"],
        };
        return match own {
            Some((own, _)) if differs.is_empty() => Ok(own),
            own => Err(Error::NetworkTaken { name: new.name.clone(), ours: own.is_some(), differs }),
        };
    }
    let whose = [("kind", OF_SLOT.to_owned()), (SESSION_LABEL, new.slot.to_string())];
    make(runtime, store, (&new.name, new.internal), whose).await
}

/// That of a slot, of that name. `None` also where the name is anything else's.
///
/// # Errors
/// When the engine does not answer.
pub async fn find_slot_network(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    (name, slot): (&NetworkName, &ContainerName),
) -> Result<Option<OwnNetwork>> {
    let found = named(runtime, name).await?.and_then(|it| own(store, runtime, &it));
    Ok(found.filter(|(own, kind)| is_of(own, kind, slot)).map(|it| it.0))
}

fn is_of(own: &OwnNetwork, kind: &str, slot: &ContainerName) -> bool {
    kind == OF_SLOT && own.slot.as_deref() == Some(slot.as_str())
}

/// The lock of networks is held.
async fn make(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    (name, internal): (&NetworkName, bool),
    whose: [(&str, String); 2],
) -> Result<OwnNetwork> {
    let named = [("id", random_hex::<16>()), ("name", name.to_string())];
    let labels = store.labels(runtime.kind(), named.into_iter().chain(whose));
    let labels = labels.into_iter().collect();
    let made = match runtime.create_network(&NetworkCreate { name: name.clone(), labels, reach: true, internal }).await
    {
        // Somebody else was faster.
        Err(Engine::NetworkTaken(_)) => {
            return Err(Error::NetworkTaken { name: name.clone(), ours: false, differs: Vec::new() });
        }
        made => own(store, runtime, &made?),
    };
    let (own, _) = made.ok_or(Engine::Unreadable { verb: "network create", detail: "no network of ours".into() })?;
    store.unbury_network(name)?;
    Ok(own)
}

/// The network of ours of that name, or nothing when there is none.
///
/// # Errors
/// [`Error::NotManaged`] for somebody else's; [`Error::Belongs`] for one that nobody asked for by name.
pub async fn find_network(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    name: &NetworkName,
) -> Result<Option<OwnNetwork>> {
    let Some(found) = named(runtime, name).await? else { return Ok(None) };
    match own(store, runtime, &found) {
        Some((own, kind)) if kind == NAMED => Ok(Some(own)),
        Some(_) => Err(Error::Belongs { kind: Kind::Network, name: name.to_string() }),
        None => Err(Error::NotManaged { kind: Kind::Network, name: name.to_string() }),
    }
}

/// Removes a network that [`find_network`] or [`find_slot_network`] found, and remembers that it was ours.
///
/// # Errors
/// [`Error::InUse`] while containers are on it; nothing is done then.
pub async fn destroy_network(runtime: &dyn ContainerRuntime, store: &Store, network: &OwnNetwork) -> Result<()> {
    let _lock = store.common_lock("networks").await?;
    let mut members = members(runtime).await?;
    if let Some(containers) = members.remove(&network.name) {
        return Err(Error::InUse { kind: Kind::Network, name: network.name.clone(), containers });
    }
    runtime.remove_network(&network.id).await?;
    if let Ok(name) = NetworkName::parse(&network.name) {
        store.bury_network(&name, &network.id)?;
    }
    Ok(())
}

/// The networks of ours on the preferred engine and on every engine that a record names, but for the one that lone
/// containers share and those of slots. Oldest first.
///
/// # Errors
/// When one of these engines does not answer.
pub async fn networks(engines: &dyn Engines, store: &Store) -> Result<Vec<OwnNetwork>> {
    let mut all = Vec::new();
    for runtime in asked(engines, &store.records()?).await? {
        all.extend(networks_on(&*runtime, store).await?.into_iter().filter(|it| it.slot.is_none()));
    }
    all.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
    Ok(all)
}

/// The same on one engine, with those of slots.
pub(crate) async fn networks_on(runtime: &dyn ContainerRuntime, store: &Store) -> Result<Vec<OwnNetwork>> {
    let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
    let found = runtime.list_networks(&managed).await?;
    let own = found.iter().filter_map(|it| own(store, runtime, it)).filter(|it| it.1 != LONE);
    let mut own: Vec<_> = own.map(|it| it.0).collect();
    if own.is_empty() {
        return Ok(Vec::new());
    }
    let mut members = members(runtime).await?;
    for network in &mut own {
        network.containers = members.remove(&network.name).unwrap_or_default();
    }
    Ok(own)
}

/// Removes the networks of a session that no container is on any more; what cannot be removed stays. Their names.
///
/// # Errors
/// When an engine cannot be asked.
pub async fn drop_networks(
    engines: &dyn Engines,
    store: &Store,
    of: impl Fn(&OwnNetwork) -> bool,
) -> Result<Vec<String>> {
    let mut gone = Vec::new();
    for runtime in asked(engines, &store.records()?).await? {
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

/// A network whose labels are signed, and signed for its name: a set that was copied to another one is no proof. With
/// its kind.
fn own(store: &Store, runtime: &dyn ContainerRuntime, network: &Network) -> Option<(OwnNetwork, String)> {
    let label = |name: &str| network.labels.get(&store.signer().key(name)).map(String::as_str);
    if !store.signed(runtime.kind(), &network.labels) || label("name").is_some_and(|it| it != network.name) {
        return None;
    }
    let kind = label("kind")?;
    if matches!(kind, NAMED | OF_SLOT) && label("name").is_none() {
        return None;
    }
    let project = label("compose_project").and_then(|it| ProjectName::parse(it).ok());
    let own = OwnNetwork {
        name: network.name.clone(),
        id: network.id.clone(),
        created: label("created").unwrap_or_default().to_owned(),
        internal: network.internal,
        session: label("session").map(str::to_owned),
        project,
        containers: Vec::new(),
        gateways: network.gateways.clone(),
        subnets: network.subnets.clone(),
        slot: label(SESSION_LABEL).filter(|_| kind == OF_SLOT).map(str::to_owned),
    };
    Some((own, kind.to_owned()))
}

/// Who is on which network. Engines differ in what they tell of a network's members, and not in what they tell of a
/// container's networks.
async fn members(runtime: &dyn ContainerRuntime) -> Result<BTreeMap<String, Vec<String>>> {
    let mut members: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for container in runtime.list(&LabelFilter::default()).await? {
        for network in container.networks {
            members.entry(network).or_default().push(container.name.clone());
        }
    }
    Ok(members)
}

#[cfg(test)]
mod tests {
    use coracle_runtime::Networks as _;
    use std::sync::Arc;

    use async_trait::async_trait;
    use coracle_runtime::{EngineKind, FakeRuntime, LabelNamespace};

    use super::*;

    /// One engine for all.
    struct SingleEngine(FakeRuntime);

    #[async_trait]
    impl Engines for SingleEngine {
        async fn of(&self, _: EngineKind, _: &str) -> Result<Arc<dyn ContainerRuntime>> {
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
        NewNetwork { name: NetworkName::parse("team").unwrap(), session: "a".into(), internal }
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
    async fn the_network_of_a_room_is_that_rooms_and_nobody_elses() {
        let dir = tempfile::tempdir().unwrap();
        let (store, fake) = (store(dir.path()), FakeRuntime::new());
        let name = |it: &str| ContainerName::parse(it).unwrap();
        let of = |slot: &str| SlotNetwork { name: team(true).name, slot: name(slot), internal: true };
        let (one, team) = (of("sbx-1"), team(true));
        // A network that a caller created by that name is not given to a slot.
        let (asked, _) = create_network(&fake, &store, &team).await.unwrap();
        let err = ensure_slot_network(&fake, &store, &one).await.unwrap_err();
        assert!(matches!(&err, Error::NetworkTaken { ours: true, differs, .. } if differs == &["kind"]), "{err:?}");
        assert_eq!(find_slot_network(&fake, &store, (&one.name, &one.slot)).await.unwrap(), None);
        destroy_network(&fake, &store, &asked).await.unwrap();

        let made = ensure_slot_network(&fake, &store, &one).await.unwrap();
        assert_eq!(ensure_slot_network(&fake, &store, &one).await.unwrap(), made);
        assert_eq!(find_slot_network(&fake, &store, (&one.name, &one.slot)).await.unwrap(), Some(made.clone()));
        for taken in [
            ensure_slot_network(&fake, &store, &of("sbx-2")).await.map(drop),
            ensure_slot_network(&fake, &store, &SlotNetwork { internal: false, ..one.clone() }).await.map(drop),
            create_network(&fake, &store, &team).await.map(drop),
        ] {
            assert!(matches!(taken, Err(Error::NetworkTaken { ours: true, .. })), "{taken:?}");
        }
        assert_eq!(find_slot_network(&fake, &store, (&one.name, &name("sbx-2"))).await.unwrap(), None);
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
}
