//! A container that runs, and the ways that commands take into it.

use std::fmt;
use std::fs::{DirBuilder, File};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_client::{Link, LinkSettings, SocketAt, Transport};
use coracle_runtime::{Container, CreateSpec, ExecTarget, GuestDelivery, HostEntry, NetworkAttachment, Policy, admit};
use coracle_types::{ContainerId, ContainerPath, EngineKind, Exec, ExecOutput, Exit, ImageId, ProcessId, Result};
use tar::{EntryType, Header};
use tokio::time::{Instant, sleep};

use super::{Case, CaseCheck, RunningCheck, on_every_engine, tar_of};

/// A guest answers a few milliseconds after its container was started. Machines may be busy.
const PATIENCE: Duration = Duration::from_secs(20);

/// The transport of commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Way {
    /// The engine's own exec: there is no guest.
    Plain,
    /// The guest's socket, or a call in this process with the fake.
    Socket,
    /// A program that the engine runs inside.
    Stream,
    /// As [`Stream`](Self::Stream), with an uploaded guest, for engines that share no files with us.
    Uploaded,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Plain => "without a guest",
            Self::Socket => "by the guest's socket",
            Self::Stream => "by a stream to the guest",
            Self::Uploaded => "by a stream to a guest that was uploaded",
        })
    }
}

/// A container that runs.
#[derive(Debug)]
pub(crate) struct Running<'a> {
    pub(crate) case: &'a Case,
    pub(crate) id: ContainerId,
    pub(crate) way: Way,
    pub(crate) inside: ExecTarget,
    /// Its link directory, and its PID 1 as it was after the start.
    pub(crate) socket: SocketAt,
}

