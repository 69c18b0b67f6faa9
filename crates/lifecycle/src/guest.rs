//! The guest of a container: how it comes in, and how it is met again.

use std::collections::BTreeMap;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use coracle_archive::transfer::{Limits, Writer};
use coracle_client::{Link, LinkSettings, SocketAt, Transport, WeakLink};
use coracle_host::fs::HostPath;
use coracle_runtime::{Container, ContainerRuntime, ExecTarget, GuestDelivery, mount_identities};
use coracle_types::{ContainerId, ContainerPath, Error as Engine, Ids};
use tokio::time::timeout;

use crate::record::{GuestRecord, Record, RecordState, RecordedJob};
use crate::store::own_directory;
use crate::{ManagedContainer, Result, Store};

/// How often a starting guest is polled: it takes a few milliseconds.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// A guest that has not shown itself by then is looked for by the engine's stream.
const PATIENCE: Duration = Duration::from_secs(2);

/// Jobs that a record remembers.
const MAX_JOBS: usize = 100;

/// The guest that new containers get.
#[derive(Clone, Debug)]
pub struct GuestProgram {
    /// The program on this host, for the architecture of the container.
    pub path: PathBuf,
    /// SHA-256 of the program, in hex.
    pub sha256: String,
    /// The engine sees the files of this host, so that the program can be bound.
    pub shared_files: bool,
    /// A worker's program for the same architecture, placed beside the guest.
    pub worker: Option<PathBuf>,
}

impl GuestProgram {
    /// What a record remembers, before the container is made.
    pub(crate) fn record(&self, own: Option<Ids>) -> GuestRecord {
        GuestRecord { sha256: self.sha256.clone(), socket: self.shared_files, pid1: None, own }
    }

    /// How it comes into a container of that record.
    pub(crate) fn place(&self, store: &Store, record: &Record) -> Result<GuestDelivery> {
        if !self.shared_files {
            return Ok(GuestDelivery::Uploaded);
        }
        let link = store.link_dir(record);
        own_directory(&link)?;
        store.lend_link(record)?;
        Ok(GuestDelivery::Bound { program: self.path.clone(), link })
    }

    /// Puts it into a container that was not started yet.
    pub(crate) async fn upload(&self, runtime: &dyn ContainerRuntime, store: &Store, id: &ContainerId) -> Result<()> {
        let (paths, scratch) = ((self.path.clone(), self.worker.clone()), store.scratch());
        let packed = tokio::task::spawn_blocking(move || pack(&paths.0, paths.1.as_deref(), &scratch)).await;
        let tar = packed.map_err(|err| cannot_pack(err.into()))??;
        Ok(runtime.upload(id, &ContainerPath::root(), tar).await?)
    }
}

fn pack(program: &Path, worker: Option<&Path>, scratch: &Path) -> Result<File> {
    let limits = Limits { max_bytes: 64 << 20, max_entries: 3 };
    let mut writer = Writer::new(tempfile::tempfile_in(scratch).map_err(cannot_pack)?, Ids::ROOT, limits);
    writer.dir(".coracle", 0o755, None).map_err(Engine::from)?;
    let programs = [(".coracle/guest", Some(program)), (".coracle/worker", worker)];
    for (name, path) in programs.into_iter().filter_map(|(name, path)| Some((name, path?))) {
        let file = HostPath::open(path)?.file().map_err(cannot_pack)?;
        writer.host_file(name, file).map_err(Engine::from)?;
    }
    Ok(writer.finish().map_err(Engine::from)?.0)
}

fn cannot_pack(source: std::io::Error) -> crate::Error {
    Engine::Host { what: "cannot pack the guest".into(), source }.into()
}

impl Store {
    /// The directory that a container sees as its link.
    pub(crate) fn link_dir(&self, record: &Record) -> PathBuf {
        self.root().join("link").join(record.record_id.as_str())
    }

    /// Gives the directory of a guest's socket to a PID 1 that is not root, which could not listen there else. To be
    /// called before each start.
    pub(crate) fn lend_link(&self, record: &Record) -> Result<()> {
        match record.guest.as_ref().filter(|it| it.socket).and_then(|it| it.own) {
            Some(own) => self.own_link(record, own),
            None => Ok(()),
        }
    }

