//! The network that a container is put on.

use std::collections::BTreeMap;

use coracle_runtime::{
    ContainerRuntime, EngineKind, Error as Engine, NetworkAct, NetworkAsk, NetworkName, NetworkOn, random_hex,
};

use crate::record::Record;
use crate::{Error, Kind, Result, Store};

/// Where `bridge` leads, decided before anything is made.
pub(crate) enum Lone {
    /// One network for all of our containers, on which they do not reach each other.
    Shared(NetworkName),
    /// One network for this container: the engine parts networks, not their members.
    Own(NetworkName),
    /// The engine keeps each container alone by itself.
    Engine,
}

pub(crate) fn lone(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Lone {
    let name = |text: String| NetworkName::parse(text).expect("a namespace and hex digits are a name");
    match (runtime.kind(), runtime.endpoint().rootless) {
        (EngineKind::Podman, true) => Lone::Engine,
        (EngineKind::Podman, false) => {
            Lone::Own(name(format!("{}-net-{}", record.namespace, &record.record_id.as_str()[..12])))
        }
        (EngineKind::Docker | EngineKind::Fake, _) => {
            // Each state directory has its own: it would not know another's signature.
            Lone::Shared(name(format!("{}-lone-{}", record.namespace, store.signer().fingerprint())))
        }
    }
}

/// Makes what is missing. What only this container uses is in the record before it is made.
pub(crate) async fn place(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    record: &Record,
    ask: &NetworkAsk,
) -> Result<NetworkOn> {
    match ask {
        NetworkAsk::None => Ok(NetworkOn::None),
        NetworkAsk::Host => Ok(NetworkOn::Host),
        NetworkAsk::Named(name) => ours(runtime, store, name).await.map(NetworkOn::Id),
        NetworkAsk::Bridge => match lone(runtime, store, record) {
            Lone::Engine => Ok(NetworkOn::EngineDefault),
            Lone::Own(name) => make(runtime, store, &name, (record.record_id.as_str(), true)).await.map(NetworkOn::Id),
            Lone::Shared(name) => shared(runtime, store, &name).await.map(NetworkOn::Id),
        },
    }
}

/// Looked for first without a lock: it is there but for the first time.
async fn shared(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    if let Ok(id) = ours(runtime, store, name).await {
        return Ok(id);
    }
    let _lock = store.common_lock("network").await?;
    match ours(runtime, store, name).await {
        Err(Error::NotFound { .. }) => make(runtime, store, name, (&random_hex::<16>(), false)).await,
        other => other,
    }
}

async fn ours(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    let found = runtime.network(NetworkAct::Find(name.clone())).await?.into_iter().find(|it| it.name == name.as_str());
    let named = |near| (Kind::Network, name.to_string(), near);
    match found {
        Some(network) if store.signed(runtime.kind(), &network.labels) => Ok(network.id),
        Some(_) => Err(Error::NotManaged { kind: Kind::Network, name: name.to_string() }),
        None => {
            let (kind, name, near) = named(Vec::new());
            Err(Error::NotFound { kind, name, near })
        }
    }
}

/// `reach`: its members may reach each other. A network of one has no use for keeping them apart.
async fn make(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    name: &NetworkName,
    (id, reach): (&str, bool),
) -> Result<String> {
    let signer = store.signer();
    let mut labels = BTreeMap::from([
        (signer.key("managed"), "true".to_owned()),
        (signer.key("id"), id.to_owned()),
        (signer.key("kind"), "lone".to_owned()),
        (signer.key("created"), now().to_string()),
    ]);
    signer.sign(runtime.kind(), &mut labels);
    let act = NetworkAct::Create { name: name.clone(), labels: labels.into_iter().collect(), reach, internal: false };
    let made = runtime.network(act).await?.pop();
    made.map(|it| it.id)
        .ok_or_else(|| Engine::Unreadable { verb: "network create", detail: "no network".into() }.into())
}

/// Removes the network that all containers share when the last of them goes. Whoever is making one holds it.
pub(crate) async fn drop_shared(runtime: &dyn ContainerRuntime, store: &Store, last: &Record) -> Result<()> {
    let Lone::Shared(name) = lone(runtime, store, last) else { return Ok(()) };
    let Some(_mine) = store.try_own_network()? else { return Ok(()) };
    if store.records()?.iter().any(|it| it.record_id != last.record_id && it.engine == last.engine) {
        return Ok(());
    }
    match ours(runtime, store, &name).await {
        Ok(id) => runtime.network(NetworkAct::Remove(id)).await.map(|_| ()).map_err(Error::from),
        Err(Error::NotFound { .. } | Error::NotManaged { .. }) => Ok(()),
        Err(err) => Err(err),
    }
}

/// The time, as answers and labels tell it.
pub(crate) fn now() -> jiff::Timestamp {
    let now = jiff::Timestamp::now();
    now.round(jiff::Unit::Millisecond).unwrap_or(now)
}
