//! Networks of Docker and Podman.

use super::args::{self, Words};
use super::dialect::Dialect;
use super::{CliRuntime, deadline, is_silent, read};
use crate::{Capability, ContainerRuntime, Error, Network, NetworkAct, Result};

impl CliRuntime {
    pub(super) async fn networks(&self, act: NetworkAct) -> Result<Vec<Network>> {
        match act {
            NetworkAct::Find(name) => self.find_networks(&[name.to_string()]).await,
            NetworkAct::Create { reach: false, .. } if self.dialect == Dialect::Podman => {
                Err(Error::Unsupported { engine: self.kind(), capability: Capability::PartedNetwork })
            }
            NetworkAct::Create { name, labels, reach, internal } => {
                let words = args::create_network(self.dialect, name.as_str(), &labels, (reach, internal));
                match self.client.ask("network create", words, deadline::NETWORK).await {
                    Ok(_) => self.find_networks(&[name.to_string()]).await,
                    Err(_) if !self.find_networks(&[name.to_string()]).await?.is_empty() => {
                        Err(Error::NetworkTaken(name))
                    }
                    Err(failure) => Err(failure),
                }
            }
            NetworkAct::List(filter) => {
                let words = args::with_labels(Words::verb("network ls --quiet --no-trunc"), &filter);
                let ended = self.client.ask("network ls", words, deadline::NETWORK).await?;
                self.find_networks(&read::ids(&ended.stdout.bytes())).await
            }
            NetworkAct::Remove(id) => {
                // Podman removes a network in use when it is named by its id.
                let Some(Network { name, .. }) = self.find_networks(std::slice::from_ref(&id)).await?.pop() else {
                    return Ok(Vec::new());
                };
                let removed = self.client.ask("network rm", args::on("network rm", [&name]), deadline::NETWORK).await;
                match removed {
                    Err(failure) if !self.find_networks(&[id]).await?.is_empty() => Err(failure),
                    _ => Ok(Vec::new()),
                }
            }
        }
    }

    pub(super) async fn find_networks(&self, names: &[String]) -> Result<Vec<Network>> {
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let ended = self.client.run("network inspect", args::on("network inspect", names), deadline::NETWORK).await?;
        if !ended.ok() && is_silent(&ended.stdout.bytes()) {
            self.client.ask("network ls", Words::verb("network ls --quiet"), deadline::NETWORK).await?;
            return Ok(Vec::new());
        }
        read::networks(&ended.stdout.bytes())
    }
}
