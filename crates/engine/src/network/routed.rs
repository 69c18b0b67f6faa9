//! Networks of the kernel: a link to the host, which forwards.

use std::io;
use std::net::Ipv4Addr;

use coracle_runtime::{ContainerId, boot_id};
use serde::{Deserialize, Serialize};

use super::link::{self, LinkSpec, Reach};
use super::rules;
use super::subnet::{self, Subnet};
use crate::directories::Directories;

/// A container to be linked.
#[derive(Clone, Debug)]
pub(super) struct RoutedSpec {
    pub(super) id: ContainerId,
    pub(super) pid: u32,
    pub(super) subnet: Subnet,
    pub(super) reach: Reach,
    /// The number of its network; 0 without one.
    pub(super) group: u32,
    /// The members of its network reach each other.
    pub(super) members: bool,
}

/// A link that was made.
#[derive(Clone, Debug)]
pub(super) struct RoutedLink {
    pub(super) device: String,
    pub(super) address: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
}

/// Makes the rules, if they are missing, and a link.
pub(super) fn connect(spec: &RoutedSpec) -> io::Result<RoutedLink> {
    let members: &[u32] = if spec.members { &[spec.group] } else { &[] };
    rules::ensure(members)?;
    let gateway = subnet::gateway(spec.subnet);
    let device = link::device(spec.id.as_str(), spec.reach);
    let link = LinkSpec { device: device.clone(), group: spec.group, pid: spec.pid, gateway };
    let address = link::connect(&link, subnet::candidates(spec.subnet, spec.id.as_str()))?;
    Ok(RoutedLink { device, address, gateway })
}

/// The range of the containers without a network of their own. What the host uses may be another one after each boot.
#[derive(Debug, Serialize, Deserialize)]
struct OutgoingRecord {
    boot: String,
    subnet: Subnet,
}

/// That range, chosen at the first container of each boot.
pub(super) fn outgoing_subnet(directories: &Directories) -> io::Result<Subnet> {
    let file = directories.networks().join("outgoing.json");
    let known = std::fs::read(&file).ok().and_then(|it| serde_json::from_slice::<OutgoingRecord>(&it).ok());
    if let Some(known) = known.filter(|it| it.boot == boot_id()) {
        return Ok(known.subnet);
    }
    let routes = std::fs::read_to_string("/proc/net/route")?;
    let chosen = subnet::choose(subnet::of_outgoing(), &subnet::routed(&routes));
    let subnet = chosen.ok_or_else(|| io::Error::other("the host uses all ranges of addresses for containers"))?;
    let record = OutgoingRecord { boot: boot_id().to_owned(), subnet };
    coracle_runtime::host::fs::replace(&file, &serde_json::to_vec(&record)?)?;
    Ok(subnet)
}
