//! Networks of the fake engine.

use std::net::{IpAddr, Ipv4Addr};

use async_trait::async_trait;
use coracle_types::{Error, NetworkName, Result};
use ipnet::IpNet;

use super::{EngineState, FakeRuntime, Verb, random_id, refused};
use crate::{LabelFilter, Network, NetworkAttachment, NetworkCreate, Networks};

/// Networks that every engine has, and that cannot be created or removed.
const PREDEFINED: [&str; 3] = ["bridge", "host", "none"];

pub(super) fn predefined() -> Vec<Network> {
    let network = |name: &str| Network {
        id: random_id(),
        name: name.into(),
        labels: Default::default(),
        internal: false,
        gateways: gateways(),
        subnets: subnets(),
    };
    PREDEFINED.into_iter().map(network).collect()
}

/// The fake's containers are on this host.
pub(super) fn gateways() -> Vec<IpAddr> {
    vec![Ipv4Addr::LOCALHOST.into()]
}

pub(super) fn subnets() -> Vec<IpNet> {
    vec![IpNet::new_assert(Ipv4Addr::LOCALHOST.into(), 8)]
}

#[async_trait]
impl Networks for FakeRuntime {
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>> {
        self.enter(Verb::FindNetwork).await?;
        Ok(self.with(|state| state.network(name.as_str()).cloned()))
    }

    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        self.enter(Verb::ListNetworks).await?;
        Ok(self.with(|state| state.networks.iter().filter(|it| filter.admits(&it.labels)).cloned().collect()))
    }

    async fn create_network(&self, network: &NetworkCreate) -> Result<Network> {
        self.enter(Verb::CreateNetwork).await?;
        self.with(|state| state.create_network(network))
    }

    async fn remove_network(&self, handle: &str) -> Result<()> {
        self.enter(Verb::RemoveNetwork).await?;
        self.with(|state| state.remove_network(handle))
    }
}

impl EngineState {
    fn create_network(&mut self, new: &NetworkCreate) -> Result<Network> {
        if self.network(new.name.as_str()).is_some() {
            return Err(Error::NetworkTaken(new.name.clone()));
        }
        let network = Network {
            id: random_id(),
            name: new.name.to_string(),
            labels: new.labels.iter().cloned().collect(),
            internal: new.internal,
            gateways: gateways(),
            subnets: subnets(),
        };
        self.networks.push(network.clone());
        Ok(network)
    }

    fn remove_network(&mut self, handle: &str) -> Result<()> {
        let Some(Network { id, name, .. }) = self.network(handle).cloned() else { return Ok(()) };
        if PREDEFINED.contains(&name.as_str()) {
            return Err(refused(Verb::RemoveNetwork, format!("{name} is a pre-defined network")));
        }
        if self.containers.values().any(|it| it.seen.networks.contains(&name)) {
            return Err(refused(Verb::RemoveNetwork, format!("network {name} has containers")));
        }
        self.networks.retain(|it| it.id != id);
        Ok(())
    }

    /// The name of the network that a container is put on.
    pub(super) fn network_of(&self, network: &NetworkAttachment) -> Result<String> {
        let handle = match network {
            NetworkAttachment::EngineDefault | NetworkAttachment::Alone => "bridge",
            NetworkAttachment::None => "none",
            NetworkAttachment::Host => "host",
            NetworkAttachment::Id(handle) => handle,
        };
        let missing = || refused(Verb::Create, format!("network {handle} not found"));
        self.network(handle).map(|it| it.name.clone()).ok_or_else(missing)
    }

    fn network(&self, handle: &str) -> Option<&Network> {
        self.networks.iter().find(|it| it.name == handle || it.id == handle)
    }
}
