//! The record of a running container's network, and how it is ended.

use std::net::IpAddr;

use coracle_runtime::PublishedPort;
use coracle_types::{ContainerId, ProcessId, Result};
use serde::{Deserialize, Serialize};

use super::helper_process;
use super::record::NetworkRecords;
use crate::blocking::blocking;
use crate::directories::Directories;

/// What `attach` created, as recorded in the container's directory.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AttachmentRecord {
    /// Its ports on the host.
    pub(crate) ports: Vec<PublishedPort>,
    /// Its address, if it has one of its own.
    pub(crate) address: Option<IpAddr>,
    /// The address at which it reaches the host.
    pub(crate) gateway: Option<IpAddr>,
    /// The host's device of its link, if it has one. The kernel removes it with the network namespace.
    pub(crate) link: Option<String>,
    /// Helper processes: a user-mode stack, a forwarder of ports.
    pub(crate) helpers: Vec<ProcessId>,
    /// The id of the engine's network that it is on.
    pub(crate) network: Option<String>,
}

/// Ends the helpers of a container that has ended or is about to. Idempotent; ends only the recorded processes.
///
/// # Errors
/// If a helper does not end. Otherwise the container's ports are free.
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
