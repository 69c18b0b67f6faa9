//! Creates containers under a free name, finds and lists them.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_host::lock::Lock;
use coracle_runtime::{LabelFilter, Placed};
use coracle_types::{ContainerId, ContainerName, Error, Handle, ImageId, ProcessId, Result};

use super::directory::ContainerDir;
use super::from_spec::config_of;
use super::host_error;
use super::state::State;
use crate::config::{ContainerConfig, MountConfig};
use crate::engine::Engine;
use crate::error::refused;
use crate::pending::Operation;
use crate::volume::VolumeRecords;

/// Timeout for the lock of the names, which is only held for microseconds.
const NAMES_TIMEOUT: Duration = Duration::from_secs(10);

/// A container as it is on the disk.
#[derive(Clone, Debug)]
pub(crate) struct StoredContainer {
    pub(crate) config: ContainerConfig,
    pub(crate) dir: ContainerDir,
}

impl StoredContainer {
    pub(crate) fn state(&self) -> Result<State> {
        State::read(&self.dir).map_err(host_error("cannot read the state of the container"))
    }

    /// Whether the start of PID 1 is complete. Until then, it may still have the host's root directory, so no process may
    /// enter its namespaces.
    ///
    /// Read the state first: a start removes the record of the last run before it creates a process. With an OCI runtime,
    /// the container's program starts only after the network was recorded.
    pub(super) fn is_start_complete(&self) -> bool {
        self.dir.network_file().exists() && !self.dir.starting_file().exists()
    }

    /// PID 1, if it runs.
    pub(crate) fn process(&self) -> Result<Option<ProcessId>> {
        Ok(self.state()?.process().cloned())
    }
}

/// The path of the link from a name to an id.
fn name_link(engine: &Engine, name: &ContainerName) -> PathBuf {
    engine.directories.containers().join("names").join(name.as_str())
}

/// Creates the directory of a container, which appears complete and under its name in one step.
pub(crate) async fn create(engine: &Engine, placed: &Placed) -> Result<ContainerId> {
    let missing = || no_such_image("create", placed.image());
    let hold = engine.store.hold(placed.image())?.ok_or_else(missing)?;
    let image = engine.store.image(placed.image())?.ok_or_else(missing)?;
    let config = config_of(engine, placed, &image)?;
    add(engine, &config, |_| Ok(())).await?;
    drop(hold);
    Ok(config.id)
}

