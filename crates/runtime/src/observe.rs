//! Observes the calls of an engine.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_types::{
    Capability, ContainerId, ContainerPath, EngineKind, Error, Excerpt, Exec, ExecOutput, Handle, ImageId, ImageRef,
    NetworkName, ProjectName, Result,
};
use tracing::Instrument as _;

use crate::stack_model::StackModel;
use crate::{
    Checkpoint, CheckpointChange, CheckpointOutcome, CheckpointRequest, Checkpoints, Container, ContainerRuntime,
    ContainerUsage, EngineInfo, Health, Image, ImageBuild, ImageCommit, ImageImport, ImageStore, LabelFilter, Network,
    NetworkCreate, Networks, Placed, RemovalOutcome, StackUp, Stacks, Volume, VolumeCreate, Volumes,
};

/// A finished call of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineCall<'a> {
    /// The verb of [`ContainerRuntime`].
    pub verb: &'static str,
    /// The id of the object, or its name where there is no id yet.
    pub object: Option<&'a str>,
    /// The duration.
    pub took: Duration,
    /// The error, if it failed.
    pub failed: Option<&'a Error>,
}

/// Receives every finished call. It runs inside the call, so it must not block.
pub type CallObserver = Arc<dyn Fn(&EngineCall<'_>) + Send + Sync>;

/// An engine that reports its calls to an observer, or as spans. `kind` and `endpoint` ask no engine and are not
/// reported.
#[derive(Clone)]
pub struct ObservedRuntime {
    runtime: Arc<dyn ContainerRuntime>,
    /// Without one each call is a span of `tracing`.
    observer: Option<CallObserver>,
}

impl fmt::Debug for ObservedRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ObservedRuntime").field(&self.runtime).finish()
    }
}

impl ObservedRuntime {
    /// Reports the calls of `runtime` to `observer`.
    #[must_use]
    pub fn new(runtime: Arc<dyn ContainerRuntime>, observer: CallObserver) -> Self {
        Self { runtime, observer: Some(observer) }
    }

    /// Makes each call of `runtime` a span `engine_call` with `engine`, `verb`, `object` and `outcome`. It has no arguments.
    #[must_use]
    pub fn with_spans(runtime: impl ContainerRuntime + 'static) -> Arc<dyn ContainerRuntime> {
        Arc::new(Self { runtime: Arc::new(runtime), observer: None })
    }

    async fn observe<T>(
        &self,
        verb: &'static str,
        object: Option<&str>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let Some(observer) = &self.observer else { return self.in_span(verb, object, call).await };
        let begun = Instant::now();
        let done = call.await;
        observer(&EngineCall { verb, object, took: begun.elapsed(), failed: done.as_ref().err() });
        done
    }

    async fn in_span<T>(
        &self,
        verb: &'static str,
        object: Option<&str>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let engine = self.runtime.kind().as_str();
        let span = tracing::debug_span!("engine_call", engine, verb, object, outcome = tracing::field::Empty);
        let done = call.instrument(span.clone()).await;
        span.record("outcome", if done.is_ok() { "ok" } else { "failed" });
        done
    }
}

// A default method that is not forwarded would hide what the engine does instead.
#[warn(clippy::missing_trait_methods)]
#[async_trait]
impl ContainerRuntime for ObservedRuntime {
    fn kind(&self) -> EngineKind {
        self.runtime.kind()
    }

    fn endpoint(&self) -> crate::Endpoint {
        self.runtime.endpoint()
    }

    async fn info(&self) -> Result<EngineInfo> {
        self.observe("info", None, self.runtime.info()).await
    }

    async fn create(&self, spec: &Placed) -> Result<ContainerId> {
        let Some(observer) = &self.observer else {
            return self.in_span("create", Some(spec.spec().name.as_str()), self.runtime.create(spec)).await;
        };
        let begun = Instant::now();
        let made = self.runtime.create(spec).await;
        let object = made.as_ref().map_or_else(|_| spec.spec().name.as_str(), ContainerId::as_str);
        let failed = made.as_ref().err();
        observer(&EngineCall { verb: "create", object: Some(object), took: begun.elapsed(), failed });
        made
    }

    async fn fork(&self, parent: &ContainerId, spec: &Placed) -> Result<ContainerId> {
        self.observe("fork", Some(parent.as_str()), self.runtime.fork(parent, spec)).await
    }

    fn as_checkpoints(&self) -> Option<&dyn Checkpoints> {
        self.runtime.as_checkpoints().map(|_| self as &dyn Checkpoints)
    }

