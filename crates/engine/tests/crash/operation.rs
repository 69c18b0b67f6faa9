//! What a victim does.

use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_engine::{EmbeddedRuntime, EngineOptions, ImageOrigin, RegistryOptions};
use coracle_runtime::{
    ContainerRuntime as _, CreateSpec, ImageCommit, ImageConfig, ImageStore as _, NetworkAttachment, NetworkCreate,
    NetworkRequest, Networks as _, Placed, Policy, VolumeCreate, VolumeMount, Volumes as _, admit,
};
use coracle_types::{ContainerId, ContainerName, ContainerPath, Handle, ImageId, ImageRef, NetworkName, VolumeName};

/// Tells a victim what it does: the operation, the data directory, the container.
pub(crate) const VICTIM: &str = "CORACLE_CRASH_VICTIM";

pub(crate) const IMAGE: &str = "localhost/crash:1";
pub(crate) const COPIED: &str = "localhost/copied:1";
pub(crate) const COMMITTED: &str = "localhost/committed:1";
pub(crate) const NETWORK: &str = "crash-net";
pub(crate) const VOLUME: &str = "crash-volume";
pub(crate) const CONTAINER: &str = "crash";
pub(crate) const FORK: &str = "crash-fork";

const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Create,
    Start,
    Commit,
    Fork,
    CopyImage,
    Stop,
    Remove,
    NetworksAndVolumes,
}

const ALL: [Operation; 8] = [
    Operation::Create,
    Operation::Start,
    Operation::Commit,
    Operation::Fork,
    Operation::CopyImage,
    Operation::Stop,
    Operation::Remove,
    Operation::NetworksAndVolumes,
];

pub(crate) fn open(data: &Path) -> EmbeddedRuntime {
    let options = EngineOptions {
        data_dir: data.to_owned(),
        guest: None,
        home: data.to_owned(),
        registries: RegistryOptions::default(),
    };
    EmbeddedRuntime::open(options).unwrap()
}

/// The image that a victim copies.
pub(crate) fn archive(data: &Path) -> PathBuf {
    data.with_file_name("image.tar")
}

/// A container on a network, with a volume.
pub(crate) async fn spec(runtime: &EmbeddedRuntime, name: &str) -> Placed {
    let image = runtime.find_images(&[ImageRef::parse(IMAGE).unwrap()]).await.unwrap()[0].id.clone();
    let named = NetworkName::parse(NETWORK).unwrap();
    let network = runtime.find_network(&named).await.unwrap().unwrap().id;
    let mut spec = CreateSpec::new(ContainerName::parse(name).unwrap(), ImageRef::parse(IMAGE).unwrap());
    spec.network = NetworkRequest::Named(named);
    spec.volumes = vec![VolumeMount {
        name: VolumeName::parse("data").unwrap(),
        at: ContainerPath::parse("/data").unwrap(),
        access: coracle_runtime::Access::ReadWrite,
    }];
    admit(spec, &Policy::everything()).unwrap().with_image(image, NetworkAttachment::Id(network))
}

/// The words of the variable.
pub(crate) fn words(operation: Operation, data: &Path) -> String {
    format!("{operation:?} {}", data.display())
}

pub(crate) async fn run(words: &str) {
    let (operation, data) = words.split_once(' ').unwrap();
    let operation = ALL.into_iter().find(|it| format!("{it:?}") == operation).unwrap();
    let runtime = open(Path::new(data));
    let container = async || -> ContainerId {
        let handle = Handle::Name(ContainerName::parse(CONTAINER).unwrap());
        runtime.inspect(&handle).await.unwrap().id
    };
    match operation {
        Operation::Create => drop(runtime.create(&spec(&runtime, CONTAINER).await).await.unwrap()),
        Operation::Start => runtime.start(&container().await).await.unwrap(),
        Operation::Commit => drop(runtime.commit_image(&commit(container().await)).await.unwrap()),
        Operation::Fork => drop(runtime.fork(&container().await, &spec(&runtime, FORK).await).await.unwrap()),
        Operation::CopyImage => drop(copy(&runtime, Path::new(data)).await),
        Operation::Stop => runtime.stop(&container().await, Duration::from_millis(1)).await.unwrap(),
        Operation::Remove => drop(runtime.remove(&container().await).await.unwrap()),
        Operation::NetworksAndVolumes => networks_and_volumes(&runtime).await,
    }
}

pub(crate) fn commit(container: ContainerId) -> ImageCommit {
    ImageCommit {
        container,
        tag: Some(ImageRef::parse(COMMITTED).unwrap()),
        labels: Vec::new(),
        config: ImageConfig::default(),
    }
}

pub(crate) async fn copy(runtime: &EmbeddedRuntime, data: &Path) -> ImageId {
    let origin = ImageOrigin::Archive(std::fs::File::open(archive(data)).unwrap());
    let name = ImageRef::parse(COPIED).unwrap();
    runtime.copy_image(origin, &name, PATIENCE).await.unwrap().id
}

async fn networks_and_volumes(runtime: &EmbeddedRuntime) {
    let name = NetworkName::parse("crash-other").unwrap();
    let network = NetworkCreate { name, labels: Vec::new(), internal: false, reach: true };
    let network = runtime.create_network(&network).await.unwrap();
    let volume = VolumeCreate { name: VolumeName::parse(VOLUME).unwrap(), labels: Vec::new(), size: None };
    runtime.create_volume(&volume).await.unwrap();
    runtime.remove_volume(VOLUME).await.unwrap();
    runtime.remove_network(&network.id).await.unwrap();
}
