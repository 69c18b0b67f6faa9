//! Tests that unreadable and newer records of containers, volumes and networks are not lost, and nothing in use is removed.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_runtime::{ContainerRuntime as _, LabelFilter, NetworkCreate, Networks as _, VolumeCreate, Volumes as _};
use coracle_types::{ContainerId, Error, Handle, NetworkName, Result, StoredFileError, VolumeName};
use serde_json::Value;
use tokio::time::timeout;

use super::EmbeddedRuntime;
use crate::EngineOptions;
use crate::config::{ContainerConfig, MountConfig, example};
use crate::container::{add, lock_names};

const VOLUME: &str = "work";

async fn create_volume(runtime: &EmbeddedRuntime) {
    let volume = VolumeCreate { name: VolumeName::parse(VOLUME).unwrap(), labels: Vec::new(), size: None };
    runtime.create_volume(&volume).await.unwrap();
}

fn with_volume() -> ContainerConfig {
    let (name, target) = (VOLUME.to_owned(), "/work".to_owned());
    example(vec![MountConfig::Volume { name, target, writable: true, as_in_image: false }])
}

/// A record, and how to remove the object that it describes.
struct Stored {
    file: PathBuf,
    /// A field that cannot be a string.
    field: &'static str,
    removal: Removal,
}

enum Removal {
    Container(ContainerId),
    Volume,
    Network(String),
}

impl Removal {
    async fn try_on(&self, runtime: &EmbeddedRuntime) -> Result<()> {
        match self {
            Self::Container(id) => runtime.remove(id).await.map(drop),
            Self::Volume => runtime.remove_volume(VOLUME).await,
            Self::Network(id) => runtime.remove_network(id).await,
        }
    }
}

/// The errors of everything that reads records.
async fn errors_of_looks(runtime: &EmbeddedRuntime, id: &ContainerId) -> Vec<Error> {
    let all = LabelFilter::default();
    let results: [Result<()>; 5] = [
        runtime.list(&all).await.map(drop),
        runtime.inspect(&Handle::from(id)).await.map(drop),
        runtime.list_volumes(&all).await.map(drop),
        runtime.list_networks(&all).await.map(drop),
        runtime.remove_volume(VOLUME).await,
    ];
    results.into_iter().filter_map(Result::err).collect()
}

fn names(err: &Error, file: &Path) -> bool {
    matches!(err, Error::Host { source, .. } if source.to_string().contains(&*file.to_string_lossy()))
}

#[tokio::test]
async fn an_unreadable_record_is_named_and_its_object_is_not_removed() {
    if !coracle_skips::has_root() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let runtime = EmbeddedRuntime::open(EngineOptions::example(dir.path())).unwrap();
    create_volume(&runtime).await;
    let config = with_volume();
    add(runtime.engine(), &config, |_| Ok(())).await.unwrap();
    let network =
        NetworkCreate { name: NetworkName::parse("net").unwrap(), labels: Vec::new(), internal: true, reach: true };
    let network = runtime.create_network(&network).await.unwrap();
    let directories = &runtime.engine().directories;
    let stored = [
        Stored {
            file: directories.containers().join(config.id.as_str()).join("config.json"),
            field: "init",
            removal: Removal::Container(config.id.clone()),
        },
        Stored {
            file: directories.volumes().join(VOLUME).join("volume.json"),
            field: "labels",
            removal: Removal::Volume,
        },
        Stored {
            file: directories.networks().join(format!("{}.json", network.id)),
            field: "subnet",
            removal: Removal::Network(network.id),
        },
    ];
    for Stored { file, field, removal } in &stored {
        let whole = std::fs::read(file).unwrap();
        let changed = |name: &str, content: Value| {
            let mut record: Value = serde_json::from_slice(&whole).unwrap();
            record[name] = content;
            serde_json::to_vec(&record).unwrap()
        };
        let unreadable = [changed("schema", 2.into()), changed(field, "invented_later".into()), b"half".to_vec()];
        for (at, bytes) in unreadable.iter().enumerate() {
            std::fs::write(file, bytes).unwrap();
            let mut errors = errors_of_looks(&runtime, &config.id).await;
            let removed = removal.try_on(&runtime).await;
            assert!(removed.as_ref().is_err_and(|err| names(err, file)), "{}: {removed:?}", file.display());
            errors.extend(removed.err());
            let named: Vec<_> = errors.iter().filter(|err| names(err, file)).collect();
            assert!(named.len() > 1, "{}: {errors:?}", file.display());
            let is_newer = |err: &&Error| match err {
                Error::Host { source, .. } => StoredFileError::newer_file(source) == Some(file.as_path()),
                _ => false,
            };
            assert!(named.iter().all(is_newer) == (at < 2), "{named:?}");
            assert_eq!(std::fs::read(file).unwrap(), *bytes, "{errors:?}");
            for other in &stored {
                assert!(other.file.exists(), "{}: {errors:?}", other.file.display());
            }
            assert!(directories.volumes().join(VOLUME).join("_data").is_dir());
        }
        std::fs::write(file, changed("later", 1.into())).unwrap();
        assert_eq!(runtime.list(&LabelFilter::default()).await.unwrap().len(), 1);
        assert!(runtime.list_volumes(&LabelFilter::default()).await.unwrap().len() == 1);
        assert!(runtime.list_networks(&LabelFilter::default()).await.unwrap().len() == 1);
        std::fs::write(file, &whole).unwrap();
    }
    // If the list omitted the container, it would count as removed.
    std::fs::write(&stored[0].file, "half").unwrap();
    assert!(runtime.list(&LabelFilter::default()).await.is_err_and(|err| names(&err, &stored[0].file)));
    assert!(runtime.remove_volume(VOLUME).await.is_err_and(|err| names(&err, &stored[0].file)));
}

#[tokio::test]
async fn removing_a_volume_waits_for_the_creation_of_a_container() {
    let dir = tempfile::tempdir().unwrap();
    let [publisher, remover] = [(); 2].map(|()| EmbeddedRuntime::open(EngineOptions::example(dir.path())).unwrap());
    create_volume(&publisher).await;
    let names = lock_names(publisher.engine(), "create").await.unwrap();
    let mut removal = tokio::spawn(async move { remover.remove_volume(VOLUME).await });
    assert!(timeout(Duration::from_millis(500), &mut removal).await.is_err(), "it waits for the lock of names");
    drop(names);
    removal.await.unwrap().unwrap();
}
