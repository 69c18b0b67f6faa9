//! Volumes of a data directory: their records, creation and removal.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use coracle_runtime::{Error, Result, Volume, VolumeCreate, random_hex};
use serde::{Deserialize, Serialize};

use super::image_content::{self, ImageDirectory};
use crate::config::ContainerConfig;
use crate::config::MountConfig;
use crate::directories::Directories;
use crate::error::refused;
use crate::ids::Privileges;
use crate::owner;
use crate::pending::{Operation, PendingOperations};
use crate::trash::Trash;

const RECORD: &str = "volume.json";
const DATA: &str = "_data";

/// A directory with this in its name is not complete, or about to be deleted. No volume's name has it.
const UNFINISHED: &str = ".new-";

/// As decided at its creation.
#[derive(Debug, Serialize, Deserialize)]
struct VolumeRecord {
    labels: BTreeMap<String, String>,
    created: String,
}

/// The volumes of a data directory.
#[derive(Clone, Debug)]
pub(crate) struct VolumeRecords<'a> {
    directories: &'a Directories,
    privileges: &'a Privileges,
}

impl<'a> VolumeRecords<'a> {
    pub(crate) fn new(directories: &'a Directories, privileges: &'a Privileges) -> Self {
        Self { directories, privileges }
    }

    /// All volumes, by name.
    pub(crate) fn list(&self) -> Result<Vec<Volume>> {
        let mut volumes = Vec::new();
        for entry in fs::read_dir(self.directories.volumes()).map_err(unreadable)? {
            let name = entry.map_err(unreadable)?.file_name();
            let Some(name) = name.to_str().filter(|it| !it.contains(UNFINISHED)) else { continue };
            volumes.extend(self.find(name)?);
        }
        volumes.sort_by(|one, other| one.name.cmp(&other.name));
        Ok(volumes)
    }

