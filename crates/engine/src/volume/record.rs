//! The volumes of a data directory: records, creation and removal.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use coracle_runtime::{Volume, VolumeCreate};
use coracle_types::{Error, Result, parse_stored, random_hex};
use rustix::fs::syncfs;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::image_content::{self, ImageDirectory};
use crate::config::{ContainerConfig, MountConfig};
use crate::directories::Directories;
use crate::error::refused;
use crate::ids::Privileges;
use crate::owner;
use crate::pending::{Operation, PendingOperations};
use crate::trash::Trash;

const RECORD: &str = "volume.json";
const DATA: &str = "_data";

/// The lock that is held while the volume is filled.
const LOCK: &str = "lock";

/// Marks the name of a directory that is incomplete or about to be deleted. No volume's name contains it.
const UNFINISHED: &str = ".new-";

/// The record of a volume, written at its creation.
#[derive(Debug, Serialize, Deserialize)]
struct VolumeRecord {
    labels: BTreeMap<String, String>,
    created: String,
    /// Whether it has been filled from an image, which happens only once.
    #[serde(default)]
    filled: bool,
    /// Fields of a later version.
    #[serde(flatten)]
    later: Map<String, Value>,
}

impl VolumeRecord {
    fn read(volume: &Path) -> io::Result<Self> {
        let file = volume.join(RECORD);
        Ok(parse_stored(&file, &fs::read(&file)?)?)
    }

    fn write(&self, volume: &Path) -> io::Result<()> {
        coracle_host::fs::replace(&volume.join(RECORD), &serde_json::to_vec(self)?)
    }

    /// Syncs the names of its files first: otherwise it could count as filled without them after a power loss.
    fn write_filled(self, volume: &Path) -> io::Result<()> {
        syncfs(File::open(volume)?)?;
        Self { filled: true, ..self }.write(volume)
    }
}

/// The lock of a volume, until it is dropped.
#[derive(Debug)]
struct VolumeLock(File);

impl VolumeLock {
    /// Blocks until the lock is free.
    fn take(volume: &Path) -> io::Result<Self> {
        let path = volume.join(LOCK);
        let file = File::options().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)?;
        file.lock()?;
        Ok(Self(file))
    }
}

impl Drop for VolumeLock {
    fn drop(&mut self) {
        // Unlocked explicitly: a child that was forked meanwhile has a duplicate, which would still hold the lock.
        let _ = self.0.unlock();
    }
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

    /// Lists all volumes, sorted by name.
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

