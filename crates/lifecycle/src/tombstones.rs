//! Tombstones of destroyed objects: remembered for some time, so that a second `destroy` succeeds.

use std::path::{Path, PathBuf};

use coracle_host::fs::remove;
use coracle_types::{ContainerId, ContainerName, Handle, NetworkName, StoredFileError, parse_stored};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::StoreError;
use crate::store::{Store, key_of, read_own, write_whole};

/// A destroyed container, or a network that was removed.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Tombstone {
    name: String,
    id: Option<String>,
    at: Timestamp,
}

impl Tombstone {
    /// `None` for a damaged one: it only made an answer better.
    ///
    /// # Errors
    /// [`StoreError::Newer`] for one that a newer version wrote.
    fn read(file: &Path) -> Result<Option<Self>, StoreError> {
        let Some(bytes) = read_own(file)? else { return Ok(None) };
        match parse_stored(file, &bytes) {
            Err(StoredFileError::Damaged { .. }) => Ok(None),
            read => Ok(Some(read?)),
        }
    }

    fn write(file: &Path, name: &str, id: Option<&str>) -> Result<(), StoreError> {
        let tombstone = Self { name: name.to_owned(), id: id.map(str::to_owned), at: Timestamp::now() };
        write_whole(file, &serde_json::to_vec(&tombstone).expect("names and times serialise"))
    }
}

impl Store {
    pub(crate) fn write_tombstone(&self, name: &ContainerName, id: Option<&ContainerId>) -> Result<(), StoreError> {
        Tombstone::write(&self.container_grave(name), name.as_str(), id.map(ContainerId::as_str))
    }

    /// The name of a managed container that was destroyed, by name or id.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn destroyed(&self, handle: &Handle) -> Result<Option<ContainerName>, StoreError> {
        let found = match handle {
            Handle::Name(name) => Tombstone::read(&self.container_grave(name))?,
            Handle::IdPrefix(digits) => {
                let begins = |it: &Tombstone| it.id.as_ref().is_some_and(|id| id.starts_with(digits.as_str()));
                self.tombstones("container", |_| true)?.into_iter().map(|it| it.1).find(begins)
            }
        };
        Ok(found.and_then(|it| ContainerName::parse(it.name).ok()))
    }

    /// Records that a managed network was removed.
    pub(crate) fn write_network_tombstone(&self, name: &NetworkName, id: &str) -> Result<(), StoreError> {
        Tombstone::write(&self.network_grave(name), name.as_str(), Some(id))
    }

    /// It is there again.
    pub(crate) fn remove_network_tombstone(&self, name: &NetworkName) -> Result<(), StoreError> {
        let file = self.network_grave(name);
        remove(&file).map_err(StoreError::io(&file))
    }

    /// Whether a network with that name was managed and is removed.
    ///
    /// # Errors
    /// If the state directory cannot be read.
    pub fn network_destroyed(&self, name: &NetworkName) -> Result<bool, StoreError> {
        Ok(Tombstone::read(&self.network_grave(name))?.is_some())
    }

    /// Forgets what was destroyed before that time.
    pub(crate) fn forget_gone(&self, before: Timestamp) -> Result<(), StoreError> {
        // Each removal comes here, and there may be thousands: only those of old files are read.
        let is_old = |file: &Path| {
            let written = std::fs::metadata(file).and_then(|it| it.modified()).ok();
            written.and_then(|it| Timestamp::try_from(it).ok()).is_none_or(|it| it < before)
        };
        for kind in ["network", "container"] {
            for (file, tombstone) in self.tombstones(kind, is_old)? {
                if tombstone.at < before {
                    remove(&file).map_err(StoreError::io(&file))?;
                }
            }
        }
        Ok(())
    }

    fn tombstones(&self, kind: &str, reads: impl Fn(&Path) -> bool) -> Result<Vec<(PathBuf, Tombstone)>, StoreError> {
        let dir = self.root().join("gone").join(kind);
        let files = std::fs::read_dir(&dir).map_err(StoreError::io(&dir))?.filter_map(|it| Some(it.ok()?.path()));
        let json = files.filter(|it| it.extension().is_some_and(|it| it == "json"));
        let read = |file: PathBuf| match Tombstone::read(&file) {
            // It hides no other one.
            Err(StoreError::Newer(_)) | Ok(None) => None,
            read => Some(read.map(|tombstone| Some((file, tombstone?)))),
        };
        let found: Result<Vec<_>, _> = json.filter(|it| reads(it)).filter_map(read).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    fn container_grave(&self, name: &ContainerName) -> PathBuf {
        self.root().join("gone/container").join(format!("{}.json", key_of(name)))
    }

    fn network_grave(&self, name: &NetworkName) -> PathBuf {
        self.root().join("gone/network").join(format!("{name}.json"))
    }
}
