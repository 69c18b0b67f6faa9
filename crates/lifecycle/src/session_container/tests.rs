use coracle_runtime::{ImageStore as _, Volumes as _};
mod adopting;
mod ending;
mod expiring;
mod replacing;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{Link, LinkSettings};
use coracle_runtime::fake::{LOCAL_IMAGE, Verb};
use coracle_runtime::{
    Capabilities, ContainerRuntime, CreateSpec, FakeRuntime, LabelFilter, NetworkRequest, Policy, Tmpfs,
};
use coracle_types::{
    ByteSize, ContainerId, ContainerName, ContainerPath, ContainerStatus, EngineKind, Handle, Ids, ImageRef,
    LabelNamespace, ProcessId,
};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use super::*;
use crate::clock::ClockReading;
use crate::slot::{SlotKey, SlotRole};
use crate::{
    Engines, Error, GuestProgram, Links, Result as Done, SaveLimits, SavePolicy, Store, find, list, reconcile,
};

/// One engine for all.
struct SingleEngine(FakeRuntime);

#[async_trait]
impl Engines for SingleEngine {
    async fn for_record(&self, _: EngineKind, _: &str) -> Done<Arc<dyn ContainerRuntime>> {
        Ok(Arc::new(self.0.clone()))
    }

    async fn preferred(&self) -> Done<Arc<dyn ContainerRuntime>> {
        Ok(Arc::new(self.0.clone()))
    }
}

/// A machine: an engine and a state directory, which several processes use.
struct Bench {
    fake: FakeRuntime,
    dir: TempDir,
    events: Arc<Mutex<Vec<SlotEvent>>>,
    planned: AtomicU32,
}

/// A process on it.
struct Process<'a> {
    bench: &'a Bench,
    slots: SessionContainers,
    spec_hash: &'a str,
    owner: Option<ProcessId>,
    /// The container that it requests has no root, and this user.
    user: Option<Ids>,
}

fn session() -> ContainerName {
    ContainerName::parse("s1").unwrap()
}

const WS: SlotRole = SlotRole::Workspace;

/// As whom a test can write: root may be anybody.
fn user() -> Ids {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 { Ids { uid: 65534, gid: 65534 } } else { Ids { uid, gid } }
}

fn ensure_request<'a>(session: &'a ContainerName, observer: &'a SlotObserver<'a>) -> EnsureRequest<'a> {
    EnsureRequest { session, role: WS, spec_hash: "a", user: user(), rootless: false, owner: None, observer }
}

impl Bench {
    fn new() -> Self {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        Self { fake, dir, events: Arc::default(), planned: AtomicU32::new(0) }
    }

    fn store(&self) -> Store {
        Store::open(self.dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap()
    }

    fn process(&self) -> Process<'_> {
        let links = Links::new(LinkSettings::default());
        let slots = SessionContainers::new(self.store(), links, SlotLimits::default());
        Process { bench: self, slots, spec_hash: "a", owner: Some(ProcessId::current()), user: None }
    }

    async fn plan(&self) -> Result<ContainerTemplate, BoxError> {
        self.planned.fetch_add(1, Ordering::Relaxed);
        let image = ImageRef::parse(LOCAL_IMAGE)?;
        let found = self.fake.find_images(std::slice::from_ref(&image)).await?;
        let at = |path: &str| ContainerPath::parse(path).unwrap();
        let spec = CreateSpec {
            exec_user: user(),
            read_only: true,
            tmpfs: vec![Tmpfs { at: at("/home/agent"), size: ByteSize::mib(1), mode: 0o700 }],
            network: NetworkRequest::None,
            capabilities: Capabilities::Guest,
            ..CreateSpec::new(ContainerName::parse("any")?, image)
        };
        Ok(ContainerTemplate {
            spec,
            policy: Policy::everything(),
            image: found[0].clone(),
            reference: LOCAL_IMAGE.into(),
            guest: GuestProgram { path: "/".into(), sha256: String::new(), shared_files: true, worker: None },
            volume_at: at("/workspace"),
            workdir: at("/workspace"),
            env: BTreeMap::new(),
            volume_size: None,
            fill: None,
            protected: Vec::new(),
            max_containers_total: 3,
            tool_version: "0".into(),
        })
    }

