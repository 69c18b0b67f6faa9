//! What the workspace of a session was filled with, remembered beside its record.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::PathBuf;

use coracle_host::fs::remove;
use coracle_runtime::Baseline;
use coracle_types::{ContainerName, parse_stored};

use super::SessionContainers;
use crate::store::{own_directory, write_whole};
use crate::{Store, StoreError};

/// A larger file was not written by Coracle: 100,000 files with long names fit.
const MAX_BYTES: u64 = 512 << 20;

impl SessionContainers {
    /// What the workspace of a session was filled with; nothing when no directory was copied into it.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn baseline(&self, session: &ContainerName) -> Result<Option<Baseline>, StoreError> {
        self.store.baseline(session)
    }

    /// Remembers what the workspace of a session was filled with, or what of it was taken out.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn keep_baseline(&self, session: &ContainerName, baseline: &Baseline) -> Result<(), StoreError> {
        if *baseline == Baseline::default() {
            return self.store.forget_baseline(session);
        }
        let file = self.store.baseline_file(session);
        own_directory(&self.store.session_dir(session))?;
        let json = serde_json::to_vec(baseline).map_err(|err| StoreError::io(&file)(io::Error::other(err)))?;
        write_whole(&file, &json)
    }
}

impl Store {
    fn baseline_file(&self, session: &ContainerName) -> PathBuf {
        self.session_dir(session).join("baseline.json")
    }

    pub(crate) fn baseline(&self, session: &ContainerName) -> Result<Option<Baseline>, StoreError> {
        let path = self.baseline_file(session);
        let file = match File::open(&path) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            file => file.map_err(StoreError::io(&path))?,
        };
        let mut json = Vec::new();
        file.take(MAX_BYTES).read_to_end(&mut json).map_err(StoreError::io(&path))?;
        Ok(Some(parse_stored(&path, &json)?))
    }

    pub(super) fn forget_baseline(&self, session: &ContainerName) -> Result<(), StoreError> {
        let file = self.baseline_file(session);
        remove(&file).map_err(StoreError::io(&file))
    }
}
