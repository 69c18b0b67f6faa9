//! What we remember of a container.

mod fingerprints;
mod guest;
mod lease;

use std::collections::BTreeMap;
use std::path::PathBuf;

use coracle_host::fs::{HostPath, HostPathError, InodeId};
use coracle_runtime::{Access, Container, ContainerRuntime, PublishedPort};
use coracle_types::{
    ContainerId, ContainerName, ContainerPath, EngineKind, Ids, ImageId, JobId, LabelNamespace, ProcessId, ProjectName,
    RecordId, SnapshotName, VolumeName,
};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

pub use self::fingerprints::PathFingerprint;
pub(crate) use self::fingerprints::{Fingerprint, FingerprintKind};
pub use self::guest::GuestRecord;
pub use self::lease::Lease;
use crate::clock::{ClockReading, now};

/// The version of the format.
const SCHEMA: u32 = 1;

/// How far the making of a container has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum RecordState {
    /// No create call was sent to the engine, or its result is unknown.
    Intent,
    /// The engine has made it; it is not ready.
    Created,
    /// It is ready.
    Ready,
    /// It is being removed.
    Destroying,
}

/// What a container was made for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Created by a `create` call.
    #[default]
    Primary,
    /// A service of a stack. It belongs to another container and has no record.
    Service,
    /// Builds an image. It is removed afterwards, and counts for no limit.
    Build,
    /// Files and commands of a session, which did not ask for a container.
    Workspace,
    /// Snippets of code of a session.
    Run,
    /// The workflows of a sandbox.
    Sandbox,
    /// Not created by Coracle; the user allowed its use.
    Adopted,
}

impl Role {
    /// The word of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Primary => "primary",
            Self::Service => "service",
            Self::Build => "build",
            Self::Workspace => "workspace",
            Self::Run => "run",
            Self::Sandbox => "sandbox",
            Self::Adopted => "adopted",
        }
    }
}

impl Role {
    /// Whether it is a [slot](crate::SessionContainers) of a session, which has no name of its own.
    #[must_use]
    pub fn is_session_container(self) -> bool {
        matches!(self, Self::Workspace | Self::Run)
    }
}

/// What a guest has in its memory alone, as far as it can be given to it again: names, never values.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct SecretState {
    /// The run of the guest that has it.
    pub run: Option<String>,
    /// Where its variables come from, in the form of the code that passed them.
    pub session: Value,
    /// It has keys for ssh.
    pub ssh: bool,
    /// It has settings of Amplifier.
    pub settings: bool,
    /// Variables that were lost with an earlier run.
    pub missing: Vec<String>,
}

/// A host directory or file that a container was given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMount {
    /// Real path on the host.
    pub host: PathBuf,
    /// Path inside.
    pub container: ContainerPath,
    /// What may be done with it.
    pub mode: Access,
    /// Which file it was when it was mounted last; unknown in records of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<InodeId>,
}

impl RecordedMount {
    /// The mount of what is at that path now.
    #[must_use]
    pub fn new(host: PathBuf, container: ContainerPath, mode: Access) -> Self {
        let identity = HostPath::open(&host).ok().and_then(|it| it.identity().ok());
        Self { host, container, mode, identity }
    }

    /// Whether something else is at its path since, or nothing.
    #[must_use]
    pub fn is_replaced(&self) -> bool {
        let Some(was) = self.identity else { return false };
        match HostPath::open(&self.host) {
            Ok(now) => now.identity().is_ok_and(|now| now != was),
            Err(err) => matches!(err, HostPathError::NotFound(_)),
        }
    }
}

/// The volume with the container's files, which is removed with it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnVolume {
    /// Its name.
    pub name: VolumeName,
    /// Where it is inside.
    pub at: ContainerPath,
}

/// The snapshot that a container was made from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MadeFrom {
    /// Its name.
    pub name: SnapshotName,
    /// It was created only for this container, and is removed with it.
    pub own: bool,
}

/// The program that a container was made to run, as far as it can be started again: no value of its environment is secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MainProgram {
    /// Its words.
    pub words: Vec<String>,
    /// As whom.
    pub user: Ids,
    /// Where.
    pub workdir: ContainerPath,
    /// All of its environment that is no secret.
    pub env: BTreeMap<String, String>,
}

