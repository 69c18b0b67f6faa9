//! Implements the traits of `coracle-runtime`: each method calls the module that does the work.

mod images;
mod networks;
mod volumes;

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_runtime::stack_model::StackModel;
use coracle_runtime::{
    Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, Health, LabelFilter, Placed, RemovalOutcome,
    StackUp, Stacks,
};
use coracle_types::{
    Capability, ContainerId, ContainerPath, EngineKind, Excerpt, Exec, ExecOutput, Handle, ProjectName, Result,
};

use crate::cluster::Cluster;
use crate::find::find_pod;
use crate::pod::container_of;
use crate::preflight::KubePreflight;
use crate::settings::KubeSettings;
use crate::unsupported::unsupported;

/// A cluster. Clones share the connection.
#[derive(Clone, Debug)]
pub struct KubeRuntime {
    cluster: Arc<Cluster>,
}

impl KubeRuntime {
    /// Reads the cluster's address without contacting it.
    ///
    /// # Errors
    /// [`coracle_types::Error::Unavailable`] if its file cannot be read.
    pub fn open(settings: KubeSettings) -> Result<Self> {
        Ok(Self { cluster: Arc::new(Cluster::open(settings)?) })
    }

    /// Returns version, namespace, and missing permissions.
    ///
    /// # Errors
    /// [`coracle_types::Error::Unavailable`] if the API server does not answer, or refuses this account.
    pub async fn preflight(&self) -> Result<KubePreflight> {
        crate::preflight::preflight(&self.cluster).await
    }

    pub(crate) fn cluster(&self) -> &Cluster {
        &self.cluster
    }
}

#[async_trait]
impl ContainerRuntime for KubeRuntime {
    fn kind(&self) -> EngineKind {
        EngineKind::Kubernetes
    }

    fn endpoint(&self) -> Endpoint {
        Endpoint { address: self.cluster.endpoint(), rootless: false, single_user: false }
    }

    async fn info(&self) -> Result<EngineInfo> {
        crate::info::info(&self.cluster).await
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        crate::create::create(&self.cluster, spec).await
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        crate::start::start(&self.cluster, id).await
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        crate::stop::stop(&self.cluster, id, grace).await
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        container_of(&find_pod(&self.cluster, handle).await?)
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        crate::list::list(&self.cluster, filter).await
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>> {
        crate::usage::usage(&self.cluster, id).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome> {
        crate::remove::remove(&self.cluster, id).await
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        crate::exec::exec(&self.cluster, id, exec).await
    }

    async fn link(&self, id: &ContainerId, _: Option<SocketAt>, settings: LinkSettings) -> Result<Link> {
        Ok(crate::link::link(&self.cluster, id, settings))
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        crate::upload::upload(&self.cluster, id, at, tar).await
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        crate::download::download(&self.cluster, id, path, into, max_bytes).await
    }
}

#[async_trait]
impl Stacks for KubeRuntime {
    async fn compose_version(&self) -> Option<String> {
        None
    }

    async fn check_stack(&self, _: &StackModel) -> Result<()> {
        Err(unsupported(Capability::Compose))
    }

    async fn stack_up(&self, _: &StackUp) -> Result<Option<Excerpt>> {
        Err(unsupported(Capability::Compose))
    }

    /// There are no stacks.
    async fn stack_down(&self, _: &ProjectName) -> Result<()> {
        Ok(())
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        crate::logs::logs(&self.cluster, id, max_bytes).await
    }

    /// There are no health checks.
    async fn check_health(&self, _: &ContainerId) -> Result<Option<Health>> {
        Ok(None)
    }
}
