//! Coracle's volumes: those of containers with read-only files, of sessions' slots, and of packages.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use coracle_runtime::{
    Access, Capabilities, ContainerRuntime, CreateSpec, LabelFilter, NetworkAttachment, NetworkRequest, PatternSet,
    Policy, VolumeCreate, VolumeMount, admit,
};
use coracle_types::{
    ByteSize, ContainerId, ContainerName, ContainerPath, Error as Engine, ImageRef, VolumeName, random_hex,
};

use crate::record::{OwnVolume, Record, Role};
use crate::{Error, ResourceKind, Result, Store};

/// The label with the path where the volume is mounted inside.
const AT: &str = "volume_at";

/// The labels of a container that has one, by which it is known when the record is lost.
pub(crate) fn labels(volume: Option<&OwnVolume>) -> Vec<(&'static str, String)> {
    volume.map_or_else(Vec::new, |it| vec![("volume", it.name.to_string()), (AT, it.at.to_string())])
}

/// What such labels say.
pub(crate) fn of_labels(name: Option<&str>, at: Option<&str>) -> Option<OwnVolume> {
    Some(OwnVolume { name: VolumeName::parse(name?).ok()?, at: ContainerPath::parse(at?).ok()? })
}

/// A container with the volume of one that is gone, which is never started: the engine reads files from it.
///
/// # Errors
/// Anything that an engine refuses.
pub(crate) async fn reader(runtime: &dyn ContainerRuntime, store: &Store, record: &Record) -> Result<ContainerId> {
    let (signer, gone) = (store.signer(), || Engine::NoSuchContainer(record.name.to_string()));
    let (volume, image) = record.volume.clone().zip(record.image_id.clone()).ok_or_else(gone)?;
    let name = ContainerName::parse(format!("{}-read-{}", signer.namespace(), random_hex::<8>()))
        .expect("a namespace and hex digits are a name");
    let own =
        [("role", Role::Build.as_str().to_owned()), ("id", record.record_id.to_string()), ("name", name.to_string())];
    let labels = store.labels(runtime.kind(), own);
    let spec = CreateSpec {
        exec_user: record.exec_user.ok_or_else(|| Error::UnknownUser(record.name.clone()))?,
        volumes: vec![VolumeMount { name: volume.name, at: volume.at, access: Access::ReadWrite }],
        network: NetworkRequest::None,
        capabilities: Capabilities::None,
        read_only: true,
        ..CreateSpec::new(name, ImageRef::from(image.clone()))
    };
    let placed = admit(spec, &as_it_was())?.labelled(labels).with_image(image, NetworkAttachment::None);
    Ok(runtime.create(&placed).await?)
}

/// What it is made of was admitted when the container was, and it gets less.
fn as_it_was() -> Policy {
    Policy {
        allow_roots: Vec::new(),
        home: PathBuf::from("/"),
        denied: Vec::new(),
        scratch: PathBuf::from("/"),
        binds: false,
        memory_max: ByteSize(0),
        cpus_max: None,
        pids_max: 0,
        port_min: u16::MAX,
        ports_bind: Ipv4Addr::LOCALHOST.into(),
        allow_host_network: false,
        allow_host_gateway: false,
        allow_gpu: false,
        allow_root: false,
        open_network: false,
        strict: true,
        images: PatternSet::new(&["*".to_owned()]).unwrap_or_default(),
    }
}

/// A volume to be made.
pub(crate) struct NewVolume<'a> {
    pub(crate) name: &'a VolumeName,
    pub(crate) role: &'static str,
    /// Additional labels.
    pub(crate) labels: Vec<(&'static str, String)>,
    /// What fits into it, where the engine can see to that.
    pub(crate) size: Option<ByteSize>,
}

/// Creates a volume with Coracle's labels.
///
/// # Errors
/// Anything that an engine refuses, and an existing foreign volume with that name.
pub(crate) async fn create(runtime: &dyn ContainerRuntime, store: &Store, new: NewVolume<'_>) -> Result<()> {
    let own = [("role", new.role.to_owned()), ("name", new.name.to_string())];
    let labels = store.labels(runtime.kind(), own.into_iter().chain(new.labels)).into_iter().collect();
    let made = runtime.create_volume(&VolumeCreate { name: new.name.clone(), labels, size: new.size }).await?;
    if store.signed(runtime.kind(), &made.labels) {
        return Ok(());
    }
    Err(Error::NotManaged { kind: ResourceKind::Volume, name: new.name.to_string() })
}

/// Removes the volume, if it exists and is managed.
pub(crate) async fn remove(runtime: &dyn ContainerRuntime, store: &Store, name: &VolumeName) -> Result<()> {
    if is_there(runtime, store, name).await? {
        runtime.remove_volume(name.as_str()).await?;
    }
    Ok(())
}

/// Whether a managed volume with that name exists.
pub(crate) async fn is_there(runtime: &dyn ContainerRuntime, store: &Store, name: &VolumeName) -> Result<bool> {
    let named = LabelFilter(vec![(store.signer().key("name"), Some(name.to_string()))]);
    let found = runtime.list_volumes(&named).await?;
    Ok(found.iter().any(|it| it.name == name.as_str() && store.signed(runtime.kind(), &it.labels)))
}