/// A background job that was started. It is reported as lost once the guest's run that knew it has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedJob {
    /// Its id.
    pub job: JobId,
    /// The run of the guest that it was started in.
    pub run: String,
    /// Milliseconds since 1970.
    pub began_ms: u64,
}

/// One file in the state directory.
///
/// Fields that a later version added survive a rewrite by this one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Record {
    /// Version of the format.
    pub schema: u32,
    /// The container's name.
    pub name: ContainerName,
    /// First twelve digits of `id`.
    pub container_id: Option<String>,
    /// The engine's full id, once it is known.
    pub id: Option<ContainerId>,
    /// Our id, the label `<ns>.id`.
    pub record_id: RecordId,
    /// How far it has come.
    pub state: RecordState,
    /// What it was made for.
    #[serde(default)]
    pub role: Role,
    /// Its engine.
    pub engine: EngineKind,
    /// Where that engine listens.
    pub endpoint: String,
    /// The label namespace.
    pub namespace: LabelNamespace,
    /// The session that made it.
    pub session: String,
    /// The image as a name.
    pub image: String,
    /// The image by id.
    pub image_id: Option<ImageId>,
    /// The profile's name.
    pub purpose: Option<String>,
    /// When it was made.
    pub created: jiff::Timestamp,
    /// When a call last used it, to the minute.
    pub last_used: jiff::Timestamp,
    /// It outlives its session.
    pub persistent: bool,
    /// What of the host it was given.
    pub mounts: Vec<RecordedMount>,
    /// The volume that was created only for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume: Option<OwnVolume>,
    /// The working directory is among them.
    pub mount_cwd: bool,
    /// Its ports on the host.
    pub ports: Vec<PublishedPort>,
    /// Where commands run.
    pub workdir: ContainerPath,
    /// Home of the exec user.
    pub home: Option<ContainerPath>,
    /// Name of the exec user inside.
    #[serde(default)]
    pub user_name: Option<String>,
    /// Login shell of the exec user inside.
    #[serde(default)]
    pub shell: Option<ContainerPath>,
    /// Who runs commands; missing is unknown, and then none is run.
    #[serde(default)]
    pub exec_user: Option<Ids>,
    /// Names in the session environment.
    pub env_keys: Vec<String>,
    /// Values that are no secrets.
    pub env_plain: BTreeMap<String, String>,
    /// What only its guest has.
    #[serde(default)]
    pub held: SecretState,
    /// The guest that is its PID 1; missing when it has none.
    #[serde(default)]
    pub guest: Option<GuestRecord>,
    /// What it was made to run.
    #[serde(default)]
    pub main: Option<MainProgram>,
    /// The newest background jobs.
    #[serde(default)]
    pub jobs: Vec<RecordedJob>,
    /// Networks that only this container uses.
    pub networks: Vec<String>,
    /// Its only way out is its proxy.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub proxied: bool,
    /// The record of requests that its proxy answers from, by its path in the directory of all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay: Option<String>,
    /// The stack that was created with it.
    #[serde(default)]
    pub compose_project: Option<ProjectName>,
    /// That stack is another container's, which this one joined.
    #[serde(default)]
    pub compose_joined: bool,
    /// The file of that stack, if one was named.
    #[serde(default)]
    pub compose_file: Option<PathBuf>,
    /// The network of that stack that the container is on.
    #[serde(default)]
    pub compose_network: Option<String>,
    /// What services of the stack that was made with it have of the host.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stack_mounts: Vec<RecordedMount>,
    /// The snapshot that it was made from.
    #[serde(default)]
    pub snapshot: Option<MadeFrom>,
    /// When filling it ended: what was written since is the agent's work.
    #[serde(default)]
    pub filled: Option<jiff::Timestamp>,
    /// The process whose end is the end of its session; missing for sessions that are known by their use.
    #[serde(default)]
    pub owner: Option<ProcessId>,
    /// What is noted to end it in time.
    #[serde(default)]
    pub lease: Lease,
    /// Files that we put beneath its binds, to be taken away with it.
    #[serde(default)]
    pub placeholders: Vec<PathBuf>,
    /// The state of protected paths below its binds when it was created.
    #[serde(default)]
    pub watched: Vec<PathFingerprint>,
    /// Files of the host that lost a set-id bit when it was filled.
    #[serde(default)]
    pub swept: Vec<PathBuf>,
    /// What was done when it was made.
    pub provisioning_report: Value,
    /// Keyed digests of the request, by field.
    #[serde(default, rename = "asked")]
    pub request_digests: BTreeMap<String, String>,
    /// What was answered when it was made, without the report.
    #[serde(default)]
    pub answer: Map<String, Value>,
    /// The process that makes it.
    pub maker: ProcessId,
    /// Version of the tool that wrote this.
    pub tool_version: String,
    /// What a later version wrote.
    #[serde(flatten)]
    pub later: Map<String, Value>,
}

