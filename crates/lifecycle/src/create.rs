//! Creates a container: records the intent, calls the engine, records the result. Undoes all of it if a step fails.

mod volume;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use coracle_client::Link;
use coracle_runtime::{
    Access, Admitted, Container, ContainerRuntime, CreateSpec, Image, LabelFilter, Mount, NetworkAttachment,
    NetworkRequest, PolicyRefusal, Problem, check_mounts, hold_in_place, mounts_over,
};
use coracle_types::{
    Capability, ContainerId, ContainerName, ContainerPath, Handle, Ids, LabelNamespace, ProcessId, ProjectName,
    random_hex,
};
use serde_json::{Map, Value};

use crate::clock::now;
use crate::guest::{GuestProgram, Links};
use crate::networks::{place, shares_network};
use crate::reconcile::recover_making;
use crate::record::{MadeFrom, MainProgram, Origin, OwnVolume, Record, RecordState, RecordedMount, Role, SecretState};
use crate::remove::remove_all;
use crate::shared_mounts::{shared_problem, stack_problem};
use crate::store::LoadOutcome;
use crate::{Error, Lock, Result, Review, Store, host_review, protected_paths};

/// What is recorded of a container before it is created.
#[derive(Clone, Debug)]
pub struct NewRecord {
    /// The container's name.
    pub name: ContainerName,
    /// What the container is used for.
    pub role: Role,
    /// The session that creates it.
    pub session: String,
    /// The name of its purpose, such as `python`.
    pub purpose: Option<String>,
    /// Whether it outlives its session.
    pub persistent: bool,
    /// Where commands run.
    pub workdir: ContainerPath,
    /// Whether the working directory of the host is mounted.
    pub mount_cwd: bool,
    /// Keyed digests of the request, by field.
    pub request_digests: BTreeMap<String, String>,
    /// The version of Coracle that creates it.
    pub tool_version: String,
    /// The Compose project of its stack.
    pub compose_project: Option<ProjectName>,
    /// Whether another container owns that stack.
    pub compose_joined: bool,
    /// The Compose file, if the request named one.
    pub compose_file: Option<PathBuf>,
    /// The snapshot that it is created from.
    pub snapshot: Option<MadeFrom>,
    /// Whether its only way out is a proxy.
    pub proxied: bool,
    /// The record that its proxy answers from.
    pub replay: Option<String>,
    /// The process that the session ends with, if there is one.
    pub owner: Option<ProcessId>,
    /// Paths that are mounted read-only over writable binds.
    pub protected: Vec<String>,
    /// Maximum number of containers of this session.
    pub max_containers: usize,
    /// Maximum number of containers of all sessions.
    pub max_containers_total: usize,
}

impl NewRecord {
    /// A container that ends with its session, without a stack and without protected paths. A session may have 10
    /// containers, and all sessions 50.
    pub fn new(name: ContainerName, session: impl Into<String>, workdir: ContainerPath) -> Self {
        Self {
            name,
            role: Role::Primary,
            session: session.into(),
            purpose: None,
            persistent: false,
            workdir,
            mount_cwd: false,
            request_digests: BTreeMap::new(),
            tool_version: String::new(),
            compose_project: None,
            compose_joined: false,
            compose_file: None,
            snapshot: None,
            proxied: false,
            replay: None,
            owner: None,
            protected: Vec::new(),
            max_containers: 10,
            max_containers_total: 50,
        }
    }
}

/// A container whose files a new one gets.
#[derive(Clone, Debug)]
pub struct CopiedContainer {
    /// The container.
    pub id: ContainerId,
    /// The checkpoint whose files are copied; those that it has now without one.
    pub checkpoint: Option<u64>,
}

/// A container that is being created. [`ready`](Self::ready) or [`undo`](Self::undo) ends it; if the process dies first,
/// [`reconcile`](crate::reconcile) undoes it.
#[derive(Debug)]
pub struct Creation<'a> {
    pub(crate) runtime: &'a dyn ContainerRuntime,
    pub(crate) store: &'a Store,
    record: Record,
    protected: Vec<String>,
    /// Labels in addition to those of every managed container.
    more_labels: BTreeMap<String, String>,
    /// When provisioning ended. Files that are newer count as work.
    filled: Option<jiff::Timestamp>,
    /// The container whose files are copied, instead of those of the image.
    parent: Option<CopiedContainer>,
    /// Whether a create call was sent to the engine.
    is_requested: bool,
    _lock: Lock,
}

