//! What a worker is started with.

use coracle_runtime::{ContainerPath, Ids, Link, Secret};

use crate::ProxyUrl;
use crate::llm::Patience;

/// What a worker is started with.
#[derive(Debug)]
pub struct Settings {
    /// The way to a model; without it every run is `proxy_required`.
    pub proxy: Option<ProxyUrl>,
    /// Sent to the proxy with each request.
    pub token: Option<Secret>,
    /// What the model is told of the network: `none`, or which hosts are reached.
    pub network: String,
    /// The directory beneath which all work lies.
    pub root: ContainerPath,
    /// The agent, as which the guest acts whoever is named to it.
    pub agent: Ids,
    /// How long the model is waited for.
    pub patience: Patience,
}

/// What takes requests.
#[derive(Debug)]
pub struct Worker {
    pub(crate) settings: Settings,
    pub(crate) link: Link,
}

impl Worker {
    /// A worker whose files and commands are those at the other end of a link.
    #[must_use]
    pub fn new(settings: Settings, link: Link) -> Self {
        Self { settings, link }
    }
}