impl Case {
    /// Makes and starts a container of an image, entered that way. It has no network, which takes an engine a fifth of the
    /// time that it needs for a container.
    pub(crate) async fn run(&self, way: Way, spec: CreateSpec, image: &ImageId) -> Running<'_> {
        self.run_on(way, spec, (image, NetworkAttachment::None)).await
    }

    /// As [`run`](Self::run), on a network.
    pub(crate) async fn run_on(&self, way: Way, spec: CreateSpec, on: (&ImageId, NetworkAttachment)) -> Running<'_> {
        let dir = self.link_dir(&spec);
        self.run_with_link(way, spec, on, dir).await
    }

    /// As [`run_on`](Self::run_on), with that link directory.
    pub(super) async fn run_with_link(
        &self,
        way: Way,
        spec: CreateSpec,
        (image, network): (&ImageId, NetworkAttachment),
        dir: PathBuf,
    ) -> Running<'_> {
        // It gets its guest only by an upload.
        let way = if self.engine() == EngineKind::Kubernetes && way != Way::Plain { Way::Uploaded } else { way };
        let guest = self.guest(way, &dir);
        let mut spec = spec;
        // Its networks reach this host, where servers of tests listen, only for containers that name it.
        if self.engine() == EngineKind::Embedded && network == NetworkAttachment::EngineDefault {
            spec.add_hosts.push(HostEntry { name: "host.docker.internal".into(), address: None });
        }
        let admitted = admit(spec, &Policy::everything()).unwrap().with_guest(guest);
        let id = self.runtime.create(&admitted.with_image(image.clone(), network)).await.unwrap();
        if way == Way::Uploaded {
            self.runtime.upload(&id, &ContainerPath::root(), packed()).await.unwrap();
        }
        self.runtime.start(&id).await.unwrap();
        let inside = ExecTarget::Plain(self.runtime.clone(), id.clone());
        let mut running = Running { case: self, id, way, inside, socket: SocketAt { dir, pid1: None } };
        running.met().await;
        running
    }

    /// An existing container, if it still runs.
    pub(super) async fn meets(&self, way: Way, id: ContainerId, dir: PathBuf) -> Option<Running<'_>> {
        self.runtime.inspect(&(&id).into()).await.ok().filter(Container::running)?;
        let inside = ExecTarget::Plain(self.runtime.clone(), id.clone());
        let mut running = Running { case: self, id, way, inside, socket: SocketAt { dir, pid1: None } };
        running.met().await;
        Some(running)
    }

    /// A container with a worker and a guest, on the host's network, so that it reaches servers on this host.
    pub(crate) async fn runs_with_worker(&self, name: &str, image: &ImageId) -> Running<'_> {
        self.run_with_worker(self.spec(name), (image, NetworkAttachment::Host)).await
    }

    /// The same on a network.
    pub(crate) async fn run_with_worker(
        &self,
        spec: CreateSpec,
        (image, network): (&ImageId, NetworkAttachment),
    ) -> Running<'_> {
        let dir = self.link_dir(&spec);
        let guest = self.guest(Way::Socket, &dir);
        let admitted =
            admit(spec, &Policy::everything()).unwrap().with_guest(guest).with_worker(Some(worker_program()));
        let id = self.runtime.create(&admitted.with_image(image.clone(), network)).await.unwrap();
        self.runtime.start(&id).await.unwrap();
        let inside = ExecTarget::Plain(self.runtime.clone(), id.clone());
        let socket = SocketAt { dir, pid1: None };
        let mut running = Running { case: self, id, way: Way::Socket, inside, socket };
        running.met().await;
        running
    }

    /// A container of the busybox image.
    pub(crate) async fn runs(&self, way: Way) -> Running<'_> {
        let spec = self.spec(&format!("{way:?}").to_lowercase());
        self.run(way, spec, &self.image).await
    }

    /// As [`runs`](Self::runs), on the engine's network.
    pub(crate) async fn runs_with_network(&self, way: Way) -> Running<'_> {
        self.run_on(way, self.spec("online"), (&self.image, NetworkAttachment::EngineDefault)).await
    }

    fn guest(&self, way: Way, link: &Path) -> Option<GuestDelivery> {
        match way {
            Way::Plain => None,
            Way::Uploaded => Some(GuestDelivery::Uploaded),
            Way::Socket | Way::Stream => {
                DirBuilder::new().mode(0o700).create(link).unwrap();
                let program = if self.is_real() { guest_program() } else { "/".into() };
                Some(GuestDelivery::Bound { program, link: link.to_owned() })
            }
        }
    }

    fn link_dir(&self, spec: &CreateSpec) -> PathBuf {
        self.links.path().join(spec.name.as_str())
    }

    /// Another way to a guest than its socket, if there is one.
    pub(crate) fn second_way(&self) -> Way {
        self.ways().last().copied().unwrap_or(Way::Socket)
    }

    /// All ways into its containers. How the guest was placed does not matter to commands.
    pub(super) fn ways(&self) -> &'static [Way] {
        match self.engine() {
            EngineKind::Fake => &[Way::Plain, Way::Socket],
            // Its containers have a kernel of their own.
            EngineKind::Container => &[Way::Plain, Way::Stream],
            EngineKind::Kubernetes => &[Way::Plain, Way::Uploaded],
            // It needs no program inside to reach its guest.
            EngineKind::Embedded => &[Way::Plain, Way::Socket],
            _ => &[Way::Plain, Way::Socket, Way::Stream],
        }
    }
}

impl Running<'_> {
    /// Waits for the guest, if there is to be one.
    async fn met(&mut self) {
        if self.way == Way::Plain {
            return;
        }
        self.socket.pid1 = self.seen().await.pid.and_then(ProcessId::from_pid);
        let begun = Instant::now();
        loop {
            let link = self.link_by(self.way).await;
            let opened = link.open().await;
            // The stream would work too, and prove nothing about the socket.
            if opened.is_ok() && link.transport() == Some(self.transport()) {
                self.inside = ExecTarget::Guest(link);
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "no guest answers {}: {opened:?} {link:?}", self.way);
            sleep(Duration::from_millis(5)).await;
        }
    }

    fn transport(&self) -> Transport {
        match self.way {
            _ if !self.case.is_real() => Transport::InProcess,
            _ if self.case.engine() == EngineKind::Container => Transport::Stream,
            Way::Socket => Transport::Socket,
            _ => Transport::Stream,
        }
    }

    /// A link of its own, not connected yet.
    pub(crate) async fn link_by(&self, way: Way) -> Link {
        let socket = (way == Way::Socket).then(|| self.socket.clone());
        self.case.runtime.link(&self.id, socket, LinkSettings::default()).await.unwrap()
    }

    /// The link to its guest.
    pub(crate) fn link(&self) -> &Link {
        self.inside.link().unwrap()
    }

    /// With a guest, commands have more details: signals, remaining processes, retained output.
    pub(crate) fn has_guest(&self) -> bool {
        self.way != Way::Plain
    }

    /// Its guest's process on the host.
    pub(crate) fn pid1(&self) -> u32 {
        self.socket.pid1.as_ref().unwrap().pid
    }

    pub(crate) async fn seen(&self) -> Container {
        self.case.runtime.inspect(&(&self.id).into()).await.unwrap()
    }

    pub(crate) async fn exec(&self, exec: Exec) -> Result<ExecOutput> {
        self.inside.exec(exec).await
    }

    pub(crate) async fn ran(&self, exec: Exec) -> ExecOutput {
        self.exec(exec).await.unwrap()
    }

    /// The output of a command, which must succeed.
    pub(crate) async fn printed(&self, exec: Exec) -> String {
        let it = self.ran(exec).await;
        assert_eq!((it.exit, it.stderr.text().as_str()), (Exit::Code(0), ""), "{it:?}");
        it.stdout.text()
    }
}

