//! Networks and volumes, which the engine lists and does not filter.

use async_trait::async_trait;
use coracle_engine_program::{EngineProgram, deadline};
use coracle_runtime::{LabelFilter, Network, NetworkCreate, Networks, Volume, VolumeCreate, Volumes};
use coracle_types::{Capability, EngineKind, Error, NetworkName, Result};

use crate::query::query;
use crate::{AppleRuntime, args as words, read as answers};

#[async_trait]
impl Networks for AppleRuntime {
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>> {
        find_network(&self.program, name.as_str()).await
    }

    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        let mut found = all_networks(&self.program).await?;
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    async fn create_network(&self, network: &NetworkCreate) -> Result<Network> {
        let name = &network.name;
        if !network.reach {
            return Err(Error::Unsupported { engine: EngineKind::Container, capability: Capability::PartedNetwork });
        }
        let it = words::create_network(name.as_str(), &network.labels, network.internal)?;
        if self.find_network(name).await?.is_some() {
            return Err(Error::NetworkTaken(name.clone()));
        }
        let created = query(&self.program, "network create", it, deadline::NETWORK).await;
        match (created, self.find_network(name).await?) {
            (Ok(_), Some(network)) => Ok(network),
            (Ok(_), None) => Err(Error::Unreadable { verb: "network create", detail: "no network".into() }),
            (Err(_), Some(_)) => Err(Error::NetworkTaken(name.clone())),
            (Err(failure), None) => Err(failure),
        }
    }

    async fn remove_network(&self, handle: &str) -> Result<()> {
        let it = words::delete_network(handle)?;
        let exists = async || Ok::<_, Error>(find_network(&self.program, handle).await?.is_some());
        if !exists().await? {
            return Ok(());
        }
        match query(&self.program, "network delete", it, deadline::NETWORK).await {
            Err(failure) if exists().await? => Err(failure),
            _ => Ok(()),
        }
    }
}

#[async_trait]
impl Volumes for AppleRuntime {
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        let mut found = all_volumes(&self.program).await?;
        found.retain(|it| filter.admits(&it.labels));
        Ok(found)
    }

    async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        let name = volume.name.as_str();
        if let Some(existing) = find_volume(&self.program, name).await? {
            return Ok(existing);
        }
        let it = words::create_volume(name, &volume.labels, volume.size)?;
        query(&self.program, "volume create", it, deadline::NETWORK).await?;
        let missing = Error::Unreadable { verb: "volume create", detail: "no volume".into() };
        find_volume(&self.program, name).await?.ok_or(missing)
    }

    async fn remove_volume(&self, name: &str) -> Result<()> {
        let it = words::delete_volume(name)?;
        if find_volume(&self.program, name).await?.is_none() {
            return Ok(());
        }
        match query(&self.program, "volume delete", it, deadline::REMOVE).await {
            Err(failure) if find_volume(&self.program, name).await?.is_some() => Err(failure),
            _ => Ok(()),
        }
    }
}

async fn all_volumes(program: &EngineProgram) -> Result<Vec<Volume>> {
    answers::volumes(&query(program, "volume list", words::volumes(), deadline::READ).await?.stdout.bytes())
}

async fn find_volume(program: &EngineProgram, name: &str) -> Result<Option<Volume>> {
    Ok(all_volumes(program).await?.into_iter().find(|it| it.name == name))
}

async fn all_networks(program: &EngineProgram) -> Result<Vec<Network>> {
    answers::networks(&query(program, "network list", words::networks(), deadline::NETWORK).await?.stdout.bytes())
}

async fn find_network(program: &EngineProgram, handle: &str) -> Result<Option<Network>> {
    Ok(all_networks(program).await?.into_iter().find(|it| it.id == handle || it.name == handle))
}
