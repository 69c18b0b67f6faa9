//! Networks and volumes, which the engine lists and does not filter.

use super::{args as words, ask, read as answers};
use crate::program::{EngineProgram, deadline};
use crate::{Capability, EngineKind, Error, Network, NetworkAct, Result, Volume, VolumeAct};

pub(super) async fn network(program: &EngineProgram, act: NetworkAct) -> Result<Vec<Network>> {
    match act {
        NetworkAct::Find(name) => Ok(find_network(program, name.as_str()).await?.into_iter().collect()),
        NetworkAct::Create { reach: false, .. } => {
            Err(Error::Unsupported { engine: EngineKind::Container, capability: Capability::PartedNetwork })
        }
        NetworkAct::Create { name, labels, internal, .. } => {
            let it = words::create_network(name.as_str(), &labels, internal)?;
            if find_network(program, name.as_str()).await?.is_some() {
                return Err(Error::NetworkTaken(name));
            }
            match ask(program, "network create", it, deadline::NETWORK).await {
                Ok(_) => Ok(find_network(program, name.as_str()).await?.into_iter().collect()),
                Err(_) if find_network(program, name.as_str()).await?.is_some() => Err(Error::NetworkTaken(name)),
                Err(failure) => Err(failure),
            }
        }
        NetworkAct::List(filter) => {
            let mut found = all_networks(program).await?;
            found.retain(|it| filter.admits(&it.labels));
            Ok(found)
        }
        NetworkAct::Remove(id) => {
            let it = words::delete_network(&id)?;
            let Some(_) = find_network(program, &id).await? else { return Ok(Vec::new()) };
            match ask(program, "network delete", it, deadline::NETWORK).await {
                Err(failure) if find_network(program, &id).await?.is_some() => Err(failure),
                _ => Ok(Vec::new()),
            }
        }
    }
}

async fn all_networks(program: &EngineProgram) -> Result<Vec<Network>> {
    answers::networks(&ask(program, "network list", words::networks(), deadline::NETWORK).await?.stdout.bytes())
}

async fn find_network(program: &EngineProgram, handle: &str) -> Result<Option<Network>> {
    Ok(all_networks(program).await?.into_iter().find(|it| it.id == handle || it.name == handle))
}

pub(super) async fn volume(program: &EngineProgram, act: VolumeAct) -> Result<Vec<Volume>> {
    let all =
        async || answers::volumes(&ask(program, "volume list", words::volumes(), deadline::READ).await?.stdout.bytes());
    match act {
        VolumeAct::Create { name, labels, size } => {
            let there = all().await?.into_iter().filter(|it| it.name == name.as_str()).collect::<Vec<_>>();
            if !there.is_empty() {
                return Ok(there);
            }
            let it = words::create_volume(name.as_str(), &labels, size)?;
            ask(program, "volume create", it, deadline::NETWORK).await?;
            Ok(all().await?.into_iter().filter(|it| it.name == name.as_str()).collect())
        }
        VolumeAct::List(filter) => {
            let mut found = all().await?;
            found.retain(|it| filter.admits(&it.labels));
            Ok(found)
        }
        VolumeAct::Remove(name) => {
            let it = words::delete_volume(&name)?;
            let there = async || Ok::<_, Error>(all().await?.iter().any(|it| it.name == name));
            if !there().await? {
                return Ok(Vec::new());
            }
            match ask(program, "volume delete", it, deadline::REMOVE).await {
                Err(failure) if there().await? => Err(failure),
                _ => Ok(Vec::new()),
            }
        }
    }
}
