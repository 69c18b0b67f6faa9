//! Routed networks: a link to the host, which forwards.

use std::io;
use std::net::Ipv4Addr;
use std::path::Path;

use coracle_types::{ContainerId, Error, Result, boot_id, parse_stored};
use serde::{Deserialize, Serialize};

use super::link::{self, LinkSpec, Reach};
use super::record::NetworkRecords;
use super::subnet::{self, Subnet};
use crate::directories::Directories;

/// A container to connect by a link.
#[derive(Clone, Debug)]
pub(super) struct RoutedSpec {
    pub(super) id: ContainerId,
    pub(super) pid: u32,
    pub(super) subnet: Subnet,
    pub(super) reach: Reach,
    /// The number of its network; 0 without one.
    pub(super) group: u32,
}

/// A link that was created.
#[derive(Clone, Debug)]
pub(super) struct RoutedLink {
    pub(super) device: String,
    pub(super) address: Ipv4Addr,
    pub(super) gateway: Ipv4Addr,
}

/// Installs missing rules and creates a link.
pub(super) fn connect(records: &NetworkRecords, spec: &RoutedSpec) -> io::Result<RoutedLink> {
    records.ensure_rules()?;
    let gateway = subnet::gateway(spec.subnet);
    let device = link::device(spec.id.as_str(), spec.reach);
    let link = LinkSpec { device: device.clone(), group: spec.group, pid: spec.pid, gateway };
    let address = link::connect(&link, subnet::candidates(spec.subnet, spec.id.as_str()))?;
    Ok(RoutedLink { device, address, gateway })
}

/// The address range of containers without a network of their own. Chosen at each boot, since the host may then use other
/// ranges.
#[derive(Debug, Serialize, Deserialize)]
struct OutgoingRecord {
    boot: String,
    subnet: Subnet,
}

/// Returns that range, and chooses it for the first container after a boot.
pub(super) async fn outgoing_subnet(directories: &Directories) -> Result<Subnet> {
    let file = directories.networks().join("outgoing.json");
    if let Some(known) = known_subnet(&file).map_err(failed)? {
        return Ok(known);
    }
    let _lock = NetworkRecords::new(directories).lock().await?;
    // Another process may have chosen meanwhile.
    let known = known_subnet(&file).map_err(failed)?;
    known.map_or_else(|| choose_subnet(&file), Ok).map_err(failed)
}

fn known_subnet(file: &Path) -> io::Result<Option<Subnet>> {
    let bytes = match std::fs::read(file) {
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        bytes => bytes?,
    };
    let known: OutgoingRecord = parse_stored(file, &bytes)?;
    Ok((known.boot == boot_id()).then_some(known.subnet))
}

fn choose_subnet(file: &Path) -> io::Result<Subnet> {
    let routes = subnet::read_routes()?;
    let chosen = subnet::choose(subnet::of_outgoing(), &subnet::routed(&routes));
    let subnet = chosen.ok_or_else(|| io::Error::other("the host uses all ranges of addresses for containers"))?;
    let record = OutgoingRecord { boot: boot_id().to_owned(), subnet };
    coracle_host::fs::replace(file, &serde_json::to_vec(&record)?)?;
    Ok(subnet)
}

fn failed(source: io::Error) -> Error {
    Error::Host { what: "cannot choose addresses for containers".into(), source }
}
