//! Observes the calls of an engine.

use std::fmt;
use std::fs::File;
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use serde_json::Value;

use crate::link::{Link, LinkSettings, SocketAt};
use crate::{
    Container, ContainerId, ContainerPath, ContainerRuntime, EngineInfo, EngineKind, Error, Excerpt, Exec, ExecOutput,
    Handle, Health, Image, ImageAct, LabelFilter, Network, NetworkAct, Placed, ProjectName, Removed, Result,
    StackSource, StackUp, Stacks, Usage, Volume, VolumeAct,
};

/// A finished call of an engine.
#[derive(Clone, Copy, Debug)]
pub struct EngineCall<'a> {
    /// Which verb of [`ContainerRuntime`].
    pub verb: &'static str,
    /// The id of the object, or its name where there is no id yet.
    pub object: Option<&'a str>,
    /// How long it took.
    pub took: Duration,
    /// Why it failed.
    pub failed: Option<&'a Error>,
}

/// Receives every finished call. It runs inside the call, so it must not block.
pub type CallObserver = Arc<dyn Fn(&EngineCall<'_>) + Send + Sync>;

/// An engine that reports its calls to an observer. `kind` and `endpoint` ask no engine and are not reported.
#[derive(Clone)]
pub struct ObservedRuntime {
    runtime: Arc<dyn ContainerRuntime>,
    observer: CallObserver,
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
        Self { runtime, observer }
    }

    async fn observe<T>(
        &self,
        verb: &'static str,
        object: Option<&str>,
        call: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        let begun = Instant::now();
        let done = call.await;
        (self.observer)(&EngineCall { verb, object, took: begun.elapsed(), failed: done.as_ref().err() });
        done
    }
}

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
        let begun = Instant::now();
        let made = self.runtime.create(spec).await;
        let object = made.as_ref().map_or_else(|_| spec.spec().name.as_str(), ContainerId::as_str);
        let failed = made.as_ref().err();
        (self.observer)(&EngineCall { verb: "create", object: Some(object), took: begun.elapsed(), failed });
        made
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

    async fn usage(&self, id: &ContainerId) -> Result<Option<Usage>> {
        self.observe("usage", Some(id.as_str()), self.runtime.usage(id)).await
    }

    async fn remove(&self, id: &ContainerId) -> Result<Removed> {
        self.observe("remove", Some(id.as_str()), self.runtime.remove(id)).await
    }

    async fn exec(&self, id: &ContainerId, exec: Exec) -> Result<ExecOutput> {
        self.observe("exec", Some(id.as_str()), self.runtime.exec(id, exec)).await
    }

    async fn link(&self, id: &ContainerId, socket: Option<&SocketAt>, settings: LinkSettings) -> Result<Link> {
        self.observe("link", Some(id.as_str()), self.runtime.link(id, socket, settings)).await
    }

    async fn upload(&self, id: &ContainerId, at: &ContainerPath, tar: File) -> Result<()> {
        self.observe("upload", Some(id.as_str()), self.runtime.upload(id, at, tar)).await
    }

    async fn download(&self, id: &ContainerId, path: &ContainerPath, into: File, max_bytes: u64) -> Result<()> {
        self.observe("download", Some(id.as_str()), self.runtime.download(id, path, into, max_bytes)).await
    }

    async fn image(&self, act: ImageAct) -> Result<Vec<Image>> {
        let (verb, object) = match &act {
            ImageAct::Find(names) => ("find_image", names.first().map(ToString::to_string)),
            ImageAct::Pull { image, .. } => ("pull_image", Some(image.to_string())),
            ImageAct::Import { tag, .. } => ("import_image", Some(tag.to_string())),
            ImageAct::Commit { container, .. } => ("commit_image", Some(container.to_string())),
            ImageAct::Build(build) => ("build_image", Some(build.tag.to_string())),
            ImageAct::List(_) => ("list_images", None),
            ImageAct::Tag { tag, .. } => ("tag_image", Some(tag.to_string())),
            ImageAct::Remove(id) => ("remove_image", Some(id.to_string())),
            ImageAct::Untag(name) => ("untag_image", Some(name.to_string())),
        };
        self.observe(verb, object.as_deref(), self.runtime.image(act)).await
    }

    async fn network(&self, act: NetworkAct) -> Result<Vec<Network>> {
        let (verb, object) = match &act {
            NetworkAct::Find(name) => ("find_network", Some(name.to_string())),
            NetworkAct::Create { name, .. } => ("create_network", Some(name.to_string())),
            NetworkAct::List(_) => ("list_networks", None),
            NetworkAct::Remove(name) => ("remove_network", Some(name.clone())),
        };
        self.observe(verb, object.as_deref(), self.runtime.network(act)).await
    }
}

#[async_trait]
impl Stacks for ObservedRuntime {
    async fn stack_model(&self, source: &StackSource) -> Result<Value> {
        let project = source.project.to_string();
        self.observe("stack_model", Some(&project), self.runtime.stack_model(source)).await
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

    async fn volume(&self, act: VolumeAct) -> Result<Vec<Volume>> {
        let (verb, object) = match &act {
            VolumeAct::List(_) => ("list_volumes", None),
            VolumeAct::Create { name, .. } => ("create_volume", Some(name.to_string())),
            VolumeAct::Remove(name) => ("remove_volume", Some(name.clone())),
        };
        self.observe(verb, object.as_deref(), self.runtime.volume(act)).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::ObservedRuntime;
    use crate::{ContainerRuntime, FakeRuntime, Handle, LabelFilter, Stacks, VolumeAct, VolumeName};

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
        runtime.volume(VolumeAct::Create { name, labels, size: None }).await.unwrap();
        let lines = observed.lock().unwrap().join("\n");
        assert_eq!(lines, "inspect nobody no container `nobody`\nlist - \ncreate_volume v ");
    }
}