/// Runs a check on every engine, in a container for each way into one.
pub(crate) async fn in_every_way(check: impl AsyncFn(&Running<'_>)) {
    in_each_way(&check).await;
}

async fn in_each_way(check: RunningCheck<'_>) {
    on_every_engine(async |case| {
        for way in case.ways() {
            let running = case.runs(*way).await;
            eprintln!("on {}, {way}", case.engine());
            check.on(&running).await;
        }
    })
    .await;
}

/// Runs a check in a container with a guest, on every engine.
pub(crate) async fn with_a_guest(check: impl AsyncFn(&Running<'_>)) {
    with_guests(&check).await;
}

async fn with_guests(check: RunningCheck<'_>) {
    on_every_engine(async |case| check.on(&case.runs(Way::Socket).await).await).await;
}

/// As [`with_a_guest`], on real engines only: the fake has no users, no kernel and no PID 1 of its own.
pub(crate) async fn with_a_real_guest(check: impl AsyncFn(&Running<'_>)) {
    with_real_guests(&check).await;
}

async fn with_real_guests(check: RunningCheck<'_>) {
    with_real_engines(async |case| check.on(&case.runs(Way::Socket).await).await).await;
}

/// Runs a check on every real engine whose containers share the host's kernel, so that their processes and sockets are
/// visible.
pub(crate) async fn with_real_engines(check: impl AsyncFn(&Case)) {
    on_real_engines(&check).await;
}

async fn on_real_engines(check: CaseCheck<'_>) {
    on_every_engine(async |case| {
        if !case.is_real() || [EngineKind::Container, EngineKind::Kubernetes].contains(&case.engine()) {
            return case.left_out();
        }
        check.on(case).await;
    })
    .await;
}

/// The guest that `coracle` carries, as a file. Tests are processes of their own, and share it.
pub(crate) fn guest_program() -> PathBuf {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let guest = coracle_context::guest::embedded(arch)
        .expect("this build of coracle carries no guest: run `cargo xtask guest`, then rebuild the tests");
    guest.place(&coracle_skips::of_account("guest")).unwrap()
}

/// The worker that `coracle` carries, as a file.
pub(crate) fn worker_program() -> PathBuf {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    let worker = coracle_context::guest::embedded_worker(arch)
        .expect("this build of coracle carries no worker: run `cargo xtask guest`, then rebuild the tests");
    worker.place(&coracle_skips::of_account("guest")).unwrap()
}

/// The guest as an engine gets it that shares no files with us.
fn packed() -> File {
    let program = std::fs::read(guest_program()).unwrap();
    tar_of(|tar| {
        let mut dir = Header::new_gnu();
        dir.set_entry_type(EntryType::Directory);
        dir.set_mode(0o755);
        dir.set_size(0);
        tar.append_data(&mut dir, ".coracle", &[][..]).unwrap();
        let mut file = Header::new_gnu();
        file.set_mode(0o555);
        file.set_size(program.len() as u64);
        tar.append_data(&mut file, ".coracle/guest", &program[..]).unwrap();
    })
}
