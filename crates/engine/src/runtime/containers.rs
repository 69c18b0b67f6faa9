//! Containers.

use std::fs::File;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_runtime::{
    Checkpoints, Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, LabelFilter, Placed, RemovalOutcome,
};
use coracle_types::{ContainerId, ContainerPath, EngineKind, Exec, ExecOutput, Handle, Result};

use super::EmbeddedRuntime;
use crate::blocking::blocking;
use crate::container::{self, ForkSource};
use crate::info::info;
use crate::repair::repair;
use crate::uninterrupted::uninterrupted;

#[async_trait]
impl ContainerRuntime for EmbeddedRuntime {
    fn kind(&self) -> EngineKind {
        EngineKind::Embedded
    }

    fn endpoint(&self) -> Endpoint {
        let privileges = &self.engine.privileges;
        Endpoint { address: "local".into(), rootless: !privileges.is_root(), single_user: privileges.has_single_user() }
    }

    async fn info(&self) -> Result<EngineInfo> {
        Ok(info(&self.engine))
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        repair(&self.engine).await;
        container::create(&self.engine, spec).await
    }

    async fn fork(&self, parent: &ContainerId, spec: &Placed) -> Result<ContainerId> {
        let (engine, parent, spec) = (self.engine.clone(), parent.clone(), spec.clone());
        uninterrupted("fork", async move { container::fork(&engine, &parent, ForkSource::Current, &spec).await }).await
    }

    fn as_checkpoints(&self) -> Option<&dyn Checkpoints> {
        Some(self)
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        let (engine, id) = (self.engine.clone(), id.clone());
        uninterrupted("start", async move { container::start(&engine, &id).await }).await
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        let (engine, id) = (self.engine.clone(), id.clone());
        uninterrupted("stop", async move { container::stop(&engine, &id, grace).await }).await
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        container::describe(&self.engine, &container::find(&self.engine, handle)?)
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        repair(&self.engine).await;
        let (engine, filter) = (self.engine.clone(), filter.clone());
        blocking("list containers", move || {
            container::list(&engine, &filter)?.iter().map(|it| container::describe(&engine, it)).collect()
        })
        .await
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>> {
        crate::usage::usage(&self.engine, id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome> {
        let (engine, id) = (self.engine.clone(), id.clone());
        uninterrupted("remove", async move { container::remove(&engine, &id).await }).await
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        container::exec(&self.engine, id, exec).await
    }

    async fn link(&self, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link> {
        Ok(super::link::link(self, id, socket, settings))
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        let (engine, at, stored) = (self.engine.clone(), at.clone(), container::find(&self.engine, &id.into())?);
        let lock = container::lock_at_rest(&self.engine, &stored, "copy").await?;
        let unpacked = blocking("upload", move || container::upload(&engine, &stored, &at, tar).map(|()| lock));
        unpacked.await.map(drop)
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        let (engine, path, stored) = (self.engine.clone(), path.clone(), container::find(&self.engine, &id.into())?);
        let lock = container::lock_at_rest(&self.engine, &stored, "copy").await?;
        let into = container::DownloadFile { file: into, max_bytes };
        let packed = blocking("download", move || container::download(&engine, &stored, &path, into).map(|()| lock));
        packed.await.map(drop)
    }
}
