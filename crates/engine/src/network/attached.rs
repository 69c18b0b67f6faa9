//! What a running container has of networks, and its end.

use std::net::IpAddr;

use coracle_runtime::PublishedPort;
use coracle_types::{ContainerId, ProcessId, Result};
use serde::{Deserialize, Serialize};

use super::helper_process;
use super::record::NetworkRecords;
use crate::blocking::blocking;
use crate::directories::Directories;

/// What `attach` made, as recorded beside the container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachmentRecord {
    /// Its ports on the host.
    pub(crate) ports: Vec<PublishedPort>,
    /// Its address, where it has one of its own.
    pub(crate) address: Option<IpAddr>,
    /// The address of the host as it reaches it.
    pub(crate) gateway: Option<IpAddr>,
    /// The host's end of its link, where there is one. It disappears with the network namespace.
    pub(crate) link: Option<String>,
    /// Programs that serve it: a user-mode stack, a forwarder of ports.
    pub(crate) helpers: Vec<ProcessId>,
    /// The network of ours that it is on, by id.
    pub(crate) network: Option<String>,
}

/// Ends what serves a container that has ended or is about to. Idempotent; ends only the recorded processes.
///
/// # Errors
/// When a helper does not end. The container's ports are free otherwise.
pub(crate) async fn detach(attached: &AttachmentRecord, id: &ContainerId, directories: &Directories) -> Result<()> {
    let failed = |source| coracle_types::Error::Host { what: "cannot detach a container".into(), source };
    if !attached.helpers.is_empty() {
        let helpers = attached.helpers.clone();
        blocking("end helpers", move || helpers.iter().try_for_each(helper_process::end).map_err(failed)).await?;
    }
    if let Some(network) = &attached.network {
        let records = NetworkRecords::new(directories);
        let _lock = records.lock().await?;
        let members = records.members(network);
        members.release(id).map_err(failed)?;
        if records.record(network)?.is_some_and(|it| it.members_connected) {
            members.announce().map_err(failed)?;
        }
    }
    Ok(())
}
