//! The network that a container is put on.

use std::sync::Arc;

use coracle_runtime::{
    ContainerRuntime, EngineKind, Error as Engine, NetworkAttachment, NetworkCreate, NetworkName, NetworkRequest,
    random_hex,
};

use crate::record::{Record, State};
use crate::{Error, Kind, Result, Store};

/// The value of the label `kind` on the network that lone containers share, which nobody asked for.
pub(crate) const LONE: &str = "lone";

/// The network that all of our containers share on an engine that keeps its members apart. Podman parts networks and
/// not their members, and its firewall forgets even that whenever some container leaves (netavark 1.4): there each
/// container has a network stack of its own, which nobody else is on.
pub(crate) fn lone(runtime: &dyn ContainerRuntime, store: &Store) -> Option<NetworkName> {
    // Apple's engine parts no members either, and has no such stack: it says so.
    if matches!(runtime.kind(), EngineKind::Podman | EngineKind::Container) {
        return None;
    }
    // Each state directory has its own: it would not know another's signature.
    let name = format!("{}-lone-{}", store.signer().namespace(), store.signer().fingerprint());
    Some(NetworkName::parse(name).expect("a namespace and hex digits are a name"))
}

/// Where a container goes; makes what is missing.
pub(crate) async fn place(
    runtime: &dyn ContainerRuntime,
    store: &Store,
    ask: &NetworkRequest,
) -> Result<NetworkAttachment> {
    match ask {
        NetworkRequest::None => Ok(NetworkAttachment::None),
        NetworkRequest::Host => Ok(NetworkAttachment::Host),
        NetworkRequest::Named(name) => ours(runtime, store, name).await.map(NetworkAttachment::Id),
        NetworkRequest::Bridge => match lone(runtime, store) {
            Some(name) => shared(runtime, store, &name).await.map(NetworkAttachment::Id),
            None => Ok(NetworkAttachment::Alone),
        },
    }
}

/// Looked for first without a lock: it is there but for the first time.
async fn shared(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    if let Ok(id) = ours(runtime, store, name).await {
        return Ok(id);
    }
    let _lock = match store.common_lock("network").await {
        // Many came at once, and each looks while it holds the lock: whoever was first has made it long ago.
        Err(Error::Busy { .. }) => return ours(runtime, store, name).await,
        lock => lock?,
    };
    match make(runtime, store, name).await {
        // Somebody was faster, between the look and the lock.
        Err(Error::Runtime(Engine::NetworkTaken(_))) => ours(runtime, store, name).await,
        made => made,
    }
}

async fn ours(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    let found = runtime.find_network(name).await?.filter(|it| it.name == name.as_str());
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

async fn make(runtime: &dyn ContainerRuntime, store: &Store, name: &NetworkName) -> Result<String> {
    let labels = store.labels(runtime.kind(), [("id", random_hex::<16>()), ("kind", LONE.to_owned())]);
    let new = NetworkCreate { name: name.clone(), labels: labels.into_iter().collect(), reach: false, internal: false };
    Ok(runtime.create_network(&new).await?.id)
}

/// Removes the network that all containers share when the last of them goes. Whoever is making one holds it.
///
/// Of several that go at once each finds the others' records, so those that are going do not count: who is too early is
/// refused by the engine, and the last one is not. They take turns, or one would keep another from its try.
pub(crate) async fn drop_shared(runtime: &dyn ContainerRuntime, store: &Store, last: &Record) -> Result<()> {
    let Some(name) = lone(runtime, store) else { return Ok(()) };
    let _turn = store.common_lock("network").await?;
    let Some(_mine) = store.try_own_network()? else { return Ok(()) };
    let stays =
        |it: &Arc<Record>| it.record_id != last.record_id && it.engine == last.engine && it.state != State::Destroying;
    if store.records()?.iter().any(stays) {
        return Ok(());
    }
    match ours(runtime, store, &name).await {
        Ok(id) => runtime.remove_network(&id).await.map_err(Error::from),
        Err(Error::NotFound { .. } | Error::NotManaged { .. }) => Ok(()),
        Err(err) => Err(err),
    }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::Networks as _;
    use coracle_runtime::{FakeRuntime, LabelNamespace};

    use super::*;
    use crate::record::tests::record;

    #[tokio::test]
    async fn the_last_of_those_that_go_at_once_takes_the_network_along() {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        let store = Store::open(dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap();
        place(&fake, &store, &NetworkRequest::Bridge).await.unwrap();
        let there = async || {
            let name = lone(&fake, &store).unwrap();
            fake.find_network(&name).await.unwrap().is_some()
        };
        let [one, other] = ["one", "other"].map(|it| Record { state: State::Destroying, ..record(it) });
        let staying = Record { state: State::Ready, ..record("staying") };
        for it in [&one, &other, &staying] {
            store.save(it).unwrap();
        }
        drop_shared(&fake, &store, &one).await.unwrap();
        assert!(there().await, "one stays on it");
        store.forget(&staying.name).unwrap();
        let making = store.hold_network().await.unwrap();
        drop_shared(&fake, &store, &one).await.unwrap();
        assert!(there().await, "somebody is making one");
        drop(making);
        drop_shared(&fake, &store, &one).await.unwrap();
        assert!(!there().await, "the other goes, too");
    }
}
