//! A mock of the engine, for tests of programs that use the trait: expectations in place of an engine.
//!
//! ```
//! use coracle_runtime::{ContainerRuntime, LabelFilter, MockRuntime};
//!
//! async fn count(runtime: &dyn ContainerRuntime) -> usize {
//!     runtime.list(&LabelFilter::default()).await.map_or(0, |containers| containers.len())
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
//! let mut runtime = MockRuntime::new();
//! runtime.expect_list().times(1).returning(|_| Ok(Vec::new()));
//! assert_eq!(count(&runtime).await, 0);
//! # });
//! ```

use std::fs::File;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_types::{
    ContainerId, ContainerPath, EngineKind, Excerpt, Exec, ExecOutput, Handle, ImageId, ImageRef, NetworkName,
    ProjectName, Result,
};

use crate::stack_model::StackModel;
use crate::{
    Container, ContainerRuntime, ContainerUsage, Endpoint, EngineInfo, Health, Image, ImageBuild, ImageCommit,
    ImageImport, ImageStore, LabelFilter, Network, NetworkCreate, Networks, Placed, RemovalOutcome, StackUp, Stacks,
    Volume, VolumeCreate, Volumes,
};

mockall::mock! {
    /// An engine that answers what a test expects of it. A call without an expectation panics.
    #[derive(Debug)]
    pub Runtime {}

    #[async_trait]
    impl ContainerRuntime for Runtime {
        fn kind(&self) -> EngineKind;
        fn endpoint(&self) -> Endpoint;
        async fn info(&self) -> Result<EngineInfo>;
        async fn create(&self, spec: &Placed) -> Result<ContainerId>;
        async fn fork(&self, parent: &ContainerId, spec: &Placed) -> Result<ContainerId>;
        async fn start(&self, id: &ContainerId) -> Result<()>;
        async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()>;
        async fn inspect(&self, handle: &Handle) -> Result<Container>;
        async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>>;
        async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>>;
        async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>>;
        async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome>;
        async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput>;
        async fn link(&self, id: &ContainerId, socket: Option<&SocketAt>, settings: LinkSettings) -> Result<Link>;
        async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()>;
        async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()>;
        async fn export(&self, id: &ContainerId, into: File, max_bytes: u64) -> Result<()>;
    }

    #[async_trait]
    impl ImageStore for Runtime {
        async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>>;
        async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>>;
        async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image>;
        async fn import_image(&self, import: ImageImport) -> Result<Image>;
        async fn commit_image(&self, commit: &ImageCommit) -> Result<Image>;
        async fn build_image(&self, build: &ImageBuild) -> Result<Image>;
        async fn save_image(&self, image: &ImageId, into: File) -> Result<()>;
        async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image>;
        async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()>;
        async fn remove_image(&self, image: &ImageId) -> Result<()>;
        async fn untag_image(&self, name: &ImageRef) -> Result<()>;
    }

    #[async_trait]
    impl Networks for Runtime {
        async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>>;
        async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>>;
        async fn create_network(&self, network: &NetworkCreate) -> Result<Network>;
        async fn remove_network(&self, handle: &str) -> Result<()>;
    }

    #[async_trait]
    impl Volumes for Runtime {
        async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>>;
        async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume>;
        async fn remove_volume(&self, name: &str) -> Result<()>;
    }

    #[async_trait]
    impl Stacks for Runtime {
        async fn compose_version(&self) -> Option<String>;
        async fn check_stack(&self, model: &StackModel) -> Result<()>;
        async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>>;
        async fn stack_down(&self, project: &ProjectName) -> Result<()>;
        async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>>;
        async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>>;
    }
}
