//! Networks.

use async_trait::async_trait;
use coracle_runtime::{Capability, LabelFilter, Network, NetworkCreate, NetworkName, Networks, Result};

use super::{EmbeddedRuntime, unsupported};

#[async_trait]
impl Networks for EmbeddedRuntime {
    async fn find_network(&self, _name: &NetworkName) -> Result<Option<Network>> {
        Ok(None)
    }

    async fn list_networks(&self, _filter: &LabelFilter) -> Result<Vec<Network>> {
        Ok(Vec::new())
    }

    async fn create_network(&self, _network: &NetworkCreate) -> Result<Network> {
        Err(unsupported(Capability::PartedNetwork))
    }

    async fn remove_network(&self, _handle: &str) -> Result<()> {
        Ok(())
    }
}
