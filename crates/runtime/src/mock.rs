//! A mock of the engine traits, for tests of programs that use them: expectations in place of an engine.
//!
//! Each method of [`ContainerRuntime`] and of the traits that belong to it has an `expect_…`, as
//! [mockall](https://docs.rs/mockall) generates it. A closure gets the arguments and returns the result. `stack_up` may take
//! time, so its closure returns a future. `list_recent` calls `list`.
//!
//! ```
//! use coracle_runtime::{ContainerRuntime, LabelFilter, MockRuntime};
//!
//! async fn count(engine: &dyn ContainerRuntime) -> usize {
//!     engine.list(&LabelFilter::default()).await.map_or(0, |containers| containers.len())
//! }
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() {
//! let mut engine = MockRuntime::new();
//! engine.expect_list().times(1).returning(|_| Ok(Vec::new()));
//! assert_eq!(count(&engine).await, 0);
//! # }
//! ```

use std::fs::File;
use std::pin::Pin;
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

/// A call that takes time.
type Call<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

mockall::mock! {
    /// An engine that answers what a test expects of it. A call without an expectation panics.
    #[derive(Debug)]
    pub Runtime {
        pub fn stack_up(&self, stack: &StackUp) -> Call<Option<Excerpt>>;
        pub fn compose_version(&self) -> Option<String>;
        pub fn check_stack(&self, model: &StackModel) -> Result<()>;
        pub fn stack_down(&self, project: &ProjectName) -> Result<()>;
        pub fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>>;
        pub fn check_health(&self, id: &ContainerId) -> Result<Option<Health>>;
    }

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
        async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>>;
        async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome>;
        async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput>;
        async fn link(&self, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link>;
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
}

// Not in the macro, since what it makes of an `async fn` cannot wait.
#[async_trait]
impl Stacks for MockRuntime {
    async fn compose_version(&self) -> Option<String> {
        Self::compose_version(self)
    }

    async fn check_stack(&self, model: &StackModel) -> Result<()> {
        Self::check_stack(self, model)
    }

    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        Self::stack_up(self, stack).await
    }

    async fn stack_down(&self, project: &ProjectName) -> Result<()> {
        Self::stack_down(self, project)
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        Self::logs(self, id, max_bytes)
    }

    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>> {
        Self::check_health(self, id)
    }
}