/// Where a container is, and in whose name.
pub(crate) struct Origin {
    pub(crate) engine: EngineKind,
    pub(crate) endpoint: String,
    pub(crate) namespace: LabelNamespace,
}

impl Origin {
    pub(crate) fn for_runtime(runtime: &dyn ContainerRuntime, namespace: &LabelNamespace) -> Self {
        let (engine, endpoint) = (runtime.kind(), runtime.endpoint().address);
        Self { engine, endpoint, namespace: namespace.clone() }
    }
}

/// Why a file is no record.
#[derive(Debug, thiserror::Error)]
pub enum BadRecord {
    /// It has other fields.
    #[error("it is no record: {0}")]
    Unreadable(#[from] serde_json::Error),
    /// Something changed it.
    #[error("its sum does not fit its content")]
    Sum,
    /// It is that of another container or session.
    #[error("it is that of another name")]
    Name,
    /// No record is so long.
    #[error("it is too long")]
    Long,
    /// It is whole, and this version does not know all of it.
    #[error("a newer version wrote it")]
    Newer,
}

impl Record {
    /// The record of a container that does not exist yet. The caller adds what it knows.
    pub(crate) fn intent(origin: Origin, name: ContainerName, session: &str) -> Self {
        let now = now();
        Self {
            schema: SCHEMA,
            name,
            container_id: None,
            id: None,
            record_id: RecordId::random(),
            state: RecordState::Intent,
            role: Role::default(),
            engine: origin.engine,
            endpoint: origin.endpoint,
            namespace: origin.namespace,
            session: session.to_owned(),
            image: String::new(),
            image_id: None,
            purpose: None,
            created: now,
            last_used: now,
            persistent: false,
            mounts: Vec::new(),
            volume: None,
            mount_cwd: false,
            ports: Vec::new(),
            workdir: ContainerPath::root(),
            home: None,
            user_name: None,
            shell: None,
            exec_user: None,
            env_keys: Vec::new(),
            env_plain: BTreeMap::new(),
            held: SecretState::default(),
            guest: None,
            main: None,
            jobs: Vec::new(),
            networks: Vec::new(),
            proxied: false,
            replay: None,
            compose_project: None,
            compose_joined: false,
            compose_file: None,
            compose_network: None,
            stack_mounts: Vec::new(),
            snapshot: None,
            filled: None,
            owner: None,
            lease: Lease { used: Some(ClockReading::now()), ..Lease::default() },
            placeholders: Vec::new(),
            watched: Vec::new(),
            swept: Vec::new(),
            provisioning_report: Value::Null,
            request_digests: BTreeMap::new(),
            answer: Map::new(),
            maker: ProcessId::current(),
            tool_version: String::new(),
            later: Map::new(),
        }
    }

    /// The same once the engine shows its container: ready, made of what that one says of itself.
    pub(crate) fn shown(self, container: &Container) -> Self {
        Self {
            container_id: Some(container.id.short().to_owned()),
            id: Some(container.id.clone()),
            state: RecordState::Ready,
            image: container.image.to_string(),
            image_id: Some(container.image.clone()),
            ports: container.ports.clone(),
            ..self
        }
    }

    /// Notes the run of the guest that has the job `main`: there is one at a time.
    pub fn main_began(&mut self, run: String) {
        let began_ms = u64::try_from(now().as_millisecond()).unwrap_or(0);
        self.has_main(RecordedJob { job: JobId::main(), run, began_ms });
    }