    /// The guest listens, so from now on no command inside can reach the directory, which is on a disk of this host.
    pub(crate) fn take_link_back(&self, record: &Record) -> Result<()> {
        match record.guest.as_ref().filter(|it| it.socket && it.own.is_some()) {
            Some(_) => self.own_link(record, Ids::ROOT),
            None => Ok(()),
        }
    }

    /// Who is not root here cannot give it away, and opens it to all inside; for others of this host the directories
    /// above it are closed.
    fn own_link(&self, record: &Record, owner: Ids) -> Result<()> {
        let link = self.link_dir(record);
        let given = if rustix::process::geteuid().is_root() {
            std::os::unix::fs::lchown(&link, Some(owner.uid), Some(owner.gid))
        } else {
            let mode = if owner == Ids::ROOT { 0o700 } else { 0o777 };
            fs::set_permissions(&link, Permissions::from_mode(mode))
        };
        given.map_err(|source| {
            let what = format!("cannot give away `{}`", link.display());
            Engine::Host { what, source }.into()
        })
    }

    /// Remembers a job of a container, so that it can be reported as lost after a restart.
    ///
    /// # Errors
    /// When the record cannot be read or written.
    pub async fn remember_job(&self, record: &Record, job: RecordedJob) -> Result<()> {
        let lock = self.lock(&record.name).await?;
        self.change(&lock, record, |now| {
            now.jobs.push(job);
            let old = now.jobs.len().saturating_sub(MAX_JOBS);
            now.jobs.drain(..old);
        })
    }

    /// Where the guest of a record is met without asking the engine.
    pub(crate) fn socket(&self, record: &Record) -> Option<SocketAt> {
        let guest = record.guest.as_ref().filter(|it| it.socket)?;
        Some(SocketAt { dir: self.link_dir(record), pid1: guest.pid1.clone() })
    }
}

/// A guest that was held answers by then.
const HELD_ANSWERS: Duration = Duration::from_secs(1);

/// A guest that sent something this recently is not pinged: a program that pauses its container has to be
/// started first, which takes longer. That it ended is known at once.
const ACTIVE_RECENTLY: Duration = Duration::from_millis(2);

/// Whether the guest at the other end of a link that is connected answers.
pub(crate) async fn answers(link: &Link) -> bool {
    link.was_active(ACTIVE_RECENTLY) || link.transport().is_some() && pinged(link, HELD_ANSWERS).await
}

/// Whether a guest says something by then.
pub(crate) async fn pinged(link: &Link, within: Duration) -> bool {
    matches!(timeout(within, link.ping()).await, Ok(Ok(())))
}

/// The links of this process: one for each container, held as long as it answers.
#[derive(Clone, Debug)]
pub struct Links {
    settings: LinkSettings,
    held: Arc<Mutex<BTreeMap<ContainerId, Link>>>,
    /// All open links. Other code may still hold one, such as the container's proxy.
    lent: Arc<Mutex<BTreeMap<ContainerId, Vec<WeakLink>>>>,
}

impl Links {
    /// None yet.
    #[must_use]
    pub fn new(settings: LinkSettings) -> Self {
        Self { settings, held: Arc::default(), lent: Arc::default() }
    }

