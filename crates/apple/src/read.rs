//! The output of Apple's `container`, in its present form and the one before.
//!
//! Unknown fields are passed over, and those that may be missing are.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use coracle_archive::oci::StartConfiguration;
use coracle_engine_program::json::{array, image_id, normalized, oci_arch, one, unreadable};
use coracle_runtime::{Container, EngineInfo, Image, Limits, MountPoint, Network, Volume};
use coracle_types::{ByteSize, ContainerId, ContainerStatus, EngineKind, Error, IsolationKind, Result};
use serde::Deserialize;
use serde_json::Value;

/// The oldest engine, and the oldest system that it works on.
pub(super) const OLDEST: &str = "1.1.0";
const OLDEST_SYSTEM: &str = "macOS 26";

/// Containers of `inspect` and `list`.
pub(super) fn containers(json: &[u8]) -> Result<Vec<Container>> {
    array::<ContainerJson>("inspect", json)?.into_iter().map(ContainerJson::read).collect()
}

/// The name that `create` printed last.
pub(super) fn created(output: &[u8]) -> Result<ContainerId> {
    let output = String::from_utf8_lossy(output);
    let last = output.split_whitespace().next_back().unwrap_or_default();
    ContainerId::parse(last).map_err(|err| unreadable("create", &err))
}