    /// Puts the job `main` where it was, or behind the others.
    pub(crate) fn has_main(&mut self, main: RecordedJob) {
        match self.jobs.iter_mut().find(|it| it.job == main.job) {
            Some(was) => *was = main,
            None => self.jobs.push(main),
        }
    }

    /// The file's bytes, with the sum of all the rest.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        summed_bytes(self)
    }

    /// Reads a file's bytes. A flipped byte cannot become another user: the sum is checked first.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Result<Self, BadRecord> {
        summed_value(bytes, SCHEMA)
    }
}

/// A file's bytes, with the sum of all the rest.
///
/// # Panics
/// For a value that is no JSON object.
#[must_use]
pub fn summed_bytes(it: &impl Serialize) -> Vec<u8> {
    let mut value = serde_json::to_value(it).expect("a record has string keys only");
    let sum = sum(&value);
    if let Value::Object(fields) = &mut value {
        fields.insert("sum".into(), sum.into());
    }
    let mut bytes = serde_json::to_vec_pretty(&value).expect("a value serialises");
    bytes.push(b'\n');
    bytes
}

/// What such bytes say, if their sum fits and their format is at most `schema`.
///
/// # Errors
/// [`BadRecord`].
pub fn summed_value<T: DeserializeOwned>(bytes: &[u8], schema: u32) -> Result<T, BadRecord> {
    let mut value: Value = serde_json::from_slice(bytes)?;
    // A later format may also have another sum.
    if value.get("schema").and_then(Value::as_u64).is_some_and(|theirs| theirs > schema.into()) {
        return Err(BadRecord::Newer);
    }
    let stored_sum = value.as_object_mut().and_then(|it| it.remove("sum"));
    if stored_sum != Some(sum(&value).into()) {
        return Err(BadRecord::Sum);
    }
    // Nothing of it is damaged, so what cannot be read is a word that a later version added.
    serde_json::from_value(value).map_err(|_| BadRecord::Newer)
}

fn sum(value: &Value) -> String {
    hex::encode(Sha256::digest(canonical(value)))
}

/// JSON with sorted keys and no blanks, whatever order the map type keeps.
fn canonical(value: &Value) -> String {
    match value {
        Value::Object(fields) => {
            let sorted: BTreeMap<_, _> = fields.iter().collect();
            let parts: Vec<_> =
                sorted.iter().map(|(key, it)| format!("{}:{}", Value::from(key.as_str()), canonical(it))).collect();
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(items) => format!("[{}]", items.iter().map(canonical).collect::<Vec<_>>().join(",")),
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn record(name: &str) -> Record {
        let namespace = LabelNamespace::parse("coracle").unwrap();
        let origin = Origin { engine: EngineKind::Fake, endpoint: "local".into(), namespace };
        Record {
            image: "busybox".into(),
            created: jiff::Timestamp::UNIX_EPOCH,
            last_used: jiff::Timestamp::UNIX_EPOCH,
            workdir: ContainerPath::parse("/workspace").unwrap(),
            exec_user: Some(Ids { uid: 1000, gid: 1000 }),
            env_plain: [("A".to_owned(), "b".to_owned())].into(),
            lease: Lease::default(),
            ..Record::intent(origin, ContainerName::parse(name).unwrap(), "default")
        }
    }

    #[test]
    fn a_record_reads_back_and_keeps_what_a_later_version_wrote() {
        let mut it = record("web");
        it.later.insert("invented_later".into(), serde_json::json!({ "x": [1, 2] }));
        assert_eq!(Record::from_bytes(&it.to_bytes()).unwrap(), it);
    }

    #[test]
    fn a_record_cut_or_flipped_at_any_byte_is_none() {
        let it = record("web");
        let bytes = it.to_bytes();
        for at in 0..bytes.len() - 2 {
            assert!(Record::from_bytes(&bytes[..at]).is_err(), "cut at {at}");
            let mut flipped = bytes.clone();
            flipped[at] ^= 1;
            // White space may change into other white space; what it says must not.
            assert!(Record::from_bytes(&flipped).map_or(true, |read| read == it), "flipped at {at}");
        }
    }
}
