//! Networks and volumes of a stack.

use std::collections::BTreeMap;

use coracle_runtime::stack_model::Network;
use coracle_runtime::{NetworkCreate, StackUp, VolumeCreate};
use coracle_types::{Error, NetworkName, Result, VolumeName};

use super::{labels, refused};
use crate::engine::Engine;
use crate::network::NetworkRecords;
use crate::volume::VolumeRecords;

/// What the engine calls a network of the file.
pub(super) fn network_name(stack: &StackUp, name: &str) -> String {
    stack.model.networks.get(name).cloned().unwrap_or_default().engine_name(&stack.project, name)
}

/// Creates missing networks and volumes. External ones must exist.
pub(super) async fn create(engine: &Engine, stack: &StackUp) -> Result<()> {
    for (key, network) in stack.model.networks.iter().filter(|(_, network)| !network.external) {
        create_network(engine, stack, key, network).await?;
    }
    let records = VolumeRecords::new(&engine.directories, &engine.privileges);
    for (key, volume) in &stack.model.volumes {
        let name = volume.engine_name(&stack.project, key);
        if volume.external {
            records.find(&name)?.ok_or_else(|| refused(&format!("there is no volume `{name}`")))?;
            continue;
        }
        create_volume(engine, &name, labels_of(stack, &volume.labels, labels::VOLUME, key))?;
    }
    Ok(())
}

/// Creates an anonymous volume, which is removed with its stack.
pub(super) fn create_anonymous(engine: &Engine, stack: &StackUp, name: &str) -> Result<()> {
    create_volume(engine, name, BTreeMap::from([(labels::PROJECT.to_owned(), stack.project.to_string())]))
}

fn create_volume(engine: &Engine, name: &str, labels: BTreeMap<String, String>) -> Result<()> {
    let name = VolumeName::parse(name).map_err(|err| refused(&err.to_string()))?;
    let volume = VolumeCreate { name, labels: labels.into_iter().collect(), size: None };
    VolumeRecords::new(&engine.directories, &engine.privileges).create(&volume).map(drop)
}

async fn create_network(engine: &Engine, stack: &StackUp, key: &str, entry: &Network) -> Result<()> {
    if !engine.privileges.is_root() {
        return Err(crate::error::unsupported(coracle_types::Capability::NamedNetwork));
    }
    let name = NetworkName::parse(entry.engine_name(&stack.project, key)).map_err(|err| refused(&err.to_string()))?;
    let records = NetworkRecords::new(&engine.directories);
    let labels = labels_of(stack, &entry.labels, labels::NETWORK, key);
    let network = NetworkCreate { name, labels: labels.into_iter().collect(), reach: true, internal: entry.internal };
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

type Labels = BTreeMap<String, String>;

fn labels_of(stack: &StackUp, of_file: &Labels, kind: &str, key: &str) -> Labels {
    let mut labels = of_file.clone();
    labels.insert(labels::PROJECT.into(), stack.project.to_string());
    labels.insert(kind.to_owned(), key.to_owned());
    labels
}
