//! The settings of a worker.

use coracle_client::Link;
use coracle_types::{ContainerPath, Ids, Secret};

use crate::ProxyUrl;
use crate::llm::RetryPolicy;

/// The settings of a worker.
#[derive(Debug)]
pub struct WorkerSettings {
    /// The address for model requests; without it every run fails with `proxy_required`.
    pub proxy: Option<ProxyUrl>,
    /// Sent to the proxy with each request.
    pub token: Option<Secret>,
    /// The description of the network for the model: `none`, or the allowed hosts.
    pub network: String,
    /// The directory that contains all working directories.
    pub root: ContainerPath,
    /// The user as which the guest acts for the agent, whatever user a request names.
    pub agent: Ids,
    /// Retries of model calls.
    pub patience: RetryPolicy,
}

/// Runs requests.
#[derive(Debug)]
pub struct Worker {
    pub(crate) settings: WorkerSettings,
    pub(crate) link: Link,
}

impl Worker {
    /// A worker whose files and commands are those of the guest behind `link`.
    #[must_use]
    pub fn new(settings: WorkerSettings, link: Link) -> Self {
        Self { settings, link }
    }
}
