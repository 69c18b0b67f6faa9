//! What was ours and is destroyed: remembered a while, so that a second `destroy` succeeds quietly.

use std::io;
use std::path::PathBuf;

use coracle_runtime::{ContainerId, ContainerName, Handle, NetworkName};
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::store::{Store, key_of, read_own, write_whole};

/// A destroyed container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Tombstone {
    pub(crate) name: ContainerName,
    pub(crate) id: Option<ContainerId>,
    pub(crate) at: jiff::Timestamp,
}

/// A network that was removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct NetworkTombstone {
    name: NetworkName,
    id: String,
    at: jiff::Timestamp,
}

impl Store {
    pub(crate) fn bury(&self, name: &ContainerName, id: Option<ContainerId>) -> Result<(), StoreError> {
        let gone = Tombstone { name: name.clone(), id, at: jiff::Timestamp::now() };
        let bytes = serde_json::to_vec(&gone).expect("names and times serialise");
        write_whole(&self.graves().join(format!("{}.json", key_of(name))), &bytes)
    }

    /// The name of a container that was ours and is destroyed, by name or id.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn destroyed(&self, handle: &Handle) -> Result<Option<ContainerName>, StoreError> {
        let found = match handle {
            Handle::Name(name) => self.grave(&format!("{}.json", key_of(name)))?,
            Handle::IdPrefix(digits) => {
                let begins = |it: &Tombstone| it.id.as_ref().is_some_and(|id| id.as_str().starts_with(digits));
                self.all_gone()?.into_iter().find(begins)
            }
        };
        Ok(found.map(|it| it.name))
    }

    /// Remembers a network that was ours and is removed.
    pub(crate) fn bury_network(&self, name: &NetworkName, id: &str) -> Result<(), StoreError> {
        let gone = NetworkTombstone { name: name.clone(), id: id.to_owned(), at: jiff::Timestamp::now() };
        let bytes = serde_json::to_vec(&gone).expect("names and times serialise");
        write_whole(&self.network_grave(name), &bytes)
    }

    /// It is there again.
    pub(crate) fn unbury_network(&self, name: &NetworkName) -> Result<(), StoreError> {
        let file = self.network_grave(name);
        match std::fs::remove_file(&file) {
            Err(err) if err.kind() != io::ErrorKind::NotFound => Err(StoreError::io(&file)(err)),
            _ => Ok(()),
        }
    }

    /// Whether a network of that name was ours and is removed.
    ///
    /// # Errors
    /// When the state directory cannot be read.
    pub fn network_destroyed(&self, name: &NetworkName) -> Result<bool, StoreError> {
        Ok(read_own(&self.network_grave(name))?.is_some())
    }

    fn network_grave(&self, name: &NetworkName) -> PathBuf {
        self.root().join("gone/network").join(format!("{name}.json"))
    }

    fn networks_gone(&self) -> Result<Vec<NetworkTombstone>, StoreError> {
        let dir = self.root().join("gone/network");
        let entries = std::fs::read_dir(&dir).map_err(StoreError::io(&dir))?;
        let read = |path: PathBuf| Ok(read_own(&path)?.and_then(|it| serde_json::from_slice(&it).ok()));
        let found: Result<Vec<Option<NetworkTombstone>>, StoreError> =
            entries.filter_map(|it| Some(read(it.ok()?.path()))).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    /// Forgets what was destroyed before that time.
    pub(crate) fn forget_gone(&self, before: jiff::Timestamp) -> Result<(), StoreError> {
        for network in self.networks_gone()?.iter().filter(|it| it.at < before) {
            self.unbury_network(&network.name)?;
        }
        for gone in self.all_gone()?.iter().filter(|it| it.at < before) {
            let file = self.graves().join(format!("{}.json", key_of(&gone.name)));
            std::fs::remove_file(&file).map_err(StoreError::io(&file))?;
        }
        Ok(())
    }

    fn all_gone(&self) -> Result<Vec<Tombstone>, StoreError> {
        let dir = self.graves();
        let entries = std::fs::read_dir(&dir).map_err(StoreError::io(&dir))?;
        let names = entries.filter_map(|it| it.ok()?.file_name().into_string().ok());
        let found: Result<Vec<_>, _> = names.filter(|it| it.ends_with(".json")).map(|it| self.grave(&it)).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    fn grave(&self, file: &str) -> Result<Option<Tombstone>, StoreError> {
        let bytes = read_own(&self.graves().join(file))?;
        Ok(bytes.and_then(|it| serde_json::from_slice(&it).ok()))
    }

    fn graves(&self) -> std::path::PathBuf {
        self.root().join("gone/container")
    }
}
