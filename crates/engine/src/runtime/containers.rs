//! Containers.

use std::fs::File;
use std::time::Duration;

use async_trait::async_trait;
use coracle_runtime::{
    Capability, Container, ContainerId, ContainerPath, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo,
    EngineKind, Error, Exec, ExecOutput, Handle, LabelFilter, Link, LinkSettings, Placed, RemovalOutcome, Result,
    SocketAt,
};

use super::{EmbeddedRuntime, unsupported};

#[async_trait]
impl ContainerRuntime for EmbeddedRuntime {
    fn kind(&self) -> EngineKind {
        EngineKind::Embedded
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { address: "local".into(), rootless: false }
    }

    async fn info(&self) -> Result<EngineInfo> {
        Err(unsupported(Capability::Guest))
    }

    async fn create(&self, _spec: &Placed) -> Result<ContainerId> {
        Err(unsupported(Capability::Guest))
    }

    async fn start(&self, _id: &ContainerId) -> Result<()> {
        Err(unsupported(Capability::Guest))
    }

    async fn stop(&self, _id: &ContainerId, _grace: Duration) -> Result<()> {
        Err(unsupported(Capability::Guest))
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        Err(Error::NoSuchContainer(handle.to_string()))
    }

    async fn list(&self, _filter: &LabelFilter) -> Result<Vec<Container>> {
        Ok(Vec::new())
    }

    async fn usage(&self, _id: &ContainerId) -> Result<Option<ContainerUsage>> {
        Ok(None)
    }

    async fn remove(&self, _id: &ContainerId) -> Result<RemovalOutcome> {
        Ok(RemovalOutcome::AlreadyGone)
    }

    async fn exec(&self, _id: &ContainerId, _exec: Exec) -> Result<ExecOutput> {
        Err(unsupported(Capability::Guest))
    }

    async fn link(&self, _id: &ContainerId, _socket: Option<&SocketAt>, _settings: LinkSettings) -> Result<Link> {
        Err(unsupported(Capability::Guest))
    }

    async fn upload(&self, _id: &ContainerId, _at: &ContainerPath, _tar: File) -> Result<()> {
        Err(unsupported(Capability::CopyTar))
    }

    async fn download(&self, _id: &ContainerId, _path: &ContainerPath, _into: File, _max_bytes: u64) -> Result<()> {
        Err(unsupported(Capability::CopyTar))
    }
}