    /// The volume of a name.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Volume>> {
        if !is_name(name) {
            return Ok(None);
        }
        let bytes = match fs::read(self.directories.volumes().join(name).join(RECORD)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            bytes => bytes.map_err(unreadable)?,
        };
        let record: VolumeRecord = serde_json::from_slice(&bytes).map_err(|it| unreadable(it.into()))?;
        Ok(Some(Volume { name: name.to_owned(), labels: record.labels, created: record.created }))
    }

    /// Creates an empty volume; an existing one keeps its labels and files. Sizes are not limited, as Docker's are not.
    pub(crate) fn create(&self, volume: &VolumeCreate) -> Result<Volume> {
        let name = volume.name.as_str();
        if let Some(volume) = self.find(name)? {
            return Ok(volume);
        }
        let record = VolumeRecord {
            labels: volume.labels.iter().cloned().collect(),
            created: jiff::Timestamp::now().to_string(),
        };
        let failed = |source| Error::Host { what: format!("cannot create the volume `{name}`"), source };
        let pending = self.pending().begin(&Operation::Volumes)?;
        self.publish(name, &record).map_err(failed)?;
        pending.finish();
        self.find(name)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// Makes it beside the others. Another process may be first: then its volume stays.
    fn publish(&self, name: &str, record: &VolumeRecord) -> io::Result<()> {
        let volumes = self.directories.volumes();
        let aside = volumes.join(format!("{name}{UNFINISHED}{}.{}", owner::this_process(), random_hex::<8>()));
        fs::create_dir(&aside)?;
        coracle_runtime::host::fs::replace(&aside.join(RECORD), &serde_json::to_vec(record)?)?;
        let data = aside.join(DATA);
        self.privileges.run_as_owner(|| {
            fs::create_dir(&data)?;
            fs::set_permissions(&data, fs::Permissions::from_mode(0o755))
        })?;
        match fs::rename(&aside, volumes.join(name)) {
            Err(err) if matches!(err.kind(), io::ErrorKind::DirectoryNotEmpty | io::ErrorKind::AlreadyExists) => {
                fs::remove_dir_all(&aside)
            }
            done => done,
        }
    }

    /// Removes a volume; a missing one is no error.
    ///
    /// # Errors
    /// `Engine` for one that a container has, running or not.
    pub(crate) fn remove(&self, name: &str) -> Result<()> {
        let failed = |source| Error::Host { what: format!("cannot remove the volume `{name}`"), source };
        if self.find(name)?.is_none() {
            return Ok(());
        }
        if let Some(container) = self.user_of(name).map_err(failed)? {
            return Err(refused("volume rm", format_args!("volume `{name}` is in use by container `{container}`")));
        }
        let pending = self.pending().begin(&Operation::Volumes)?;
        self.trash().discard(&self.directories.volumes().join(name)).map_err(failed)?;
        pending.finish();
        Ok(())
    }

    /// Removes what dead processes did not create to the end.
    ///
    /// # Errors
    /// When it cannot be removed.
    pub(crate) fn repair(&self) -> Result<()> {
        let failed = |source| Error::Host { what: "cannot repair volumes".into(), source };
        for entry in fs::read_dir(self.directories.volumes()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            match path.file_name().and_then(|it| it.to_str()?.split_once(UNFINISHED)) {
                Some((_, maker)) if owner::maker_has_died(maker) => self.trash().discard(&path).map_err(failed)?,
                Some(_) => {}
                None => self.privileges.run_as_owner(|| image_content::remove_unfinished(&path)).map_err(failed)?,
            }
        }
        Ok(())
    }

    fn pending(&self) -> PendingOperations {
        PendingOperations::new(self.directories.pending())
    }

    fn trash(&self) -> Trash {
        Trash::new(self.directories, self.privileges)
    }

    /// A container that has the volume among its mounts.
    fn user_of(&self, name: &str) -> io::Result<Option<String>> {
        for entry in fs::read_dir(self.directories.containers())? {
            let path = entry?.path().join("config.json");
            // `names`, and containers that are being made or removed.
            let Ok(bytes) = fs::read(&path) else { continue };
            let Ok(config) = serde_json::from_slice::<ContainerConfig>(&bytes) else { continue };
            let is_it = |it: &MountConfig| matches!(it, MountConfig::Volume { name: it, .. } if it == name);
            if config.mounts.iter().any(is_it) {
                return Ok(Some(config.name.to_string()));
            }
        }
        Ok(None)
    }

    /// The directory of a volume's files, for a mount. An empty one takes content, owner and mode of an image's directory,
    /// if one is given.
    ///
    /// # Errors
    /// `NotFound` for a missing volume; what the file system refuses.
    pub(crate) fn prepare(&self, name: &str, image: Option<&ImageDirectory<'_>>) -> io::Result<PathBuf> {
        if !is_name(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let data = self.directories.volumes().join(name).join(DATA);
        fs::metadata(&data)?;
        if let Some(image) = image {
            self.privileges.run_as_owner(|| image_content::copy_into_empty(image, &data))?;
        }
        Ok(data)
    }
}

/// Names come from `VolumeName`, and from callers that remove what they have found.
fn is_name(name: &str) -> bool {
    !name.is_empty() && !name.starts_with('.') && !name.contains(['/', '\0']) && !name.contains(UNFINISHED)
}

fn unreadable(source: io::Error) -> Error {
    Error::Host { what: "cannot read the volumes' records".into(), source }
}

#[cfg(test)]
mod tests {
    use coracle_runtime::VolumeName;

    use super::*;

    fn case() -> (tempfile::TempDir, Directories) {
        let dir = tempfile::tempdir().unwrap();
        let directories = Directories::open(dir.path()).unwrap();
        (dir, directories)
    }

    fn create(name: &str, label: &str) -> VolumeCreate {
        let labels = vec![("k".to_owned(), label.to_owned())];
        VolumeCreate { name: VolumeName::parse(name).unwrap(), labels, size: None }
    }

    #[test]
    fn a_volume_is_created_once_and_keeps_its_labels_and_files() {
        let (_dir, directories) = case();
        let volumes = VolumeRecords::new(&directories, &Privileges::Root);
        let made = volumes.create(&create("cache", "first")).unwrap();
        fs::write(volumes.prepare("cache", None).unwrap().join("file"), "kept").unwrap();
        assert_eq!(volumes.create(&create("cache", "second")).unwrap(), made);
        assert_eq!(made.labels["k"], "first");
        assert_eq!(volumes.list().unwrap(), [made]);
        assert!(volumes.prepare("cache", None).unwrap().join("file").exists());
        volumes.remove("cache").unwrap();
        volumes.remove("cache").unwrap();
        assert_eq!((volumes.list().unwrap(), fs::read_dir(directories.trash()).unwrap().count()), (vec![], 0));
        assert!(volumes.prepare("cache", None).is_err());
    }

    #[test]
    fn no_name_leads_out_of_the_volumes() {
        let (dir, directories) = case();
        let volumes = VolumeRecords::new(&directories, &Privileges::Root);
        fs::create_dir_all(dir.path().join("x")).unwrap();
        fs::write(dir.path().join("x").join(RECORD), r#"{"labels":{},"created":""}"#).unwrap();
        for name in ["../x", "..", "", "."] {
            volumes.remove(name).unwrap();
            assert!(volumes.prepare(name, None).is_err(), "{name}");
        }
        assert!(dir.path().join("x").exists());
    }

    #[test]
    fn a_volume_that_a_container_has_stays() {
        let (_dir, directories) = case();
        let volumes = VolumeRecords::new(&directories, &Privileges::Root);
        volumes.create(&create("cache", "")).unwrap();
        let config = crate::config::example(vec![MountConfig::Volume {
            name: "cache".into(),
            target: "/cache".into(),
            writable: true,
            as_in_image: false,
        }]);
        let container = directories.containers().join(config.id.as_str());
        fs::create_dir(&container).unwrap();
        fs::write(container.join("config.json"), serde_json::to_vec(&config).unwrap()).unwrap();
        assert!(matches!(volumes.remove("cache"), Err(Error::Engine { .. })));
        fs::remove_dir_all(&container).unwrap();
        volumes.remove("cache").unwrap();
    }
}
