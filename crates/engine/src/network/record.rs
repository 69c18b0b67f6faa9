//! The engine's networks on disk: one file each.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_runtime::{Network, NetworkCreate};
use coracle_types::{Error, NetworkName, Result, parse_stored, random_hex};
use serde::{Deserialize, Serialize};

use super::rules;
use super::subnet::{self, Subnet};
use crate::directories::Directories;
use crate::error::refused;
use crate::pending::{Operation, PendingOperations};

/// How long to wait for another process that changes networks.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The suffix of a directory of members.
const MEMBERS: &str = ".members";

/// A network as decided at its creation; written once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NetworkRecord {
    /// 64 hexadecimal digits.
    pub(super) id: String,
    pub(super) name: NetworkName,
    pub(super) labels: BTreeMap<String, String>,
    /// Whether members can reach nothing outside the network.
    pub(super) internal: bool,
    /// Whether members may reach each other.
    #[serde(rename = "reach")]
    pub(super) members_connected: bool,
    pub(super) subnet: Subnet,
}

impl NetworkRecord {
    /// The group number of the network's devices, for the packet filter rules. Never 0, which all other devices have.
    pub(super) fn group(&self) -> u32 {
        let digits = self.id.get(..7).unwrap_or_default();
        u32::from_str_radix(digits, 16).unwrap_or_default() + 1
    }

    fn public(self) -> Network {
        Network {
            gateways: vec![subnet::gateway(self.subnet).into()],
            subnets: vec![subnet::any(self.subnet)],
            id: self.id,
            name: self.name.to_string(),
            labels: self.labels,
            internal: self.internal,
        }
    }
}

/// The networks of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct NetworkRecords {
    dir: PathBuf,
    pending: PendingOperations,
}

impl NetworkRecords {
    pub(crate) fn new(directories: &Directories) -> Self {
        Self { dir: directories.networks(), pending: PendingOperations::new(directories.pending()) }
    }

    /// Locks the networks and their members against changes by other processes.
    pub(super) async fn lock(&self) -> Result<Lock> {
        let failed = |source| Error::Host { what: "cannot lock the networks".into(), source };
        let lock = Lock::take(&self.dir.join("lock"), TIMEOUT).await.map_err(failed)?;
        lock.ok_or(Error::TimedOut { verb: "network", after: TIMEOUT })
    }

    /// Lists all networks, sorted by name.
    pub(crate) fn list(&self) -> Result<Vec<Network>> {
        Ok(self.records().map_err(unreadable)?.into_iter().map(NetworkRecord::public).collect())
    }

    /// Finds a network by its name, its id, or the first digits of its id.
    pub(crate) fn find(&self, handle: &str) -> Result<Option<Network>> {
        Ok(self.record(handle)?.map(NetworkRecord::public))
    }

    pub(super) fn record(&self, handle: &str) -> Result<Option<NetworkRecord>> {
        Ok(select(self.records().map_err(unreadable)?, handle))
    }

    /// Finds a network that must exist.
    ///
    /// # Errors
    /// [`Error::Engine`] if it does not.
    pub(super) fn required(&self, handle: &str) -> Result<NetworkRecord> {
        self.record(handle)?.ok_or_else(|| refused("network", format_args!("no network `{handle}`")))
    }

    /// Returns the id of the network of a new container.
    ///
    /// # Errors
    /// [`Error::Engine`] if the network does not exist.
    pub(crate) fn required_id(&self, handle: &str) -> Result<String> {
        Ok(self.required(handle)?.id)
    }