/// Generates a name for a container whose request has none. Eight hex digits: with six, two of a thousand containers
/// would share a name in 3 of 100 runs.
#[must_use]
pub fn fresh_name(namespace: &LabelNamespace, purpose: Option<&str>) -> ContainerName {
    let name = format!("{namespace}-{}-{}", purpose.unwrap_or("env"), random_hex::<4>());
    ContainerName::parse(name).expect("a namespace, a purpose and hex digits are a name")
}

fn counted(records: Vec<Arc<Record>>) -> Vec<Arc<Record>> {
    records.into_iter().filter(|it| it.role == Role::Primary || it.role.is_session_container()).collect()
}

/// Maximum numbers of containers.
struct ContainerLimits {
    per_session: usize,
    total: usize,
}

impl ContainerLimits {
    /// Fails if one more container would exceed a limit. Session containers count only towards the total.
    fn check(&self, records: &[Arc<Record>], session: &str) -> Result<()> {
        let of_session = records.iter().filter(|it| it.session == session && it.role == Role::Primary).count();
        within(of_session, self.per_session, "max_containers")?;
        within(records.len(), self.total, "max_containers_total")
    }
}

fn within(current: usize, limit: usize, setting: &'static str) -> Result<()> {
    if current < limit { Ok(()) } else { Err(Error::LimitReached { limit, current, setting }) }
}

/// Checks only Coracle's records. Whether another container has the name, the engine reports at `create`.
fn name_is_free(store: &Store, name: &ContainerName) -> Result<()> {
    match store.load(name)? {
        LoadOutcome::Record(_) => Err(Error::NameTaken { name: name.clone(), ours: true, running: None }),
        LoadOutcome::Damaged | LoadOutcome::Missing => Ok(()),
    }
}

fn record_of(origin: Origin, draft: NewRecord) -> Record {
    Record {
        role: draft.role,
        purpose: draft.purpose,
        persistent: draft.persistent,
        mount_cwd: draft.mount_cwd,
        workdir: draft.workdir,
        compose_project: draft.compose_project,
        compose_joined: draft.compose_joined,
        compose_file: draft.compose_file,
        snapshot: draft.snapshot,
        owner: draft.owner,
        request_digests: draft.request_digests,
        proxied: draft.proxied,
        replay: draft.replay,
        tool_version: draft.tool_version,
        ..Record::intent(origin, draft.name, &draft.session)
    }
}

impl<'a> Creation<'a> {
    /// Writes the intent to create a container, which reserves its name.
    ///
    /// # Errors
    /// [`Error::NameTaken`], [`Error::LimitReached`], [`Error::Busy`].
    pub async fn begin(runtime: &'a dyn ContainerRuntime, store: &'a Store, draft: NewRecord) -> Result<Self> {
        let lock = store.lock(&draft.name).await?;
        let origin = Origin::for_runtime(runtime, store.signer().namespace());
        if let LoadOutcome::Record(left) = store.load(&draft.name)?
            && (left.engine, &left.endpoint) == (origin.engine, &origin.endpoint)
        {
            recover_making(runtime, store, &left).await?;
        }
        name_is_free(store, &draft.name)?;
        let protected = draft.protected.clone();
        let limits = ContainerLimits { per_session: draft.max_containers, total: draft.max_containers_total };
        let record = record_of(origin, draft);
        let counting = store.common_lock("count").await?;
        let mut records = counted(store.records()?);
        if record.role == Role::Build {
            store.save(&record)?;
            return Ok(Self::new(runtime, store, record, protected, lock));
        }
        if limits.check(&records, &record.session).is_err() {
            // Containers that another program removed do not count.
            let managed = LabelFilter(vec![(store.signer().key("managed"), Some("true".into()))]);
            let there: Vec<_> = runtime.list(&managed).await?.into_iter().map(|it| it.id).collect();
            records.retain(|it| it.engine != runtime.kind() || it.id.as_ref().is_none_or(|id| there.contains(id)));
        }
        limits.check(&records, &record.session)?;
        store.save(&record)?;
        drop(counting);
        Ok(Self::new(runtime, store, record, protected, lock))
    }