/// Creates a container of that configuration. `write_files` fills the directory of the container's own files before the
/// container becomes visible.
pub(crate) async fn add(
    engine: &Engine,
    config: &ContainerConfig,
    write_files: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<()> {
    let pending = engine.pending.begin(&Operation::CreateContainer(config.id.clone()))?;
    let added = match prepare_with_files(engine, config, write_files) {
        Ok(aside) => publish(engine, config, &aside).await,
        Err(err) => Err(err),
    };
    pending.finish();
    added
}

fn prepare_with_files(
    engine: &Engine,
    config: &ContainerConfig,
    write_files: impl FnOnce(&Path) -> io::Result<()>,
) -> Result<ContainerDir> {
    let aside = prepare(engine, config)?;
    if let Err(err) = write_files(&aside.files()) {
        discard(engine, &aside);
        return Err(host_error(format!("cannot write the files of the container `{}`", config.name))(err));
    }
    Ok(aside)
}

/// Creates the directory of a container next to those of published containers. [`publish`] makes it visible.
pub(super) fn prepare(engine: &Engine, config: &ContainerConfig) -> Result<ContainerDir> {
    let aside = ContainerDir::at(engine.directories.containers().join(format!("{}.new", config.id)));
    let made = ContainerDir::create(aside.path().to_owned()).and_then(|it| it.write_config(config));
    if made.is_err() {
        discard(engine, &aside);
    }
    made.map_err(host_error(format!("cannot create the container `{}`", config.name)))?;
    Ok(aside)
}

/// Deletes a directory that was not published. Uses the trash, since the tree of a copied container may be deep.
pub(super) fn discard(engine: &Engine, aside: &ContainerDir) {
    if let Err(err) = engine.trash.discard(aside.path()) {
        tracing::debug!(%err, "an unpublished directory stays in the trash for now");
    }
}

/// Makes a prepared directory visible as a container, or discards it.
pub(super) async fn publish(engine: &Engine, config: &ContainerConfig, aside: &ContainerDir) -> Result<()> {
    let published = rename_into_place(engine, config, aside.path()).await;
    if published.is_err() {
        discard(engine, aside);
    }
    published
}

async fn rename_into_place(engine: &Engine, config: &ContainerConfig, aside: &Path) -> Result<()> {
    let what = || format!("cannot publish the container `{}`", config.name);
    let containers = engine.directories.containers();
    let _names = lock_names(engine, "create").await?;
    let link = name_link(engine, &config.name);
    if owner_of_name(engine, &config.name).map_err(host_error(what()))?.is_some() {
        return Err(Error::NameTaken(config.name.clone()));
    }
    check_volumes(engine, config)?;
    // A link that a killed process left without its container.
    let _ = std::fs::remove_file(&link);
    std::os::unix::fs::symlink(config.id.as_str(), &link).map_err(host_error(what()))?;
    std::fs::rename(aside, containers.join(config.id.as_str())).map_err(host_error(what()))
}

/// Checks that the volumes exist, since they may have been removed after the request was read.
fn check_volumes(engine: &Engine, config: &ContainerConfig) -> Result<()> {
    let volumes = VolumeRecords::new(&engine.directories, &engine.privileges);
    for mount in &config.mounts {
        if let MountConfig::Volume { name, .. } = mount
            && volumes.find(name)?.is_none()
        {
            return Err(refused("create", format_args!("no volume `{name}`")));
        }
    }
    Ok(())
}

/// Locks the names of containers, for the operation `verb`.
pub(crate) async fn lock_names(engine: &Engine, verb: &'static str) -> Result<Lock> {
    let path = engine.directories.containers().join("names.lock");
    let taken = Lock::take(&path, NAMES_TIMEOUT).await.map_err(host_error("cannot lock the names of containers"))?;
    taken.ok_or(Error::TimedOut { verb, after: NAMES_TIMEOUT })
}

pub(super) fn release_name(engine: &Engine, config: &ContainerConfig) {
    let link = name_link(engine, &config.name);
    if std::fs::read_link(&link).is_ok_and(|it| it.as_os_str() == config.id.as_str()) {
        let _ = std::fs::remove_file(link);
    }
}

fn owner_of_name(engine: &Engine, name: &ContainerName) -> io::Result<Option<String>> {
    let id = match std::fs::read_link(name_link(engine, name)) {
        Ok(id) => id,
        Err(err) if err.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(err) => return Err(err),
    };
    Ok(engine.directories.containers().join(&id).is_dir().then(|| id.to_string_lossy().into_owned()))
}

/// Finds a container by its name or the first digits of its id.
///
/// # Errors
/// [`Error::NoSuchContainer`].
pub(crate) fn find(engine: &Engine, handle: &Handle) -> Result<StoredContainer> {
    let missing = || Error::NoSuchContainer(handle.to_string());
    let failed = || host_error("cannot read the containers");
    let id = match handle {
        Handle::Name(name) => owner_of_name(engine, name).map_err(failed())?,
        Handle::IdPrefix(digits) => id_of_prefix(engine, digits).map_err(failed())?,
    };
    stored(engine, &id.ok_or_else(missing)?).map_err(failed())?.ok_or_else(missing)
}

fn id_of_prefix(engine: &Engine, digits: &str) -> io::Result<Option<String>> {
    let containers = engine.directories.containers();
    if ContainerId::parse(digits).is_ok() && containers.join(digits).is_dir() {
        return Ok(Some(digits.to_owned()));
    }
    let mut matching = ids(engine)?.into_iter().filter(|it| it.starts_with(digits));
    let (found, another) = (matching.next(), matching.next());
    Ok(found.filter(|_| another.is_none()))
}

/// The full ids of all containers.
pub(crate) fn ids(engine: &Engine) -> io::Result<Vec<String>> {
    let entries = std::fs::read_dir(engine.directories.containers())?;
    let names = entries.filter_map(|it| it.ok()?.file_name().into_string().ok());
    Ok(names.filter(|it| it.len() == 64 && it.bytes().all(|it| it.is_ascii_hexdigit())).collect())
}

/// Reads a container. `None` if it is being removed, or if a crash of the machine left it without its configuration.
///
/// # Errors
/// `InvalidData` if its configuration cannot be read.
pub(crate) fn stored(engine: &Engine, id: &str) -> io::Result<Option<StoredContainer>> {
    let dir = ContainerDir::at(engine.directories.containers().join(id));
    Ok(dir.config()?.map(|config| StoredContainer { config, dir }))
}

/// Lists the containers that have all of these labels.
///
/// # Errors
/// If the configuration of one cannot be read. It is not skipped, since callers take a missing container for a removed one.
pub(crate) fn list(engine: &Engine, filter: &LabelFilter) -> Result<Vec<StoredContainer>> {
    let failed = || host_error("cannot read the containers");
    let mut found = Vec::new();
    for id in ids(engine).map_err(failed())? {
        found.extend(stored(engine, &id).map_err(failed())?.filter(|it| filter.admits(&it.config.labels)));
    }
    Ok(found)
}

/// Returns the directories of an image's layers, the topmost first. `verb` names the operation in errors.
pub(super) fn layer_dirs(engine: &Engine, image: &ImageId, verb: &'static str) -> Result<Vec<PathBuf>> {
    engine.store.layer_dirs(image)?.ok_or_else(|| no_such_image(verb, image))
}

pub(super) fn no_such_image(verb: &'static str, image: &ImageId) -> Error {
    refused(verb, format_args!("no image `{image}` in this engine"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{EmbeddedRuntime, EngineOptions};

    #[tokio::test]
    async fn a_container_whose_files_cannot_be_written_is_not_created() {
        let dir = tempfile::tempdir().unwrap();
        let runtime = EmbeddedRuntime::open(EngineOptions::example(dir.path())).unwrap();
        let (engine, config) = (runtime.engine(), crate::config::example(Vec::new()));
        let failed = add(engine, &config, |dir| {
            std::fs::write(dir.join("half"), "")?;
            Err(io::ErrorKind::StorageFull.into())
        });
        assert!(matches!(failed.await, Err(Error::Host { .. })));
        assert_eq!(ids(engine).unwrap(), [] as [&str; 0]);
        // Its name is free.
        add(engine, &config, |dir| std::fs::write(dir.join("whole"), "")).await.unwrap();
        let found = find(engine, &Handle::from(&config.id)).unwrap();
        assert!(found.dir.files().join("whole").exists() && !found.dir.files().join("half").exists());
    }
}