    fn engines(&self) -> SingleEngine {
        SingleEngine(self.fake.clone())
    }

    fn take_events(&self) -> Vec<ContainerEvent> {
        std::mem::take(&mut *self.events.lock().unwrap()).into_iter().map(|it| it.what).collect()
    }

    fn observer(&self) -> impl Fn(SlotEvent) + Send + Sync + use<> {
        let events = self.events.clone();
        move |event| events.lock().unwrap().push(event)
    }

    async fn containers(&self) -> Vec<coracle_runtime::Container> {
        self.fake.list(&LabelFilter::default()).await.unwrap()
    }

    async fn volumes(&self) -> usize {
        self.fake.list_volumes(&LabelFilter::default()).await.unwrap().len()
    }

    /// Everything that is left of all slots.
    async fn left(&self) -> (usize, usize, usize, usize) {
        let entries = |dir: &str| std::fs::read_dir(self.dir.path().join(dir)).unwrap().count();
        (self.containers().await.len(), self.volumes().await, entries("containers"), entries("sessions"))
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("sessions/s1/workspace.json")
    }

    fn change(&self, change: impl FnOnce(&mut SlotRecord)) {
        let store = self.store();
        let mut record = store.slots().unwrap().remove(0);
        change(&mut record);
        store.save_slot(&record).unwrap();
    }
}

impl Process<'_> {
    async fn ensure(&self) -> Result<Ready, SlotError> {
        self.ensure_of(&session(), WS).await
    }

    async fn ensure_of(&self, session: &ContainerName, role: SlotRole) -> Result<Ready, SlotError> {
        let observer = self.bench.observer();
        let (owner, rootless) = (self.owner.as_ref(), self.user.is_some());
        let user = self.user.unwrap_or_else(user);
        let request =
            EnsureRequest { session, role, spec_hash: self.spec_hash, user, rootless, owner, observer: &observer };
        let plan = async |_| {
            let mut plan = self.bench.plan().await?;
            plan.spec.exec_user = user;
            plan.spec.capabilities = if rootless { Capabilities::None } else { Capabilities::Guest };
            Ok(plan)
        };
        self.slots.ensure(&self.bench.engines(), request, plan).await
    }

    async fn slot(&self) -> Ready {
        self.ensure().await.unwrap()
    }

    fn root(&self, ready: &Ready) -> std::path::PathBuf {
        self.bench.fake.root(id(ready)).unwrap()
    }

    async fn end(&self, saving: SavePolicy) -> EndedSession {
        let observer = self.bench.observer();
        self.slots.end(&self.bench.engines(), &session(), &ending(saving, &observer)).await.unwrap()
    }

    async fn recover(&self, after: SignedDuration) -> EndedSession {
        let observer = self.bench.observer();
        let ending = ending(SavePolicy::Discard, &observer);
        let now = later(after.as_secs(), after.as_secs().unsigned_abs());
        self.slots.recover(&self.bench.engines(), &now, &ending).await.unwrap()
    }

    async fn expire(&self, now: ClockReading) {
        let observer = self.bench.observer();
        let keep = SavePolicy::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(10) });
        let plan = self.bench.plan().await.unwrap();
        let ending = EndOptions { reader: Some((&plan.guest, &plan.policy)), ..ending(keep, &observer) };
        self.slots.expire(&self.bench.engines(), &now, &ending).await.unwrap();
    }

    async fn sweep(&self, now: ClockReading) {
        let observer = self.bench.observer();
        self.slots.sweep(&self.bench.engines(), &now, &observer).await.unwrap();
    }
}

fn ending<'a>(saving: SavePolicy, observer: &'a SlotObserver<'a>) -> EndOptions<'a> {
    let second = Duration::from_secs(1);
    EndOptions { saving, reader: None, grace: second, within: 20 * second, observer, reason: EndReason::Disconnect }
}

fn id(ready: &Ready) -> &ContainerId {
    ready.slot.container_id.as_ref().unwrap()
}