/// Whether one of them is between two states, so that a later query has a better answer.
pub(super) fn unsettled(json: &[u8]) -> bool {
    let containers = array::<ContainerJson>("inspect", json).unwrap_or_default();
    containers.iter().any(|it| matches!(it.status.state(), "stopping" | "unknown"))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ContainerJson {
    id: Option<String>,
    configuration: ConfigurationJson,
    status: StatusJson,
    /// Beside the status, in the older form.
    #[serde(default)]
    networks: Vec<AttachmentJson>,
    started_date: Option<Value>,
}

/// An object, and in the older form the word alone.
#[derive(Deserialize)]
#[serde(untagged)]
enum StatusJson {
    Object(StateJson),
    Word(String),
}

impl StatusJson {
    fn state(&self) -> &str {
        match self {
            Self::Object(it) => &it.state,
            Self::Word(word) => word,
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StateJson {
    state: String,
    #[serde(default)]
    networks: Vec<AttachmentJson>,
    started_date: Option<Value>,
}

#[derive(Deserialize)]
struct AttachmentJson {
    network: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ConfigurationJson {
    id: String,
    image: ImageOfJson,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    mounts: Vec<MountJson>,
    creation_date: Option<Value>,
    #[serde(default)]
    init_process: ProcessJson,
    #[serde(default)]
    resources: ResourcesJson,
}

#[derive(Deserialize)]
struct ImageOfJson {
    descriptor: DescriptorJson,
}

#[derive(Deserialize)]
struct DescriptorJson {
    digest: String,
}

#[derive(Deserialize)]
struct MountJson {
    #[serde(default)]
    source: PathBuf,
    destination: String,
    #[serde(default)]
    options: Vec<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ProcessJson {
    #[serde(default)]
    environment: Vec<String>,
    #[serde(default)]
    working_directory: String,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct ResourcesJson {
    #[serde(default)]
    cpus: f64,
    #[serde(default)]
    memory_in_bytes: u64,
}

impl ContainerJson {
    fn read(self) -> Result<Container> {
        let configuration = self.configuration;
        let id = self.id.unwrap_or(configuration.id);
        let state = self.status.state().to_owned();
        let (networks, started) = match self.status {
            StatusJson::Object(it) => (it.networks, it.started_date.or(self.started_date)),
            StatusJson::Word(_) => (self.networks, self.started_date),
        };
        let started_at = started.as_ref().and_then(date);
        let resources = &configuration.resources;
        Ok(Container {
            id: ContainerId::parse(&id).map_err(|err| unreadable("inspect", &err))?,
            name: id,
            image: image_id(&configuration.image.descriptor.digest)?,
            status: status(&state, started_at.is_some())?,
            // A virtual machine has no process here, and the exit status of its first process is not reported.
            pid: None,
            exit_code: None,
            oom_killed: false,
            created: configuration.creation_date.as_ref().and_then(date).unwrap_or_default(),
            started_at,
            labels: configuration.labels,
            user: String::new(),
            workdir: configuration.init_process.working_directory,
            env: configuration.init_process.environment,
            ports: Vec::new(),
            mounts: configuration.mounts.into_iter().map(MountJson::read).collect(),
            networks: networks.into_iter().map(|it| it.network).collect(),
            limits: Limits {
                memory: (resources.memory_in_bytes > 0).then_some(ByteSize(resources.memory_in_bytes)),
                cpus: (resources.cpus > 0.0).then_some(resources.cpus),
                pids: None,
            },
            execs: 0,
            health: None,
            lifetime_over: None,
            isolation: Some(IsolationKind::VirtualMachine),
        })
    }
}

impl MountJson {
    fn read(self) -> MountPoint {
        let writable = !self.options.iter().any(|it| it == "ro" || it == "readonly");
        MountPoint { source: self.source, target: self.destination, writable, is_bind: true }
    }
}

/// A container that stays between two states counts as stopped.
fn status(state: &str, was_started: bool) -> Result<ContainerStatus> {
    match state {
        "running" => Ok(ContainerStatus::Running),
        "stopped" if !was_started => Ok(ContainerStatus::Created),
        "stopped" | "stopping" | "unknown" => Ok(ContainerStatus::Exited),
        other => Err(unreadable("inspect", &format_args!("unknown state `{other}`"))),
    }
}

/// A time as text, or as the seconds since 2001 that the system's own encoder writes.
fn date(value: &Value) -> Option<String> {
    const EPOCH_2001: i64 = 978_307_200;
    match value {
        Value::String(text) => (!text.is_empty()).then(|| text.clone()),
        #[expect(clippy::cast_possible_truncation, reason = "seconds of our time fit")]
        Value::Number(number) => {
            let seconds = number.as_f64()? as i64;
            jiff::Timestamp::from_second(seconds.checked_add(EPOCH_2001)?).ok().map(|it| it.to_string())
        }
        _ => None,
    }
}

/// Local images of `image list` and `image inspect`: one for each, with the variant of this machine.
pub(super) fn images(json: &[u8]) -> Result<Vec<Image>> {
    array::<ImageJson>("image inspect", json)?.into_iter().map(ImageJson::read).collect()
}

#[derive(Deserialize)]
struct ImageJson {
    configuration: NamedImageJson,
    #[serde(default)]
    variants: Vec<VariantJson>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedImageJson {
    name: String,
    creation_date: Option<Value>,
    descriptor: DescriptorJson,
}

#[derive(Deserialize)]
struct VariantJson {
    platform: PlatformJson,
    #[serde(default)]
    size: u64,
    #[serde(default)]
    config: VariantConfigJson,
}

#[derive(Deserialize)]
struct PlatformJson {
    #[serde(default)]
    os: String,
    #[serde(default)]
    architecture: String,
}

/// The image's own configuration, if it is reported.
#[derive(Deserialize, Default)]
struct VariantConfigJson {
    #[serde(default)]
    config: StartConfiguration,
}

impl VariantJson {
    /// Attestations are variants for no platform.
    fn is_one(&self) -> bool {
        self.platform.os != "unknown" && self.platform.architecture != "unknown"
    }
}

impl ImageJson {
    fn read(self) -> Result<Image> {
        let here = oci_arch(std::env::consts::ARCH);
        let mut ours: Vec<_> = self.variants.into_iter().filter(VariantJson::is_one).collect();
        let at = ours.iter().position(|it| it.platform.architecture == here).unwrap_or_default();
        let variant = (at < ours.len()).then(|| ours.swap_remove(at));
        let (arch, size_bytes) = variant.as_ref().map_or((here, 0), |it| (it.platform.architecture.clone(), it.size));
        let mut config = variant.map(|it| it.config.config).unwrap_or_default();
        let named = self.configuration;
        Ok(Image {
            id: image_id(&named.descriptor.digest)?,
            tags: vec![named.name],
            digest: Some(named.descriptor.digest),
            labels: std::mem::take(&mut config.labels),
            env: std::mem::take(&mut config.env),
            volumes: config.volumes.keys().cloned().collect(),
            config: normalized(config),
            arch,
            size_bytes,
            created: named.creation_date.as_ref().and_then(date).unwrap_or_default(),
        })
    }
}

#[derive(Deserialize)]
struct NamedJson {
    id: Option<String>,
    configuration: NamedConfigurationJson,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct NamedConfigurationJson {
    name: Option<String>,
    id: Option<String>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default)]
    mode: String,
    creation_date: Option<Value>,
}

impl NamedJson {
    fn name(&self, verb: &'static str) -> Result<String> {
        let name = self.configuration.name.as_ref().or(self.configuration.id.as_ref()).or(self.id.as_ref());
        name.cloned().ok_or_else(|| unreadable(verb, &"one has no name"))
    }
}

pub(super) fn networks(json: &[u8]) -> Result<Vec<Network>> {
    let read = |it: NamedJson| {
        let name = it.name("network list")?;
        let internal = it.configuration.mode == "hostOnly";
        let (id, labels) = (it.id.unwrap_or_else(|| name.clone()), it.configuration.labels);
        // Its networks are those of a machine of their own, where nothing of this host listens.
        Ok(Network { id, name, labels, internal, gateways: Vec::new(), subnets: Vec::new() })
    };
    array::<NamedJson>("network list", json)?.into_iter().map(read).collect()
}

pub(super) fn volumes(json: &[u8]) -> Result<Vec<Volume>> {
    let read = |it: NamedJson| {
        let (name, configuration) = (it.name("volume list")?, it.configuration);
        let created = configuration.creation_date.as_ref().and_then(date).unwrap_or_default();
        Ok(Volume { name, labels: configuration.labels, created })
    };
    array::<NamedJson>("volume list", json)?.into_iter().map(read).collect()
}

/// Usage of a container, as far as it is reported.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Stats {
    pub(super) memory_usage_bytes: Option<u64>,
    pub(super) cpu_usage_usec: Option<u64>,
    pub(super) num_processes: Option<u64>,
}

pub(super) fn stats(json: &[u8]) -> Result<Option<Stats>> {
    Ok(array::<Stats>("stats", json)?.into_iter().next())
}

/// Whether its service runs, by `system status`.
pub(super) fn is_up(json: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Status {
        status: String,
    }
    one::<Status>("system status", json).is_ok_and(|it| it.status == "running")
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct VersionJson {
    app_name: String,
    version: String,
}

/// The version of the engine: of its service, or of its program while that does not run.
///
/// # Errors
/// [`Error::TooOld`] for either of them, or for an answer in an older format.
pub(super) fn version(json: &[u8]) -> Result<String> {
    let old = |found: String| Error::TooOld { engine: EngineKind::Container, found, needed: OLDEST };
    let versions: Vec<VersionJson> = array("system version", json).map_err(|_| old("of an unknown version".into()))?;
    if let Some(it) = versions.iter().find(|it| numbers(&it.version) < numbers(OLDEST)) {
        return Err(old(it.version.clone()));
    }
    let service = versions.iter().find(|it| it.app_name == "container-apiserver").or(versions.first());
    service.map(|it| it.version.clone()).ok_or_else(|| old("of an unknown version".into()))
}

/// The first three numbers of a version, with any text around them (`container CLI version 1.1.0 (build: release)`).
fn numbers(version: &str) -> (u32, u32, u32) {
    let mut numbers = version.split(|it: char| !it.is_ascii_digit()).filter_map(|it| it.parse().ok());
    let mut next = || numbers.next().unwrap_or(0);
    (next(), next(), next())
}

/// Whether the engine works on this system, by the system's property list.
///
/// # Errors
/// [`Error::TooOld`] before macOS 26.
pub(super) fn system(plist: &str) -> Result<()> {
    let after = plist.split_once("<key>ProductVersion</key>").and_then(|it| it.1.split_once("<string>"));
    let Some((version, _)) = after.and_then(|it| it.1.split_once("</string>")) else { return Ok(()) };
    if numbers(version).0 >= 26 {
        return Ok(());
    }
    let found = format!("on macOS {}", version.trim());
    Err(Error::TooOld { engine: EngineKind::Container, found, needed: OLDEST_SYSTEM })
}

/// The engine as others describe themselves.
pub(super) fn info(version: String, home: &Path) -> EngineInfo {
    EngineInfo {
        kind: EngineKind::Container,
        version,
        endpoint: "local".into(),
        rootless: true,
        single_user: false,
        arch: oci_arch(std::env::consts::ARCH),
        cgroup: 2,
        data_root: home.join("Library/Application Support/com.apple.container"),
        storage_driver: None,
        compose_version: None,
        gpu: false,
        selinux: false,
        ignored_limits: vec!["pids".into()],
    }
}

#[cfg(test)]
mod tests;