    fn new(
        runtime: &'a dyn ContainerRuntime,
        store: &'a Store,
        record: Record,
        protected: Vec<String>,
        lock: Lock,
    ) -> Self {
        let more_labels = BTreeMap::new();
        Self {
            runtime,
            store,
            record,
            protected,
            more_labels,
            filled: None,
            parent: None,
            is_requested: false,
            _lock: lock,
        }
    }
}

impl Creation<'_> {
    /// Adds labels to those of every managed container; the signature covers them too.
    pub(crate) fn add_labels(&mut self, labels: BTreeMap<String, String>) {
        self.more_labels = labels;
    }

    /// Sets since when files count as work, for a container whose files are older than itself.
    pub(crate) fn set_filled_at(&mut self, at: jiff::Timestamp) {
        self.filled = Some(at);
    }

    /// Records the volume before the engine creates it, so that [`undo`](Self::undo) removes it even if the engine
    /// creates it late.
    pub(crate) fn record_volume(&mut self, volume: OwnVolume) -> Result<()> {
        (self.is_requested, self.record.volume) = (true, Some(volume));
        Ok(self.store.save(&self.record)?)
    }

    /// The record so far.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// Creates the container with files of `parent`: see [`ContainerRuntime::fork`] and
    /// [`Checkpoints::branch`](coracle_runtime::Checkpoints::branch).
    pub fn copy_files_of(&mut self, parent: CopiedContainer) {
        self.parent = Some(parent);
    }

    /// Creates and starts the container.
    ///
    /// # Errors
    /// Anything that the engine refuses; the caller then calls [`undo`](Self::undo).
    pub async fn create_container(
        &mut self,
        admitted: Admitted,
        image: &Image,
        reference: &str,
        guest: Option<&GuestProgram>,
    ) -> Result<Container> {
        let spec = admitted.spec();
        let own = spec.is_rootless_inside().then_some(spec.exec_user);
        self.record.guest = guest.map(|it| it.record(own));
        let guest_on = guest.map(|it| it.place(self.store, &self.record)).transpose()?;
        let worker = guest.and_then(|it| it.worker.clone());
        self.record.exec_user = Some(spec.exec_user);
        self.record.image = reference.to_owned();
        self.record.image_id = Some(image.id.clone());
        self.record.mounts = spec.mounts.iter().map(recorded).collect();
        let over = self.protect_binds(spec).await?;
        self.record_protected_state(&spec.mounts).await?;
        let held = self.store.hold_network().await?;
        let network = place(self.runtime, self.store, &spec.network).await?;
        let is_shared = spec.network == NetworkRequest::Bridge && shares_network(self.runtime.kind());
        let _held = if is_shared { self.store.network.keep(held, self.runtime) } else { Some(held) };
        let requested: Vec<Mount> = spec.mounts.iter().chain(&over).cloned().collect();
        let labels = self.labels(self.record.role, Some(spec.exec_user), image)?;
        let placed = admitted
            .with_overlay_mounts(over)
            .with_guest(guest_on)
            .with_worker(worker)
            .labelled(labels)
            .with_persistence(self.record.persistent)
            .with_image(image.id.clone(), network);
        self.is_requested = true;
        let made = match &self.parent {
            Some(CopiedContainer { id, checkpoint: None }) => self.runtime.fork(id, &placed).await,
            Some(CopiedContainer { id, checkpoint: Some(number) }) => {
                let (engine, capability) = (self.runtime.kind(), Capability::Checkpoint);
                let checkpoints = self.runtime.as_checkpoints();
                let unsupported = coracle_types::Error::Unsupported { engine, capability };
                checkpoints.ok_or(unsupported)?.branch(id, *number, &placed).await
            }
            None => self.runtime.create(&placed).await,
        };
        let id = match made {
            Ok(id) => id,
            Err(coracle_types::Error::NameTaken(name)) => return Err(self.name_taken(name).await),
            Err(err) => return Err(err.into()),
        };
        self.remember_id(id.clone())?;
        if let Some(guest) = guest.filter(|it| !it.shared_files) {
            guest.upload(self.runtime, self.store, &id).await?;
        }
        self.runtime.start(&id).await?;
        let container = self.runtime.inspect(&id.into()).await?;
        unchanged(&requested, &container)?;
        self.record.ports.clone_from(&container.ports);
        Ok(container)
    }

    /// Waits until the guest of the new container responds.
    ///
    /// # Errors
    /// If it does not; the caller then calls [`undo`](Self::undo).
    pub async fn wait_for_guest(&mut self, links: &Links, container: &Container) -> Result<Link> {
        let link = links.wait_for_guest(self.runtime, self.store, &mut self.record, container).await?;
        if self.record.proxied {
            // The process that runs its proxy finds the guest by the record.
            self.store.save(&self.record)?;
        }
        Ok(link)
    }

    /// Builds the error for a name that another container has. That container may be a managed one whose record is
    /// lost.
    async fn name_taken(&self, name: ContainerName) -> Error {
        let holder = self.runtime.inspect(&Handle::Name(name.clone())).await.ok();
        let ours = holder.as_ref().is_some_and(|it| self.store.signed(self.runtime.kind(), &it.labels));
        Error::NameTaken { name, ours, running: holder.map(|it| it.running()) }
    }

    /// Creates placeholders for missing protected paths, and returns the read-only mounts over every writable bind.
    ///
    /// The record names the placeholders before the engine is called, so they are always removed with the container.
    /// Other containers' mounts are checked under the lock that this record is saved under: of two concurrent
    /// creations, the second sees the first.
    async fn protect_binds(&mut self, spec: &CreateSpec) -> Result<Vec<Mount>> {
        let mounts = &spec.mounts;
        check_mounts(self.runtime.kind(), mounts)?;
        outside_of_programs(mounts, &self.protected)?;
        let _lock = self.store.common_lock("placeholders").await?;
        let others = self.others()?;
        if let Some(refused) = shared_problem(mounts, &others) {
            return Err(refused.into());
        }
        let known: Vec<_> = others.iter().flat_map(|it| it.placeholders.clone()).collect();
        let stacks = others.iter().map(|record| &**record).chain([&self.record]);
        let of_services: Vec<_> = stacks.flat_map(|record| &record.stack_mounts).map(|it| it.host.clone()).collect();
        let mut over = Vec::new();
        for bind in mounts.iter().filter(|it| it.access == Access::ReadWrite && it.host.is_dir()) {
            let placed = protected_paths::place(&bind.host, &self.protected, &known, &mut self.record.placeholders);
            placed.map_err(|source| coracle_types::Error::Host {
                what: format!("cannot protect `{}`", bind.host.real().join(".git").display()),
                source,
            })?;
            let others = spec.volumes.iter().map(|it| &it.at).chain(spec.tmpfs.iter().map(|it| &it.at));
            let taken: Vec<_> = others.chain(mounts.iter().map(|it| &it.at)).collect();
            let mut of_bind = mounts_over(bind, taken.iter().copied(), &self.protected);
            // A service has no guest that waits until its mounts were compared.
            hold_in_place(bind, taken, of_services.iter().map(PathBuf::as_path), &mut of_bind);
            over.extend(of_bind);
        }
        self.store.save(&self.record)?;
        Ok(over)
    }

    /// Records the current state of protected paths. Reading may take long, so it holds no lock that other creations
    /// need.
    async fn record_protected_state(&mut self, mounts: &[Mount]) -> Result<()> {
        let (mounts, protected) = (mounts.to_vec(), self.protected.clone());
        let prints = tokio::task::spawn_blocking(move || host_review::fingerprint_paths(&mounts, &protected)).await;
        self.record.watched = prints.map_err(|err| coracle_types::Error::Host {
            what: "cannot read the protected paths".into(),
            source: err.into(),
        })?;
        Ok(())
    }

    /// Returns the signed labels. A container inherits the labels of its image, so the signature covers Coracle's among
    /// them.
    fn labels(&self, role: Role, exec_user: Option<Ids>, image: &Image) -> Result<BTreeMap<String, String>> {
        let (signer, record) = (self.store.signer(), &self.record);
        let prefix = signer.key("");
        let mut labels: BTreeMap<_, _> =
            image.labels.clone().into_iter().filter(|it| it.0.starts_with(&prefix)).collect();
        self.store.trust_labels(self.runtime.kind(), image)?;
        let own = [
            ("managed", "true".to_owned()),
            ("id", record.record_id.to_string()),
            ("role", role.as_str().to_owned()),
            ("name", record.name.to_string()),
            ("created", record.created.to_string()),
            ("purpose", record.purpose.clone().unwrap_or_default()),
            ("persistent", record.persistent.to_string()),
            ("session", record.session.clone()),
            ("exec_user", exec_user.map(|it| it.to_string()).unwrap_or_default()),
            ("workdir", record.workdir.to_string()),
            ("guest", record.guest.as_ref().map(|it| it.label().to_owned()).unwrap_or_default()),
            ("init_user", record.guest.as_ref().and_then(|it| it.own).map(|it| it.to_string()).unwrap_or_default()),
            ("compose_project", record.compose_project.as_ref().map(ToString::to_string).unwrap_or_default()),
            ("compose_joined", record.compose_joined.to_string()),
            ("version", record.tool_version.clone()),
        ]
        .map(|(name, value)| (signer.key(name), value));
        labels.extend(own);
        labels.extend(
            crate::volume::labels(record.volume.as_ref()).into_iter().map(|(name, value)| (signer.key(name), value)),
        );
        labels.extend(self.more_labels.clone());
        signer.sign(self.runtime.kind(), &mut labels);
        Ok(labels)
    }

    fn remember_id(&mut self, id: ContainerId) -> Result<()> {
        self.record.container_id = Some(id.short().to_owned());
        self.record.id = Some(id);
        self.record.state = RecordState::Created;
        // Without a record the container would be lost, so the caller removes it if this fails.
        Ok(self.store.save(&self.record)?)
    }

    /// Records the container's stack before the engine creates it, so that [`undo`](Self::undo) removes it even if the
    /// engine creates parts of it late.
    ///
    /// `binds` are those of its services, and the directories that images are built from. They are compared with the
    /// mounts of other containers under the lock that this record is saved under: an earlier replacement is noticed,
    /// and a later one is impossible.
    ///
    /// # Errors
    /// If a bind lies in a directory that another container can write to, or the other way round; if a bind was
    /// replaced since it was checked; or if the record cannot be written.
    pub async fn begin_stack(&mut self, network: Option<String>, binds: &[Mount]) -> Result<()> {
        let _lock = self.store.common_lock("placeholders").await?;
        let others = self.others()?;
        self.record.stack_mounts = binds.iter().map(recorded).collect();
        // Files are bound by another name in the state directory.
        let directories: Vec<_> = binds.iter().filter(|bind| bind.host.is_dir()).cloned().collect();
        if let Some(refused) = shared_problem(&directories, &others).or_else(|| stack_problem(&self.record, &others)) {
            return Err(refused.into());
        }
        let moved = binds.iter().filter(|bind| !bind.host.is_in_place());
        let targets: Vec<_> = moved.map(|bind| bind.host.real().display().to_string()).collect();
        if !targets.is_empty() {
            return Err(coracle_types::Error::MountChanged { targets }.into());
        }
        self.is_requested = true;
        self.record.compose_network = network;
        Ok(self.store.save(&self.record)?)
    }

    /// The records of other containers.
    fn others(&self) -> Result<Vec<Arc<Record>>> {
        let is_other = |record: &Arc<Record>| record.record_id != self.record.record_id;
        Ok(self.store.records()?.into_iter().filter(is_other).collect())
    }

    /// Records the exec user's name, home and shell.
    pub fn set_user(&mut self, name: String, home: ContainerPath, shell: ContainerPath) {
        self.record.user_name = Some(name);
        self.record.home = Some(home);
        self.record.shell = Some(shell);
    }

    /// Records the session's variables: all names, the values that are not secret, and the state of those that only the
    /// guest has.
    pub fn set_session_variables(&mut self, keys: Vec<String>, plain: BTreeMap<String, String>, held: SecretState) {
        (self.record.env_keys, self.record.env_plain, self.record.held) = (keys, plain, held);
    }

    /// Records the work directory, if it is only known after the container was created.
    pub fn set_workdir(&mut self, workdir: ContainerPath) {
        self.record.workdir = workdir;
    }

    /// Removes set-id bits that root inside left on host files while the container was filled, and records the files
    /// for `status`. The result says whether the time sufficed to check all files.
    pub async fn clear_set_id_bits(&mut self, link: &Link) -> Review {
        // Without root on the host, root inside cannot set such bits there.
        if self.runtime.endpoint().rootless {
            return Review::default();
        }
        let mut swept = host_review::take_off(link, &self.record).await;
        swept.cut |= swept.paths.len() > host_review::MOST;
        swept.paths.truncate(host_review::MOST);
        self.record.swept.clone_from(&swept.paths);
        host_review::of_swept(&swept)
    }

    /// Records that the container is ready.
    ///
    /// # Errors
    /// If the record cannot be written; the caller then calls [`undo`](Self::undo).
    pub fn ready(&mut self, report: Value, answer: Map<String, Value>) -> Result<Record> {
        self.record.provisioning_report = report;
        self.record.answer = answer;
        self.record.filled = Some(self.filled.unwrap_or_else(now));
        self.record.state = RecordState::Ready;
        self.store.save(&self.record)?;
        Ok(self.record.clone())
    }

    /// Records the main program, so that it is started again after a restart.
    pub fn set_main_program(&mut self, main: MainProgram) {
        self.record.main = Some(main);
    }

    /// Records that the job `main` was started in this run of the guest. Not through [`Store::remember_job`], which
    /// would wait for the lock that this creation holds.
    pub fn set_main_run(&mut self, run: String) {
        self.record.main_began(run);
    }

    /// Creates a container of an image to inspect its files, and never starts it. The caller removes it. It is labelled
    /// with this creation's id, so it is cleaned up with the rest if this process dies.
    ///
    /// # Errors
    /// Anything that the engine refuses.
    pub async fn create_for_inspection(&mut self, bare: Admitted, image: &Image) -> Result<ContainerId> {
        let labels = self.labels(Role::Build, None, image)?;
        self.is_requested = true;
        Ok(self.runtime.create(&bare.labelled(labels).with_image(image.id.clone(), NetworkAttachment::None)).await?)
    }

    /// Removes everything that was created, by id. Returns the failures; what could not be removed stays in the record.
    pub async fn undo(self) -> Vec<Error> {
        if self.record.id.is_none() && self.is_requested {
            // The engine may still execute a call that timed out or was cancelled.
            if let Err(err) = self.store.abandon(&self.record) {
                tracing::warn!(%err, "the engine may still create the container of a cancelled call");
            }
        }
        let failed = remove_all(self.runtime, self.store, &self.record).await.failed;
        if !failed.is_empty() {
            return failed;
        }
        self.store.forget(&self.record.name).err().map(Error::from).into_iter().collect()
    }
}

