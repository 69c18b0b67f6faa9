//! Networks of an engine.

use async_trait::async_trait;
use coracle_types::{NetworkName, Result};

use crate::{LabelFilter, Network};

/// The networks of an engine.
#[async_trait]
pub trait Networks: Send + Sync {
    /// The network of a name. Engines take the first digits of an id for a name as well.
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>>;

    /// Networks that carry all of these labels.
    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>>;

    /// Creates a bridge network.
    ///
    /// # Errors
    /// [`Error::NetworkTaken`](coracle_types::Error::NetworkTaken) if the name exists.
    async fn create_network(&self, network: &NetworkCreate) -> Result<Network>;

    /// Removes a network by id or name. A missing one is no error.
    async fn remove_network(&self, handle: &str) -> Result<()>;
}

/// A bridge network to be created.
#[derive(Clone, Debug)]
pub struct NetworkCreate {
    /// Its name.
    pub name: NetworkName,
    /// Labels of the network.
    pub labels: Vec<(String, String)>,
    /// Whether containers on it may reach each other. Podman isolates networks and not their members, so there `false`
    /// is [`Error::Unsupported`](coracle_types::Error::Unsupported): give each container a network of its own.
    pub reach: bool,
    /// No way out.
    pub internal: bool,
}
