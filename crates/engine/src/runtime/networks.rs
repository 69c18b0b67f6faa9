//! Networks.

use async_trait::async_trait;
use coracle_runtime::{LabelFilter, Network, NetworkCreate, Networks};
use coracle_types::{NetworkName, Result};

use super::EmbeddedRuntime;
use crate::network::NetworkRecords;

#[async_trait]
impl Networks for EmbeddedRuntime {
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>> {
        NetworkRecords::new(&self.engine.directories).find(name.as_str())
    }

    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        let mut networks = NetworkRecords::new(&self.engine.directories).list()?;
        networks.retain(|it| filter.admits(&it.labels));
        Ok(networks)
    }

    async fn create_network(&self, network: &NetworkCreate) -> Result<Network> {
        if !self.engine.privileges.is_root() {
            return Err(crate::error::unsupported(coracle_types::Capability::NamedNetwork));
        }
        NetworkRecords::new(&self.engine.directories).create(network).await
    }

    async fn remove_network(&self, handle: &str) -> Result<()> {
        NetworkRecords::new(&self.engine.directories).remove(handle).await
    }
}