    /// Finds a volume by its name.
    pub(crate) fn find(&self, name: &str) -> Result<Option<Volume>> {
        if !is_name(name) {
            return Ok(None);
        }
        let record = match VolumeRecord::read(&self.directories.volumes().join(name)) {
            Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
            record => record.map_err(unreadable)?,
        };
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
            filled: false,
            later: Map::new(),
        };
        let failed = |source| Error::Host { what: format!("cannot create the volume `{name}`"), source };
        let pending = self.pending().begin(&Operation::Volumes)?;
        self.publish(name, &record).map_err(failed)?;
        pending.finish();
        self.find(name)?.ok_or_else(|| failed(io::ErrorKind::NotFound.into()))
    }

    /// Creates the volume under a temporary name, and renames it. If another process was first, its volume stays.
    fn publish(&self, name: &str, record: &VolumeRecord) -> io::Result<()> {
        let volumes = self.directories.volumes();
        let aside = volumes.join(format!("{name}{UNFINISHED}{}.{}", owner::this_process(), random_hex::<8>()));
        fs::create_dir(&aside)?;
        record.write(&aside)?;
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
    /// `Engine` if a container uses the volume, running or not.
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

    /// Removes volumes whose creation dead processes did not finish, and finishes filling others.
    ///
    /// # Errors
    /// If one cannot be removed.
    pub(crate) fn repair(&self) -> Result<()> {
        let failed = |source| Error::Host { what: "cannot repair volumes".into(), source };
        for entry in fs::read_dir(self.directories.volumes()).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            match path.file_name().and_then(|it| it.to_str()?.split_once(UNFINISHED)) {
                Some((_, maker)) if owner::maker_has_died(maker) => self.trash().discard(&path).map_err(failed)?,
                Some(_) => {}
                None => self.repair_content(&path).map_err(failed)?,
            }
        }
        Ok(())
    }

    fn repair_content(&self, volume: &Path) -> io::Result<()> {
        // Checked before the lock is taken, which a process that copies may hold for long.
        if image_content::is_filling(volume) {
            let _lock = VolumeLock::take(volume)?;
            if self.privileges.run_as_owner(|| image_content::finish_filling(volume, &volume.join(DATA)))? {
                VolumeRecord::read(volume)?.write_filled(volume)?;
            }
        }
        self.privileges.run_as_owner(|| image_content::remove_unfinished(volume))
    }

    fn pending(&self) -> PendingOperations {
        PendingOperations::new(self.directories.pending())
    }

    fn trash(&self) -> Trash {
        Trash::new(self.directories, self.privileges)
    }

    /// Finds a container that mounts the volume.
    ///
    /// # Errors
    /// If the configuration of a container cannot be read, since it may mount the volume.
    fn user_of(&self, name: &str) -> io::Result<Option<String>> {
        for entry in fs::read_dir(self.directories.containers())? {
            // Skips `names`, and containers that are being created or removed.
            let file = entry?.path().join("config.json");
            let bytes = match fs::read(&file) {
                Err(err) if matches!(err.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => continue,
                bytes => bytes?,
            };
            let config: ContainerConfig = parse_stored(&file, &bytes)?;
            let is_it = |it: &MountConfig| matches!(it, MountConfig::Volume { name: it, .. } if it == name);
            if config.mounts.iter().any(is_it) {
                return Ok(Some(config.name.to_string()));
            }
        }
        Ok(None)
    }

    /// Returns the directory of a volume's files, for a mount. If `image` is set, an empty volume gets content, owner and mode
    /// of the image's directory, but only once.
    ///
    /// # Errors
    /// `NotFound` for a missing volume; other I/O errors.
    pub(crate) fn prepare(&self, name: &str, image: Option<&ImageDirectory<'_>>) -> io::Result<PathBuf> {
        if !is_name(name) {
            return Err(io::ErrorKind::NotFound.into());
        }
        let data = self.directories.volumes().join(name).join(DATA);
        fs::metadata(&data)?;
        if let Some(image) = image {
            self.fill(&self.directories.volumes().join(name), image)?;
        }
        Ok(data)
    }

    fn fill(&self, volume: &Path, image: &ImageDirectory<'_>) -> io::Result<()> {
        if VolumeRecord::read(volume)?.filled {
            return Ok(());
        }
        let _lock = VolumeLock::take(volume)?;
        let record = VolumeRecord::read(volume)?;
        if record.filled {
            return Ok(());
        }
        if self.privileges.run_as_owner(|| image_content::copy_into_empty(image, &volume.join(DATA)))? {
            record.write_filled(volume)?;
        }
        Ok(())
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
    use coracle_types::VolumeName;

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
    fn a_volume_is_filled_once_and_keeps_its_directory() {
        use std::os::unix::fs::MetadataExt as _;
        let (dir, directories) = case();
        let volumes = VolumeRecords::new(&directories, &Privileges::Root);
        volumes.create(&create("cache", "")).unwrap();
        let layer = dir.path().join("layer");
        fs::create_dir_all(layer.join("srv")).unwrap();
        fs::write(layer.join("srv/file"), "image").unwrap();
        let layers = [layer];
        let image = ImageDirectory { layers: &layers, target: "/srv" };
        let missing = ImageDirectory { layers: &layers, target: "/none" };
        let data = volumes.prepare("cache", Some(&missing)).unwrap();
        let made = data.metadata().unwrap().ino();
        volumes.prepare("cache", Some(&image)).unwrap();
        fs::remove_file(data.join("file")).unwrap();
        volumes.prepare("cache", Some(&image)).unwrap();
        assert_eq!((data.metadata().unwrap().ino(), fs::read_dir(&data).unwrap().count()), (made, 0));
        assert_eq!(volumes.find("cache").unwrap().unwrap().labels["k"], "");
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
