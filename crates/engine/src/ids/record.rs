//! Records the id mapping that files of a data directory are stored with. With another mapping the files would have
//! other owners inside: files of root could belong to the exec user.

use std::io;
use std::path::Path;

use coracle_types::{EngineKind, Error, Excerpt, Result, parse_stored};
use serde::{Deserialize, Serialize};

use super::Privileges;
use super::map::IdMap;

/// Content of the file.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
struct OwnerRecord {
    /// The mapping of all containers; `None` for root, which stores files with the ids of the images.
    shared_map: Option<IdMap>,
}

impl Privileges {
    /// Compares the mapping with the one recorded in `file`. Writes the file if it is missing.
    ///
    /// # Errors
    /// `Unavailable` if they differ.
    pub(crate) fn check_record(&self, file: &Path) -> Result<()> {
        let failed = |source| Error::Host { what: format!("cannot use `{}`", file.display()), source };
        let now = OwnerRecord { shared_map: self.shared_map() };
        let bytes = match std::fs::read(file) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => {
                let json = serde_json::to_vec(&now).map_err(|err| failed(err.into()))?;
                return coracle_host::fs::replace(file, &json).map_err(failed);
            }
            read => read.map_err(failed)?,
        };
        let then: OwnerRecord = parse_stored(file, &bytes).map_err(|err| failed(err.into()))?;
        if then == now { Ok(()) } else { Err(changed(file.parent().unwrap_or(file))) }
    }
}

fn changed(dir: &Path) -> Error {
    let dir = dir.display();
    let text = format!(
        "`{dir}` belongs to another user, or `/etc/subuid` and `/etc/subgid` have changed: set `engine_data` to another \
         directory, restore the lines, or remove the directory as root"
    );
    Error::Unavailable { engine: EngineKind::Embedded, denied: false, excerpt: Excerpt::from_bytes(text.as_bytes()) }
}

#[cfg(test)]
mod tests {
    use super::super::Rootless;
    use super::*;

    #[test]
    fn a_data_directory_with_another_mapping_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("ids.json");
        let single = |uid| Privileges::Rootless(Rootless { map: IdMap::single(uid, 1), programs: None });
        single(1000).check_record(&file).unwrap();
        single(1000).check_record(&file).unwrap();
        for other in [single(1001), Privileges::Root] {
            assert!(matches!(other.check_record(&file), Err(Error::Unavailable { .. })), "{other:?}");
        }
    }
}