    fn held(&self, id: &ContainerId) -> Option<Link> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).get(id).cloned()
    }

    fn hold(&self, id: &ContainerId, link: &Link) {
        let mut lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        lent.retain(|_, all| {
            all.retain(|it| it.upgrade().is_some());
            !all.is_empty()
        });
        let its = lent.entry(id.clone()).or_default();
        if !its.iter().filter_map(WeakLink::upgrade).any(|it| it.is_same(link)) {
            its.push(link.downgrade());
        }
        drop(lent);
        self.held.lock().unwrap_or_else(PoisonError::into_inner).insert(id.clone(), link.clone());
    }

    /// How many of the engine's `exec` commands this process runs in a container for links.
    pub(crate) fn execs(&self, id: &ContainerId) -> usize {
        let lent = self.lent.lock().unwrap_or_else(PoisonError::into_inner);
        let there = lent.get(id).into_iter().flatten().filter_map(WeakLink::upgrade);
        there.filter(|it| it.transport() == Some(Transport::Stream)).count()
    }

    /// Drops the links of a removed container.
    pub fn forget(&self, id: &ContainerId) {
        self.held.lock().unwrap_or_else(PoisonError::into_inner).remove(id);
    }

    /// Returns the link to a record's guest if it needs no engine call: an open one, or one over the socket whose peer
    /// is the recorded PID 1. Both prove that the container is Coracle's and runs.
    pub async fn direct_link(&self, store: &Store, record: &Record) -> Option<Link> {
        let id = record.id.as_ref().filter(|_| record.state == RecordState::Ready)?;
        // Only a message shows whether the guest of an open connection still exists. Otherwise a command might reach
        // the next guest, which has no session yet.
        if let Some(link) = self.held(id)
            && answers(&link).await
        {
            return Some(link);
        }
        self.by_socket(store, record, id).await
    }

    /// Opens a link over the socket of a record's guest, whose peer must be the recorded PID 1.
    pub(crate) async fn by_socket(&self, store: &Store, record: &Record, id: &ContainerId) -> Option<Link> {
        let link = Link::by_socket(&store.socket(record)?, self.settings).await?;
        self.hold(id, &link);
        Some(link)
    }

    /// Opens a link through the engine. The container need not be inspected before.
    pub(crate) async fn open(
        &self,
        runtime: &dyn ContainerRuntime,
        id: &ContainerId,
        socket: Option<SocketAt>,
    ) -> coracle_types::Result<Link> {
        let link = runtime.link(id, socket, self.settings).await?;
        link.open().await?;
        self.hold(id, &link);
        Ok(link)
    }

    /// How commands run in a container that was found and runs. Its PID 1 is remembered, if it is another one now.
    ///
    /// # Errors
    /// When its guest does not answer.
    pub async fn inside(&self, store: &Store, found: &mut ManagedContainer) -> Result<ExecTarget> {
        let container = found.present()?;
        let id = container.id.clone();
        let Some(guest) = &found.record.guest else { return Ok(ExecTarget::Plain(found.runtime.clone(), id)) };
        let pid1 = guest.pid1_of(container);
        if guest.pid1 != pid1 {
            found.record.guest = Some(GuestRecord { pid1, ..guest.clone() });
            store.update(&found.record)?;
            self.forget(&id);
        }
        // A broken link reconnects over its own socket only, which may be gone for good.
        let link = match self.held(&id).filter(|it| it.transport().is_some()) {
            Some(link) => link,
            None => {
                let link = found.runtime.link(&id, store.socket(&found.record), self.settings).await?;
                // Also what reaches the container by the engine alone waits until its mounts were compared.
                link.open().await?;
                link
            }
        };
        self.hold(&id, &link);
        Ok(ExecTarget::Guest(link))
    }

    /// The link to the guest of a container that runs, if it has one that answers.
    pub(crate) async fn link_of(
        &self,
        runtime: &dyn ContainerRuntime,
        store: &Store,
        record: &Record,
        container: &Container,
    ) -> Option<Link> {
        let guest = record.guest.as_ref()?;
        let now =
            Record { guest: Some(GuestRecord { pid1: guest.pid1_of(container), ..guest.clone() }), ..record.clone() };
        let opened = self.open(runtime, &container.id, store.socket(&now)).await;
        opened.inspect_err(|err| tracing::debug!(container = %record.name, %err, "its guest does not answer")).ok()
    }

    /// Waits until the guest of a container that was just started answers.
    pub(crate) async fn wait_for_guest(
        &self,
        runtime: &dyn ContainerRuntime,
        store: &Store,
        record: &mut Record,
        container: &Container,
    ) -> Result<Link> {
        if let Some(guest) = &mut record.guest {
            guest.pid1 = guest.pid1_of(container);
        }
        let (begun, socket) = (Instant::now(), store.socket(record));
        while let Some(socket) = socket.as_ref().filter(|it| it.pid1.is_some() && begun.elapsed() < PATIENCE) {
            if socket.is_answered().await {
                break;
            }
            if socket.pid1.as_ref().is_some_and(|it| !it.alive()) {
                break;
            }
            tokio::time::sleep(BETWEEN_LOOKS).await;
        }
        let link = runtime.link(&container.id, socket, self.settings).await?;
        // Where a source has changed, the link finds it again and ends the container.
        if let Ok(mounts) = mount_identities(container) {
            link.expect_mounts(mounts);
        }
        link.open().await?;
        self.hold(&container.id, &link);
        store.take_link_back(record)?;
        Ok(link)
    }
}
