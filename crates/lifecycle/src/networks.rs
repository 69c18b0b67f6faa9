//! Networks that containers share, made and removed by name (containers.md 12.1 to 12.3).

use std::collections::BTreeMap;

use coracle_runtime::{
    ContainerRuntime, Error as Engine, LabelFilter, Network, NetworkAct, NetworkName, ProjectName, random_hex,
};

use crate::network::now;
use crate::{Engines, Error, Kind, Result, Store, asked};

/// The value of the label `kind` on a network that somebody asked for by name.
const NAMED: &str = "network";

/// The same on the network that lone containers share, which nobody asked for.
pub(crate) const LONE: &str = "lone";

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
    let mut labels = BTreeMap::from([
        ("managed", "true".to_owned()),
        ("id", random_hex::<16>()),
        ("kind", NAMED.to_owned()),
        ("name", new.name.to_string()),
        ("session", new.session.clone()),
        ("created", now().to_string()),
    ])
    .into_iter()
    .map(|(name, value)| (store.signer().key(name), value))
    .collect();
    store.signer().sign(runtime.kind(), &mut labels);
    let labels = labels.into_iter().collect();
    let act = NetworkAct::Create { name: new.name.clone(), labels, reach: true, internal: new.internal };
    let made = match runtime.network(act).await {
        // Somebody else was faster.
        Err(Engine::NetworkTaken(_)) => return Err(taken(false, Vec::new())),
        made => made?.pop(),
    };
    let made = made.and_then(|it| own(store, runtime, &it));
    let (own, _) = made.ok_or(Engine::Unreadable { verb: "network create", detail: "no network of ours".into() })?;
    store.unbury_network(&new.name)?;
    Ok((own, true))
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

/// Removes a network that [`find_network`] found, and remembers that it was ours.
///
/// # Errors
/// [`Error::InUse`] while containers are on it; nothing is done then.
pub async fn destroy_network(runtime: &dyn ContainerRuntime, store: &Store, network: &OwnNetwork) -> Result<()> {
    let _lock = store.common_lock("networks").await?;
    let mut members = members(runtime).await?;
    if let Some(containers) = members.remove(&network.name) {
        return Err(Error::InUse { kind: Kind::Network, name: network.name.clone(), containers });
    }
    runtime.network(NetworkAct::Remove(network.id.clone())).await?;
    if let Ok(name) = NetworkName::parse(&network.name) {
        store.bury_network(&name, &network.id)?;
    }
    Ok(())
}

/// The networks of ours on the preferred engine and on every engine that a record names, but for the one that lone
/// containers share. Oldest first.
///
/// # Errors
/// When one of these engines does not answer.
pub async fn networks(engines: &dyn Engines, store: &Store) -> Result<Vec<OwnNetwork>> {
    let mut all = Vec::new();
    for runtime in asked(engines, &store.records()?).await? {
        all.extend(networks_on(&*runtime, store).await?);
    }
    all.sort_by(|a, b| (&a.created, &a.name).cmp(&(&b.created, &b.name)));
    Ok(all)
}

/// The same on one engine.
pub(crate) async fn networks_on(runtime: &dyn ContainerRuntime, store: &Store) -> Result<Vec<OwnNetwork>> {
    let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
    let found = runtime.network(NetworkAct::List(managed)).await?;
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
        let unused = |it: &OwnNetwork| it.containers.is_empty() && it.project.is_none() && of(it);
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
    let found = runtime.network(NetworkAct::Find(name.clone())).await?;
    Ok(found.into_iter().find(|it| it.name == name.as_str()))
}

/// A network whose labels are signed, and signed for its name: a set that was copied to another one is no proof. With
/// its kind.
fn own(store: &Store, runtime: &dyn ContainerRuntime, network: &Network) -> Option<(OwnNetwork, String)> {
    let label = |name: &str| network.labels.get(&store.signer().key(name)).map(String::as_str);
    if !store.signed(runtime.kind(), &network.labels) || label("name").is_some_and(|it| it != network.name) {
        return None;
    }
    let kind = label("kind")?;
    if kind == NAMED && label("name").is_none() {
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
    use coracle_runtime::{FakeRuntime, LabelNamespace};

    use super::*;

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
    async fn signed_labels_on_a_network_of_another_name_prove_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let (store, fake) = (store(dir.path()), FakeRuntime::new());
        create_network(&fake, &store, &team(false)).await.unwrap();
        let of_team = fake.network(NetworkAct::Find(team(false).name)).await.unwrap().remove(0);
        let copy = NetworkName::parse("copy").unwrap();
        let labels = of_team.labels.into_iter().collect();
        fake.network(NetworkAct::Create { name: copy.clone(), labels, reach: true, internal: false }).await.unwrap();
        assert!(matches!(find_network(&fake, &store, &copy).await, Err(Error::NotManaged { .. })));
        assert_eq!(networks_on(&fake, &store).await.unwrap().len(), 1);
    }
}