    async fn start(&self, id: &ContainerId) -> Result<()> {
        self.observe("start", Some(id.as_str()), self.runtime.start(id)).await
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<()> {
        self.observe("stop", Some(id.as_str()), self.runtime.stop(id, grace)).await
    }

    async fn inspect(&self, handle: &Handle) -> Result<Container> {
        self.observe("inspect", Some(handle.as_str()), self.runtime.inspect(handle)).await
    }

    async fn list(&self, filter: &LabelFilter) -> Result<Vec<Container>> {
        self.observe("list", None, self.runtime.list(filter)).await
    }

    async fn list_recent(&self, filter: &LabelFilter) -> Result<Vec<Arc<Container>>> {
        self.observe("list", None, self.runtime.list_recent(filter)).await
    }

    async fn usage(&self, id: &ContainerId) -> Result<Option<ContainerUsage>> {
        self.observe("usage", Some(id.as_str()), self.runtime.usage(id)).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<RemovalOutcome> {
        self.observe("remove", Some(id.as_str()), self.runtime.remove(id)).await
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        self.observe("exec", Some(id.as_str()), self.runtime.exec(id, exec)).await
    }

    async fn link(&self, id: &ContainerId, socket: Option<SocketAt>, settings: LinkSettings) -> Result<Link> {
        self.observe("link", Some(id.as_str()), self.runtime.link(id, socket, settings)).await
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        self.observe("upload", Some(id.as_str()), self.runtime.upload(id, at, tar)).await
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        self.observe("download", Some(id.as_str()), self.runtime.download(id, path, into, max_bytes)).await
    }

    async fn export(&self, id: &ContainerId, into: File, max_bytes: u64) -> Result<()> {
        self.observe("export", Some(id.as_str()), self.runtime.export(id, into, max_bytes)).await
    }
}

impl ObservedRuntime {
    fn checkpointing(&self) -> Result<&dyn Checkpoints> {
        let engine = self.runtime.kind();
        self.runtime.as_checkpoints().ok_or(Error::Unsupported { engine, capability: Capability::Checkpoint })
    }
}

#[async_trait]
impl Checkpoints for ObservedRuntime {
    async fn shares_content(&self) -> Result<bool> {
        self.checkpointing()?.shares_content().await
    }

    async fn checkpoint(&self, id: &ContainerId, request: &CheckpointRequest) -> Result<CheckpointOutcome> {
        self.observe("checkpoint", Some(id.as_str()), self.checkpointing()?.checkpoint(id, request)).await
    }

    async fn checkpoints(&self, id: &ContainerId) -> Result<Vec<Checkpoint>> {
        self.observe("checkpoints", Some(id.as_str()), self.checkpointing()?.checkpoints(id)).await
    }

    async fn rewind(&self, id: &ContainerId, number: u64) -> Result<()> {
        self.observe("rewind", Some(id.as_str()), self.checkpointing()?.rewind(id, number)).await
    }

    async fn branch(&self, parent: &ContainerId, number: u64, spec: &Placed) -> Result<ContainerId> {
        self.observe("branch", Some(parent.as_str()), self.checkpointing()?.branch(parent, number, spec)).await
    }

    async fn checkpoint_diff(&self, id: &ContainerId, from: u64, to: u64) -> Result<Vec<CheckpointChange>> {
        self.observe("checkpoint_diff", Some(id.as_str()), self.checkpointing()?.checkpoint_diff(id, from, to)).await
    }

    async fn exchange_files(&self, id: &ContainerId, other: &ContainerId) -> Result<()> {
        self.observe("exchange_files", Some(id.as_str()), self.checkpointing()?.exchange_files(id, other)).await
    }

    async fn remove_checkpoint(&self, id: &ContainerId, number: u64) -> Result<()> {
        self.observe("remove_checkpoint", Some(id.as_str()), self.checkpointing()?.remove_checkpoint(id, number)).await
    }
}

#[warn(clippy::missing_trait_methods)]
#[async_trait]
impl ImageStore for ObservedRuntime {
    async fn find_images(&self, names: &[ImageRef]) -> Result<Vec<Image>> {
        self.observe("find_image", names.first().map(ImageRef::as_str), self.runtime.find_images(names)).await
    }

    async fn list_images(&self, filter: &LabelFilter) -> Result<Vec<Image>> {
        self.observe("list_images", None, self.runtime.list_images(filter)).await
    }

    async fn pull_image(&self, image: &ImageRef, deadline: Duration) -> Result<Image> {
        self.observe("pull_image", Some(image.as_str()), self.runtime.pull_image(image, deadline)).await
    }

    async fn import_image(&self, import: ImageImport) -> Result<Image> {
        let tag = import.tag.to_string();
        self.observe("import_image", Some(&tag), self.runtime.import_image(import)).await
    }

    async fn commit_image(&self, commit: &ImageCommit) -> Result<Image> {
        self.observe("commit_image", Some(commit.container.as_str()), self.runtime.commit_image(commit)).await
    }

    async fn build_image(&self, build: &ImageBuild) -> Result<Image> {
        self.observe("build_image", Some(build.tag.as_str()), self.runtime.build_image(build)).await
    }

    async fn save_image(&self, image: &ImageId, into: File) -> Result<()> {
        self.observe("save_image", Some(image.as_str()), self.runtime.save_image(image, into)).await
    }

    async fn load_image(&self, archive: File, name: &ImageRef) -> Result<Image> {
        self.observe("load_image", Some(name.as_str()), self.runtime.load_image(archive, name)).await
    }

    async fn tag_image(&self, image: &ImageId, tag: &ImageRef) -> Result<()> {
        self.observe("tag_image", Some(tag.as_str()), self.runtime.tag_image(image, tag)).await
    }

    async fn remove_image(&self, image: &ImageId) -> Result<()> {
        self.observe("remove_image", Some(image.as_str()), self.runtime.remove_image(image)).await
    }

    async fn untag_image(&self, name: &ImageRef) -> Result<()> {
        self.observe("untag_image", Some(name.as_str()), self.runtime.untag_image(name)).await
    }
}

#[warn(clippy::missing_trait_methods)]
#[async_trait]
impl Networks for ObservedRuntime {
    async fn find_network(&self, name: &NetworkName) -> Result<Option<Network>> {
        self.observe("find_network", Some(name.as_str()), self.runtime.find_network(name)).await
    }

    async fn list_networks(&self, filter: &LabelFilter) -> Result<Vec<Network>> {
        self.observe("list_networks", None, self.runtime.list_networks(filter)).await
    }

    async fn create_network(&self, network: &NetworkCreate) -> Result<Network> {
        self.observe("create_network", Some(network.name.as_str()), self.runtime.create_network(network)).await
    }

    async fn remove_network(&self, handle: &str) -> Result<()> {
        self.observe("remove_network", Some(handle), self.runtime.remove_network(handle)).await
    }
}

#[warn(clippy::missing_trait_methods)]
#[async_trait]
impl Volumes for ObservedRuntime {
    async fn list_volumes(&self, filter: &LabelFilter) -> Result<Vec<Volume>> {
        self.observe("list_volumes", None, self.runtime.list_volumes(filter)).await
    }

    async fn create_volume(&self, volume: &VolumeCreate) -> Result<Volume> {
        self.observe("create_volume", Some(volume.name.as_str()), self.runtime.create_volume(volume)).await
    }

    async fn remove_volume(&self, name: &str) -> Result<()> {
        self.observe("remove_volume", Some(name), self.runtime.remove_volume(name)).await
    }
}

#[warn(clippy::missing_trait_methods)]
#[async_trait]
impl Stacks for ObservedRuntime {
    async fn compose_version(&self) -> Option<String> {
        self.runtime.compose_version().await
    }

    async fn check_stack(&self, model: &StackModel) -> Result<()> {
        self.observe("check_stack", None, self.runtime.check_stack(model)).await
    }

    async fn stack_up(&self, stack: &StackUp) -> Result<Option<Excerpt>> {
        let project = stack.project.to_string();
        self.observe("stack_up", Some(&project), self.runtime.stack_up(stack)).await
    }

    async fn stack_down(&self, project: &ProjectName) -> Result<()> {
        self.observe("stack_down", Some(&project.to_string()), self.runtime.stack_down(project)).await
    }

    async fn logs(&self, id: &ContainerId, max_bytes: usize) -> Result<Vec<u8>> {
        self.observe("logs", Some(id.as_str()), self.runtime.logs(id, max_bytes)).await
    }

    async fn check_health(&self, id: &ContainerId) -> Result<Option<Health>> {
        self.observe("check_health", Some(id.as_str()), self.runtime.check_health(id)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::ObservedRuntime;
    use crate::{ContainerRuntime, FakeRuntime, LabelFilter, VolumeCreate, Volumes};
    use coracle_types::{Handle, VolumeName};

    #[tokio::test]
    async fn w41_each_call_is_observed_with_its_object_and_error() {
        let observed: Arc<Mutex<Vec<String>>> = Arc::default();
        let into = observed.clone();
        let runtime = ObservedRuntime::new(
            Arc::new(FakeRuntime::new()),
            Arc::new(move |call| {
                let failed = call.failed.map_or_else(String::new, ToString::to_string);
                into.lock().unwrap().push(format!("{} {} {failed}", call.verb, call.object.unwrap_or("-")));
            }),
        );
        assert!(runtime.inspect(&Handle::parse("nobody").unwrap()).await.is_err());
        runtime.list(&LabelFilter::default()).await.unwrap();
        let (name, labels) = (VolumeName::parse("v").unwrap(), Vec::new());
        runtime.create_volume(&VolumeCreate { name, labels, size: None }).await.unwrap();
        let lines = observed.lock().unwrap().join("\n");
        assert_eq!(lines, "inspect nobody no container `nobody`\nlist - \ncreate_volume v ");
    }
}
