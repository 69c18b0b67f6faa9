//! What was ours and is destroyed: remembered a while, so that a second `destroy` succeeds quietly.

use coracle_runtime::{ContainerId, ContainerName, Handle};
use serde::{Deserialize, Serialize};

use crate::store::{Store, StoreError, key_of, read_own, write_whole};

/// A destroyed container.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Gone {
    pub(crate) name: ContainerName,
    pub(crate) id: Option<ContainerId>,
    pub(crate) at: jiff::Timestamp,
}

impl Store {
    pub(crate) fn bury(&self, name: &ContainerName, id: Option<ContainerId>) -> Result<(), StoreError> {
        let gone = Gone { name: name.clone(), id, at: jiff::Timestamp::now() };
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
                let begins = |it: &Gone| it.id.as_ref().is_some_and(|id| id.as_str().starts_with(digits));
                self.all_gone()?.into_iter().find(begins)
            }
        };
        Ok(found.map(|it| it.name))
    }

    /// Forgets what was destroyed before that time.
    pub(crate) fn forget_gone(&self, before: jiff::Timestamp) -> Result<(), StoreError> {
        for gone in self.all_gone()?.iter().filter(|it| it.at < before) {
            let file = self.graves().join(format!("{}.json", key_of(&gone.name)));
            std::fs::remove_file(&file).map_err(StoreError::io(&file))?;
        }
        Ok(())
    }

    fn all_gone(&self) -> Result<Vec<Gone>, StoreError> {
        let dir = self.graves();
        let entries = std::fs::read_dir(&dir).map_err(StoreError::io(&dir))?;
        let names = entries.filter_map(|it| it.ok()?.file_name().into_string().ok());
        let found: Result<Vec<_>, _> = names.filter(|it| it.ends_with(".json")).map(|it| self.grave(&it)).collect();
        Ok(found?.into_iter().flatten().collect())
    }

    fn grave(&self, file: &str) -> Result<Option<Gone>, StoreError> {
        let bytes = read_own(&self.graves().join(file))?;
        Ok(bytes.and_then(|it| serde_json::from_slice(&it).ok()))
    }

    fn graves(&self) -> std::path::PathBuf {
        self.root().join("gone/container")
    }
}
