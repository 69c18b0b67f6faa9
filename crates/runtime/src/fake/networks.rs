//! Networks of the fake engine.

use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

use super::{State, Verb, random_id, refused};
use crate::{Error, Network, NetworkAct, NetworkAttachment, NetworkName, Result};

/// Networks that every engine has, and that nobody may make or remove.
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

impl State {
    pub(super) fn act_on_networks(&mut self, act: NetworkAct) -> Result<Vec<Network>> {
        match act {
            NetworkAct::Find(name) => Ok(self.network(name.as_str()).into_iter().cloned().collect()),
            NetworkAct::List(filter) => {
                Ok(self.networks.iter().filter(|it| filter.admits(&it.labels)).cloned().collect())
            }
            NetworkAct::Create { name, labels, internal, reach: _ } => self.create_network(&name, labels, internal),
            NetworkAct::Remove(handle) => self.remove_network(&handle),
        }
    }

    fn create_network(
        &mut self,
        name: &NetworkName,
        labels: Vec<(String, String)>,
        internal: bool,
    ) -> Result<Vec<Network>> {
        if self.network(name.as_str()).is_some() {
            return Err(Error::NetworkTaken(name.clone()));
        }
        let labels = labels.into_iter().collect();
        let network = Network {
            id: random_id(),
            name: name.to_string(),
            labels,
            internal,
            gateways: gateways(),
            subnets: subnets(),
        };
        self.networks.push(network.clone());
        Ok(vec![network])
    }

    fn remove_network(&mut self, handle: &str) -> Result<Vec<Network>> {
        let Some(Network { id, name, .. }) = self.network(handle).cloned() else { return Ok(Vec::new()) };
        if PREDEFINED.contains(&name.as_str()) {
            return Err(refused(Verb::RemoveNetwork, format!("{name} is a pre-defined network")));
        }
        if self.containers.values().any(|it| it.seen.networks.contains(&name)) {
            return Err(refused(Verb::RemoveNetwork, format!("network {name} has containers")));
        }
        self.networks.retain(|it| it.id != id);
        Ok(Vec::new())
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
