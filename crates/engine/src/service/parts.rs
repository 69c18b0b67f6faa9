//! Networks and volumes of a stack.

use std::collections::BTreeMap;

use coracle_runtime::{Error, NetworkCreate, NetworkName, ProjectName, Result, StackUp, VolumeCreate, VolumeName};
use serde_json::Value;

use super::config::full_name;
use super::{labels, refused};
use crate::engine::Engine;
use crate::network::NetworkRecords;
use crate::volume::VolumeRecords;

/// What the engine calls a network of the file.
pub(super) fn network_name(stack: &StackUp, name: &str) -> String {
    engine_name(&stack.project, name, &stack.model["networks"][name])
}

fn engine_name(project: &ProjectName, name: &str, entry: &Value) -> String {
    entry["name"].as_str().map_or_else(|| full_name(project, name), str::to_owned)
}

/// Creates what is missing. External ones have to be there.
pub(super) async fn create(engine: &Engine, stack: &StackUp) -> Result<()> {
    for (name, entry) in stack.model["networks"].as_object().into_iter().flatten() {
        if entry["external"] != true {
            create_network(engine, stack, name, entry).await?;
        }
    }
    let records = VolumeRecords::new(&engine.directories, &engine.privileges);
    for (key, entry) in stack.model["volumes"].as_object().into_iter().flatten() {
        let name = engine_name(&stack.project, key, entry);
        if entry["external"] == true {
            records.find(&name)?.ok_or_else(|| refused(&format!("there is no volume `{name}`")))?;
            continue;
        }
        create_volume(engine, &name, labels_of(stack, entry, labels::VOLUME, key))?;
    }
    Ok(())
}

/// A volume that has no name in the file; it goes with its stack.
pub(super) fn create_anonymous(engine: &Engine, stack: &StackUp, name: &str) -> Result<()> {
    create_volume(engine, name, BTreeMap::from([(labels::PROJECT.to_owned(), stack.project.to_string())]))
}

fn create_volume(engine: &Engine, name: &str, labels: BTreeMap<String, String>) -> Result<()> {
    let name = VolumeName::parse(name).map_err(|err| refused(&err.to_string()))?;
    let volume = VolumeCreate { name, labels: labels.into_iter().collect(), size: None };
    VolumeRecords::new(&engine.directories, &engine.privileges).create(&volume).map(drop)
}

async fn create_network(engine: &Engine, stack: &StackUp, key: &str, entry: &Value) -> Result<()> {
    if !engine.privileges.is_root() {
        return Err(crate::error::unsupported(coracle_runtime::Capability::NamedNetwork));
    }
    let name = NetworkName::parse(engine_name(&stack.project, key, entry)).map_err(|err| refused(&err.to_string()))?;
    let records = NetworkRecords::new(&engine.directories);
    let labels = labels_of(stack, entry, labels::NETWORK, key);
    let network =
        NetworkCreate { name, labels: labels.into_iter().collect(), reach: true, internal: entry["internal"] == true };
    match records.create(&network).await {
        Err(Error::NetworkTaken(name)) => {
            let taken = records.find(name.as_str())?;
            let ours =
                taken.is_some_and(|it| it.labels.get(labels::PROJECT).is_some_and(|it| *it == *stack.project.as_str()));
            if ours { Ok(()) } else { Err(Error::NetworkTaken(name)) }
        }
        created => created.map(drop),
    }
}

fn labels_of(stack: &StackUp, entry: &Value, kind: &str, key: &str) -> BTreeMap<String, String> {
    let mut labels = labels::of_file(entry);
    labels.insert(labels::PROJECT.into(), stack.project.to_string());
    labels.insert(kind.to_owned(), key.to_owned());
    labels
}