    /// Creates a network with a range of addresses that neither the host nor another network uses.
    pub(crate) async fn create(&self, network: &NetworkCreate) -> Result<Network> {
        let _lock = self.lock().await?;
        let pending = self.pending.begin(&Operation::Networks)?;
        let records = self.records().map_err(unreadable)?;
        if records.iter().any(|it| it.name == network.name) {
            return Err(Error::NetworkTaken(network.name.clone()));
        }
        let routes = subnet::read_routes().unwrap_or_default();
        let used: Vec<_> = records.iter().map(|it| it.subnet).chain(subnet::routed(&routes)).collect();
        let subnet = subnet::choose(subnet::of_networks(), &used).ok_or_else(none_free)?;
        let record = NetworkRecord {
            id: random_hex::<32>(),
            name: network.name.clone(),
            labels: network.labels.iter().cloned().collect(),
            internal: network.internal,
            members_connected: network.reach,
            subnet,
        };
        self.write(&record).map_err(|source| Error::Host { what: "cannot write a network's record".into(), source })?;
        pending.finish();
        Ok(record.public())
    }

    /// Removes a network without running members.
    pub(crate) async fn remove(&self, handle: &str) -> Result<()> {
        let _lock = self.lock().await?;
        let Some(record) = self.record(handle)? else { return Ok(()) };
        let failed = |source| Error::Host { what: "cannot remove a network".into(), source };
        if !self.members(&record.id).live().map_err(failed)?.is_empty() {
            return Err(refused("network rm", format_args!("network `{}` has running containers", record.name)));
        }
        let pending = self.pending.begin(&Operation::Networks)?;
        rules::withdraw(record.group()).map_err(failed)?;
        std::fs::remove_file(self.dir.join(format!("{}.json", record.id))).map_err(failed)?;
        self.members(&record.id).remove().map_err(failed)?;
        pending.finish();
        Ok(())
    }

    /// The groups of all networks whose members may reach each other.
    pub(super) fn connected_groups(&self) -> io::Result<Vec<u32>> {
        let connected = self.records()?.into_iter().filter(|it| it.members_connected);
        Ok(connected.map(|it| it.group()).collect())
    }

    /// The directory of the records.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The ids of networks that have or had members.
    pub(super) fn ids_of_members(&self) -> io::Result<Vec<String>> {
        let names = std::fs::read_dir(&self.dir)?.map(|it| it.map(|it| it.file_name()));
        let names = names.collect::<io::Result<Vec<_>>>()?;
        Ok(names.iter().filter_map(|it| Some(it.to_str()?.strip_suffix(MEMBERS)?.to_owned())).collect())
    }

    /// The members of a network.
    pub(super) fn members(&self, id: &str) -> super::members::Members {
        super::members::Members::new(self.dir.join(format!("{id}{MEMBERS}")))
    }

    pub(super) fn records(&self) -> io::Result<Vec<NetworkRecord>> {
        let mut records: Vec<NetworkRecord> = Vec::new();
        for entry in std::fs::read_dir(&self.dir)? {
            let path = entry?.path();
            let is_record =
                path.file_stem().is_some_and(|it| it.len() == 64) && path.extension().is_some_and(|it| it == "json");
            if is_record {
                match std::fs::read(&path) {
                    Ok(bytes) => records.push(parse_stored(&path, &bytes)?),
                    // Another process removed it.
                    Err(err) if err.kind() == io::ErrorKind::NotFound => {}
                    Err(err) => return Err(err),
                }
            }
        }
        records.sort_by(|one, other| one.name.as_str().cmp(other.name.as_str()));
        Ok(records)
    }

    fn write(&self, record: &NetworkRecord) -> io::Result<()> {
        coracle_host::fs::replace(&self.dir.join(format!("{}.json", record.id)), &serde_json::to_vec(record)?)
    }
}

/// Selects the record of a name, or else of an id.
fn select(mut records: Vec<NetworkRecord>, handle: &str) -> Option<NetworkRecord> {
    if let Some(at) = records.iter().position(|it| it.name.as_str() == handle) {
        return Some(records.swap_remove(at));
    }
    let is_digits = !handle.is_empty() && handle.bytes().all(|it| it.is_ascii_hexdigit());
    let mut matching = records.into_iter().filter(|it| is_digits && it.id.starts_with(handle));
    matching.next().filter(|_| matching.next().is_none())
}

fn unreadable(source: io::Error) -> Error {
    Error::Host { what: "cannot read the networks' records".into(), source }
}

fn none_free() -> Error {
    refused("network create", "no free range of addresses in 10.224.0.0/12")
}
