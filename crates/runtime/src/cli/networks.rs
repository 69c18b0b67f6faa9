//! Networks of Docker and Podman.

use super::args;
use super::dialect::Dialect;
use super::{CliRuntime, deadline};
use crate::{Capability, ContainerRuntime, Error, Network, NetworkAct, Result};

impl CliRuntime {
    pub(super) async fn networks(&self, act: NetworkAct) -> Result<Vec<Network>> {
        match act {
            NetworkAct::Find(name) => self.lookup.find_networks(&[name.to_string()]).await,
            NetworkAct::Create { reach: false, .. } if self.dialect == Dialect::Podman => {
                Err(Error::Unsupported { engine: self.kind(), capability: Capability::PartedNetwork })
            }
            NetworkAct::Create { name, labels, reach, internal } => {
                let words = args::create_network(self.dialect, name.as_str(), &labels, (reach, internal));
                match self.client.ask("network create", words, deadline::NETWORK).await {
                    Ok(_) => self.lookup.find_networks(&[name.to_string()]).await,
                    Err(_) if !self.lookup.find_networks(&[name.to_string()]).await?.is_empty() => {
                        Err(Error::NetworkTaken(name))
                    }
                    Err(failure) => Err(failure),
                }
            }
            NetworkAct::List(filter) => self.lookup.list_networks(&filter).await,
            NetworkAct::Remove(id) => {
                // Podman removes a network in use when it is named by its id.
                let Some(Network { name, .. }) = self.lookup.find_networks(std::slice::from_ref(&id)).await?.pop()
                else {
                    return Ok(Vec::new());
                };
                let removed = self.client.ask("network rm", args::on("network rm", [&name]), deadline::NETWORK).await;
                match removed {
                    Err(failure) if !self.lookup.find_networks(&[id]).await?.is_empty() => Err(failure),
                    _ => Ok(Vec::new()),
                }
            }
        }
    }
}