fn later(seconds: i64, up: u64) -> ClockReading {
    let now = ClockReading::now();
    ClockReading { wall: now.wall + SignedDuration::from_secs(seconds), up_s: now.up_s + up, ..now }
}

fn write(root: &Path) {
    std::fs::write(root.join("workspace/file"), "content").unwrap();
}

fn has_file(root: &Path) -> bool {
    root.join("workspace/file").exists()
}

fn reported(ready: &Ready) -> Option<(Reason, u32, u32, bool)> {
    ready.replacement.as_ref().map(|it| (it.reason, it.from, it.to, it.files_lost))
}

#[tokio::test]
async fn the_first_call_creates_the_planned_container_and_later_ones_make_no_engine_call() {
    let bench = Bench::new();
    let (here, there) = (bench.process(), bench.process());
    assert_eq!(bench.left().await, (0, 0, 0, 0));
    let calls = (0..32).map(|at| if at % 2 == 0 { here.ensure() } else { there.ensure() });
    let mut made = Vec::new();
    let all: Vec<_> = calls.map(Box::pin).collect();
    for ready in futures_of(all).await {
        made.push(ready.unwrap());
    }
    assert_eq!(made.iter().filter(|it| it.made).count(), 1);
    assert!(made.iter().all(|it| id(it) == id(&made[0]) && it.replacement.is_none() && it.slot.generation == 1));
    assert_eq!(bench.planned.load(Ordering::Relaxed), 1);
    let [container] = &*bench.containers().await else { panic!("there is one") };
    assert!(container.name.starts_with("coracle-ws-") && !container.name.contains("s1"), "{}", container.name);
    assert_eq!((container.mounts[0].target.as_str(), &*container.networks[0]), ("/workspace", "none"));
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(bench.file()).unwrap()).unwrap();
    assert_eq!((&record["name"], &record["generation"]), (&container.name.as_str().into(), &1.into()));
    let (calls, written) = (bench.fake.calls().len(), std::fs::metadata(bench.file()).unwrap().modified().unwrap());
    for _ in 0..20 {
        assert!(!here.slot().await.made && !there.slot().await.made);
    }
    assert_eq!(bench.fake.calls().len(), calls);
    assert_eq!(std::fs::metadata(bench.file()).unwrap().modified().unwrap(), written);
    assert!(
        matches!(&*bench.take_events(), [ContainerEvent::Created { mounts, .. }, ContainerEvent::Started { .. }] if mounts.len() == 1)
    );
}

/// All at once.
async fn futures_of<T>(all: Vec<std::pin::Pin<Box<impl Future<Output = T>>>>) -> Vec<T> {
    let mut all: Vec<_> = all.into_iter().map(|it| (it, None)).collect();
    std::future::poll_fn(move |cx| {
        for (call, done) in all.iter_mut().filter(|it| it.1.is_none()) {
            if let std::task::Poll::Ready(it) = call.as_mut().poll(cx) {
                *done = Some(it);
            }
        }
        if all.iter().all(|it| it.1.is_some()) {
            return std::task::Poll::Ready(all.iter_mut().filter_map(|it| it.1.take()).collect());
        }
        std::task::Poll::Pending
    })
    .await
}

#[tokio::test]
async fn what_cannot_be_made_leaves_nothing_and_keeps_what_was_there() {
    for verb in [Verb::Create, Verb::Start, Verb::Inspect, Verb::CreateVolume] {
        let bench = Bench::new();
        let here = bench.process();
        bench.fake.fail_next(verb);
        let failed = here.ensure().await;
        assert!(matches!(failed, Err(SlotError::NotMade(_))), "{verb:?}: {:?}", failed.err());
        bench.fake.clear_faults();
        assert_eq!(bench.left().await, (0, 0, 0, 0), "{verb:?}");
        let first = here.slot().await;
        write(&here.root(&first));
        bench.fake.disappear(id(&first));
        if matches!(verb, Verb::Create | Verb::Start) {
            bench.fake.fail_next(verb);
            assert!(here.ensure().await.is_err(), "{verb:?}");
            assert_eq!(bench.left().await, (0, 1, 0, 1), "{verb:?}");
        }
        let second = here.slot().await;
        assert_eq!(reported(&second), Some((Reason::Vanished, 1, 2, false)), "{verb:?}");
        assert!(has_file(&here.root(&second)), "{verb:?}");
    }
}