/// Refuses writable binds below absolute protected paths, such as a hooks directory that git's configuration names: no
/// read-only mount covers those.
fn outside_of_programs(mounts: &[Mount], protected: &[String]) -> Result<()> {
    let lies_in = |mount: &&Mount| protected.iter().any(|it| it.starts_with('/') && mount.host.real().starts_with(it));
    let problem = |mount: &Mount| {
        let value = mount.host.real().display().to_string();
        let message = format!("git on the host runs files of `{value}`: mount it read-only, or the directory above it");
        Problem { rule: "files.protected", setting: Some("workspace.protected"), value, message }
    };
    let writable = mounts.iter().filter(|mount| mount.access == Access::ReadWrite);
    let problems: Vec<_> = writable.filter(lies_in).map(problem).collect();
    if problems.is_empty() { Ok(()) } else { Err(PolicyRefusal { problems }.into()) }
}

fn recorded(mount: &Mount) -> RecordedMount {
    let identity = mount.host.identity().ok();
    let host = mount.host.real().to_owned();
    RecordedMount { host, container: mount.at.clone(), mode: mount.access, identity }
}

/// Checks that the mounted paths still lead to the admitted directories, since they may have been replaced in between.
/// The guest later compares the mounts themselves.
fn unchanged(requested: &[Mount], container: &Container) -> Result<()> {
    let exchanged = |mount: &&Mount| {
        let made = container.mounts.iter().find(|it| it.target == mount.at.as_str());
        made.is_none_or(|it| !mount.host.is_same_as(&it.source).unwrap_or(false))
    };
    let targets: Vec<_> =
        requested.iter().filter(exchanged).map(|mount| mount.host.real().display().to_string()).collect();
    if targets.is_empty() { Ok(()) } else { Err(coracle_types::Error::MountChanged { targets }.into()) }
}