#[tokio::test]
async fn w04_a_volume_that_the_user_cannot_write_is_no_room() {
    // On the fake, every user is the account that runs the tests.
    if !coracle_skips::has_root() {
        return;
    }
    let bench = Bench::new();
    let here = bench.process();
    let observer = bench.observer();
    let session = session();
    let request = ensure_request(&session, &observer);
    let engines = bench.engines();
    let made = here.slots.ensure(&engines, request, async |_| {
        let mut plan = bench.plan().await?;
        // Another file is in its place.
        plan.volume_at = ContainerPath::parse("/workspace").unwrap();
        plan.spec.tmpfs.push(Tmpfs { at: plan.volume_at.clone(), size: ByteSize::mib(1), mode: 0o000 });
        plan.spec.exec_user = Ids { uid: 4_000_000_000, gid: u32::MAX };
        Ok(plan)
    });
    let failed = made.await;
    assert!(matches!(failed, Err(SlotError::NotReady(_))));
    assert_eq!(failed.unwrap_err().to_string(), "Workspace failed readiness checks.");
    assert_eq!(bench.left().await, (0, 0, 0, 0));
}

#[tokio::test]
async fn the_other_tool_neither_lists_nor_knows_them() {
    let bench = Bench::new();
    let here = bench.process();
    let ready = here.slot().await;
    let (engines, store) = (bench.engines(), bench.store());
    let listing = list(&engines, &store).await.unwrap();
    assert!(listing.containers.is_empty() && listing.unverified.is_empty(), "{listing:?}");
    let [container] = &*bench.containers().await else { panic!("there is one") };
    for handle in [container.name.as_str(), id(&ready).as_str()] {
        let found = find(&engines, &store, &Handle::parse(handle).unwrap()).await;
        assert!(matches!(found, Err(Error::Belongs { .. })), "{found:?}");
    }
    assert_eq!(reconcile(&engines, &store, Duration::ZERO).await.unwrap(), [""; 0]);
    assert_eq!(bench.containers().await.len(), 1);
}

#[tokio::test]
async fn a_making_that_was_dropped_half_way_is_cleared_by_the_next_call() {
    let bench = Bench::new();
    let here = bench.process();
    bench.fake.slow(Verb::Start, Duration::from_secs(50));
    assert!(tokio::time::timeout(Duration::from_millis(300), here.ensure()).await.is_err());
    assert_eq!(bench.left().await, (1, 1, 1, 1));
    bench.fake.slow(Verb::Start, Duration::ZERO);
    let ready = here.slot().await;
    assert_eq!((reported(&ready), ready.slot.generation), (None, 1));
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn what_fills_a_volume_runs_once_and_its_failure_is_that_of_the_call() {
    let bench = Bench::new();
    let here = bench.process();
    let fills = Arc::new(AtomicU32::new(0));
    let ensure = async |fails: bool| {
        let (observer, session, fills) = (bench.observer(), session(), fills.clone());
        let request = ensure_request(&session, &observer);
        let plan = async |_| {
            let fill = move |_: Link| {
                fills.fetch_add(1, Ordering::Relaxed);
                let done: Result<(), BoxError> = if fails { Err("no".into()) } else { Ok(()) };
                Box::pin(std::future::ready(done)) as VolumeInitFuture
            };
            Ok(ContainerTemplate { fill: Some(VolumeInit(Box::new(fill))), ..bench.plan().await? })
        };
        here.slots.ensure(&bench.engines(), request, plan).await
    };
    assert!(matches!(ensure(true).await, Err(SlotError::VolumeInit(_))));
    assert_eq!(bench.left().await, (0, 0, 0, 0));
    let ready = ensure(false).await.unwrap();
    bench.fake.crash(id(&ready));
    ensure(false).await.unwrap();
    assert_eq!(fills.load(Ordering::Relaxed), 2);
}
