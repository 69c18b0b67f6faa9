use std::path::Path;
use std::sync::atomic::AtomicU32;

use async_trait::async_trait;
use coracle_runtime::fake::{LOCAL_IMAGE, Verb};
use coracle_runtime::link::LinkSettings;
use coracle_runtime::{
    ByteSize, Capabilities, ContainerRuntime, CreateSpec, EngineKind, FakeRuntime, Handle, ImageAct, ImageRef,
    LabelFilter, LabelNamespace, NetworkAsk, Stacks, Status, Tmpfs, VolumeAct,
};
use jiff::SignedDuration;
use tempfile::TempDir;

use super::*;
use crate::{Engines, Result as Done, SaveLimits, Saving, find, list, reconcile};

/// One engine for all.
struct One(FakeRuntime);

#[async_trait]
impl Engines for One {
    async fn of(&self, _: EngineKind, _: &str) -> Done<Arc<dyn ContainerRuntime>> {
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
    told: Arc<Mutex<Vec<RoomEvent>>>,
    planned: AtomicU32,
}

/// A process on it.
struct Process<'a> {
    bench: &'a Bench,
    rooms: Rooms,
    spec_hash: &'a str,
    owner: Option<ProcessId>,
    /// Nobody is root in what it asks for, and this is who is there.
    user: Option<Ids>,
}

fn session() -> ContainerName {
    ContainerName::parse("s1").unwrap()
}

const WS: RoomRole = RoomRole::Workspace;

/// As whom a test can write: root may be anybody.
fn user() -> Ids {
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid == 0 { Ids { uid: 65534, gid: 65534 } } else { Ids { uid, gid } }
}

fn ask<'a>(session: &'a ContainerName, tell: &'a Tell<'a>) -> RoomAsk<'a> {
    RoomAsk { session, role: WS, spec_hash: "a", user: user(), rootless: false, owner: None, tell }
}

impl Bench {
    fn new() -> Self {
        let (fake, dir) = (FakeRuntime::new(), tempfile::tempdir().unwrap());
        Self { fake, dir, told: Arc::default(), planned: AtomicU32::new(0) }
    }

    fn store(&self) -> Store {
        Store::open(self.dir.path(), LabelNamespace::parse("coracle").unwrap()).unwrap()
    }

    fn process(&self) -> Process<'_> {
        let links = Links::new(LinkSettings::default());
        let rooms = Rooms::new(self.store(), links, RoomTerms::default());
        Process { bench: self, rooms, spec_hash: "a", owner: Some(ProcessId::current()), user: None }
    }

    async fn plan(&self) -> Result<Blueprint, BoxError> {
        self.planned.fetch_add(1, Ordering::Relaxed);
        let image = ImageRef::parse(LOCAL_IMAGE)?;
        let found = self.fake.image(ImageAct::Find(vec![image.clone()])).await?;
        let at = |path: &str| ContainerPath::parse(path).unwrap();
        let spec = CreateSpec {
            exec_user: user(),
            read_only: true,
            tmpfs: vec![Tmpfs { at: at("/home/agent"), size: ByteSize::mib(1), mode: 0o700 }],
            network: NetworkAsk::None,
            capabilities: Capabilities::Guest,
            ..CreateSpec::new(ContainerName::parse("any")?, image)
        };
        Ok(Blueprint {
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

    fn engines(&self) -> One {
        One(self.fake.clone())
    }

    fn told(&self) -> Vec<RoomDeed> {
        std::mem::take(&mut *self.told.lock().unwrap()).into_iter().map(|it| it.what).collect()
    }

    fn tell(&self) -> impl Fn(RoomEvent) + Send + Sync + use<> {
        let told = self.told.clone();
        move |event| told.lock().unwrap().push(event)
    }

    async fn containers(&self) -> Vec<coracle_runtime::Container> {
        self.fake.list(&LabelFilter::default()).await.unwrap()
    }

    async fn volumes(&self) -> usize {
        self.fake.volume(VolumeAct::List(LabelFilter::default())).await.unwrap().len()
    }

    /// Everything that is left of all rooms.
    async fn left(&self) -> (usize, usize, usize, usize) {
        let entries = |dir: &str| std::fs::read_dir(self.dir.path().join(dir)).unwrap().count();
        (self.containers().await.len(), self.volumes().await, entries("containers"), entries("sessions"))
    }

    fn file(&self) -> std::path::PathBuf {
        self.dir.path().join("sessions/s1/workspace.json")
    }

    fn change(&self, change: impl FnOnce(&mut RoomRecord)) {
        let store = self.store();
        let mut record = store.rooms().unwrap().remove(0);
        change(&mut record);
        store.save_room(&record).unwrap();
    }
}

impl Process<'_> {
    async fn ensure(&self) -> Result<Ready, RoomError> {
        self.ensure_of(&session(), WS).await
    }

    async fn ensure_of(&self, session: &ContainerName, role: RoomRole) -> Result<Ready, RoomError> {
        let tell = self.bench.tell();
        let (owner, rootless) = (self.owner.as_ref(), self.user.is_some());
        let user = self.user.unwrap_or_else(user);
        let ask = RoomAsk { session, role, spec_hash: self.spec_hash, user, rootless, owner, tell: &tell };
        let plan = async |_| {
            let mut plan = self.bench.plan().await?;
            plan.spec.exec_user = user;
            plan.spec.capabilities = if rootless { Capabilities::None } else { Capabilities::Guest };
            Ok(plan)
        };
        self.rooms.ensure(&self.bench.engines(), ask, plan).await
    }

    async fn room(&self) -> Ready {
        self.ensure().await.unwrap()
    }

    fn root(&self, ready: &Ready) -> std::path::PathBuf {
        self.bench.fake.root(id(ready)).unwrap()
    }

    async fn end(&self, saving: Saving) -> EndedRooms {
        let tell = self.bench.tell();
        self.rooms.end(&self.bench.engines(), &session(), &ending(saving, &tell)).await.unwrap()
    }

    async fn recover(&self, after: SignedDuration) -> EndedRooms {
        let tell = self.bench.tell();
        let ending = ending(Saving::Discard, &tell);
        self.rooms.recover(&self.bench.engines(), Timestamp::now() + after, &ending).await.unwrap()
    }

    async fn expire(&self, now: Moment) {
        let tell = self.bench.tell();
        let keep = Saving::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(10) });
        let plan = self.bench.plan().await.unwrap();
        let ending = Ending { reader: Some((&plan.guest, &plan.policy)), ..ending(keep, &tell) };
        self.rooms.expire(&self.bench.engines(), &now, &ending).await.unwrap();
    }

    async fn sweep(&self, now: Moment) {
        let tell = self.bench.tell();
        self.rooms.sweep(&self.bench.engines(), &now, &tell).await.unwrap();
    }
}

fn ending<'a>(saving: Saving, tell: &'a Tell<'a>) -> Ending<'a> {
    let second = Duration::from_secs(1);
    Ending { saving, reader: None, grace: second, within: 20 * second, tell, reason: EndReason::Command }
}

fn id(ready: &Ready) -> &ContainerId {
    ready.room.container_id.as_ref().unwrap()
}

fn later(seconds: i64, up: u64) -> Moment {
    let now = Moment::now();
    Moment { wall: now.wall + SignedDuration::from_secs(seconds), up_s: now.up_s + up, ..now }
}

fn write(root: &Path) {
    std::fs::write(root.join("workspace/kept"), "kept").unwrap();
}

fn kept(root: &Path) -> bool {
    root.join("workspace/kept").exists()
}

fn news(ready: &Ready) -> Option<(Reason, u32, u32, bool)> {
    ready.news.as_ref().map(|it| (it.reason, it.from, it.to, it.files_lost))
}

#[tokio::test]
async fn the_first_call_makes_one_as_it_is_planned_and_later_ones_ask_nobody() {
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
    assert!(made.iter().all(|it| id(it) == id(&made[0]) && it.news.is_none() && it.room.generation == 1));
    assert_eq!(bench.planned.load(Ordering::Relaxed), 1);
    let [container] = &*bench.containers().await else { panic!("there is one") };
    assert!(container.name.starts_with("coracle-ws-") && !container.name.contains("s1"), "{}", container.name);
    assert_eq!((container.mounts[0].target.as_str(), &*container.networks[0]), ("/workspace", "none"));
    let record: serde_json::Value = serde_json::from_slice(&std::fs::read(bench.file()).unwrap()).unwrap();
    assert_eq!((&record["container_id"], &record["generation"]), (&id(&made[0]).as_str().into(), &1.into()));
    let (asked, written) = (bench.fake.calls().len(), std::fs::metadata(bench.file()).unwrap().modified().unwrap());
    for _ in 0..20 {
        assert!(!here.room().await.made && !there.room().await.made);
    }
    assert_eq!(bench.fake.calls().len(), asked);
    assert_eq!(std::fs::metadata(bench.file()).unwrap().modified().unwrap(), written);
    assert!(
        matches!(&*bench.told(), [RoomDeed::Created { mounts, .. }, RoomDeed::Started { .. }] if mounts.len() == 1)
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
async fn one_that_failed_is_replaced_with_its_files_and_that_is_told_once() {
    type Fault = fn(&FakeRuntime, &ContainerId);
    let cases: [(Fault, Reason, Option<i64>); 3] = [
        (FakeRuntime::crash, Reason::Crashed, Some(137)),
        (FakeRuntime::run_out_of_memory, Reason::Oom, Some(137)),
        (FakeRuntime::disappear, Reason::Vanished, None),
    ];
    for (fault, reason, exit_code) in cases {
        let bench = Bench::new();
        let (here, there) = (bench.process(), bench.process());
        let first = here.room().await;
        write(&here.root(&first));
        there.room().await;
        fault(&bench.fake, id(&first));
        bench.told();
        let second = here.room().await;
        assert_eq!((news(&second), second.made), (Some((reason, 1, 2, false)), true));
        assert_eq!(second.news.as_ref().unwrap().exit_code, exit_code);
        assert!(kept(&here.root(&second)) && id(&first) != id(&second), "{reason:?}");
        let oom = reason == Reason::Oom;
        let expected = RoomDeed::RecreatedAfterFailure { reason, exit_code, oom, from: 1, to: 2 };
        assert_eq!(bench.told()[0], expected);
        for process in [&here, &there] {
            let again = process.room().await;
            assert_eq!((news(&again), again.room.generation, id(&again)), (None, 2, id(&second)));
        }
        assert_eq!(bench.left().await, (1, 1, 1, 1));
    }
}

#[tokio::test]
async fn one_that_stands_still_goes_on() {
    let bench = Bench::new();
    let (here, there) = (bench.process(), bench.process());
    let first = here.room().await;
    bench.fake.pause(id(&first));
    let again = here.room().await;
    assert_eq!((news(&again), again.made, id(&again)), (None, false, id(&first)));
    // As a process leaves it that is killed between two steps.
    bench.fake.stop(id(&first), Duration::ZERO).await.unwrap();
    let second = there.room().await;
    assert_eq!(news(&second), Some((Reason::Crashed, 1, 2, false)));
}

#[tokio::test]
async fn a_guest_that_fell_silent_is_given_up() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    bench.fake.silence(id(&first));
    let second = here.room().await;
    assert_eq!(news(&second), Some((Reason::Crashed, 1, 2, false)));
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn a_volume_that_is_gone_too_is_told() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    bench.fake.disappear(id(&first));
    for volume in bench.fake.volume(VolumeAct::List(LabelFilter::default())).await.unwrap() {
        bench.fake.volume(VolumeAct::Remove(volume.name)).await.unwrap();
    }
    let second = here.room().await;
    assert_eq!(news(&second), Some((Reason::Vanished, 1, 2, true)));
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn other_settings_make_another_one_when_nobody_is_in_it() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    let changed = Process { spec_hash: "b", rooms: here.rooms.clone(), ..bench.process() };
    assert_eq!(id(&changed.room().await), id(&first), "a call is in it");
    let old = id(&first).clone();
    drop(first);
    let second = changed.room().await;
    assert_eq!(news(&second), Some((Reason::SpecChanged, 1, 2, false)));
    assert_ne!(*id(&second), old);
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn one_with_root_is_replaced_where_nobody_is_to_be_root_whoever_is_in_it() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    assert!(!first.room.rootless);
    let (rooms, strict) = (here.rooms.clone(), Some(user()));
    let strict = Process { spec_hash: "b", rooms, user: strict, ..bench.process() };
    let second = strict.room().await;
    assert_ne!(id(&second), id(&first), "a call is in it");
    assert_eq!((second.room.rootless, second.room.user, second.spec_pending), (true, user(), false));
    assert_eq!(news(&second), Some((Reason::SpecChanged, 1, 2, false)));
    // Another process, which has seen neither.
    let third = bench.process().room().await;
    assert_eq!((third.room.rootless, news(&third)), (false, Some((Reason::SpecChanged, 2, 3, false))));
}

#[tokio::test]
async fn files_that_nobody_could_give_away_stay_with_their_container() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    let stranger = Some(Ids { uid: 1001, gid: 1001 });
    let strict = Process { spec_hash: "b", rooms: here.rooms.clone(), user: stranger, ..bench.process() };
    for lost in [false, true] {
        if lost {
            bench.fake.crash(id(&first));
        }
        let refused = strict.ensure().await.unwrap_err();
        let RoomError::OtherUser { before, now, .. } = refused else { panic!("{refused:?}") };
        assert_eq!((before, Some(now)), (user(), stranger));
        assert_eq!(bench.left().await, (1, 1, 1, 1), "nothing was removed");
    }
    // Where nothing is left of them, nobody misses them.
    bench.fake.disappear(id(&first));
    for volume in bench.fake.volume(VolumeAct::List(LabelFilter::default())).await.unwrap() {
        bench.fake.volume(VolumeAct::Remove(volume.name)).await.unwrap();
    }
    assert!(!matches!(strict.ensure().await, Err(RoomError::OtherUser { .. })));
}

#[tokio::test]
async fn a_room_of_which_only_the_engine_knows_is_still_one_without_root() {
    let bench = Bench::new();
    let here = Process { user: Some(user()), ..bench.process() };
    let first = id(&here.room().await).clone();
    for volume_only in [false, true] {
        std::fs::remove_file(bench.file()).unwrap();
        for record in bench.store().records().unwrap() {
            bench.store().forget(&record.name).unwrap();
        }
        if volume_only {
            bench.fake.disappear(&first);
        }
        let again = bench.process();
        assert!(again.rooms.recall(&bench.engines(), (&session(), WS)).await.unwrap());
        let room = bench.store().rooms().unwrap().remove(0);
        assert_eq!((room.rootless, room.user), (true, user()), "{volume_only}");
        let owns = bench.store().records().unwrap().iter().map(|it| it.guest.clone().unwrap().own).collect::<Vec<_>>();
        assert_eq!(owns, if volume_only { vec![] } else { vec![Some(user())] });
    }
}

#[tokio::test]
async fn a_links_directory_is_not_lent_while_commands_live_nor_when_nobody_was_met() {
    if !rustix::process::geteuid().is_root() {
        return; // whoever is not root lends nothing
    }
    type Fault = fn(&FakeRuntime, &ContainerId);
    let faults: [Fault; 2] = [
        |fake, id| {
            fake.pause(id);
            fake.fail_next(Verb::Start);
        },
        |fake, id| {
            fake.crash(id);
            fake.fail_next(Verb::Start);
        },
    ];
    for fault in faults {
        let bench = Bench::new();
        let here = Process { user: Some(user()), ..bench.process() };
        let first = here.ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
        let lent = || {
            let record = bench.store().records().unwrap().remove(0);
            std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(bench.store().link_dir(&record)).unwrap()) != 0
        };
        assert!(!lent());
        fault(&bench.fake, id(&first));
        let room = bench.store().rooms().unwrap().remove(0);
        let looked = here.rooms.look(&bench.fake, &room).await.unwrap();
        assert!(matches!(looked, look::Look::Lost(_)), "{looked:?}");
        assert!(!lent());
    }
}

#[tokio::test]
async fn one_that_is_not_ours_is_not_touched() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    let foreign = CreateSpec::new(ContainerName::parse("foreign").unwrap(), ImageRef::parse(LOCAL_IMAGE).unwrap());
    let image = bench.plan().await.unwrap().image;
    let admitted = coracle_runtime::admit(foreign, &Policy::everything()).unwrap();
    let theirs = bench.fake.create(&admitted.on(image.id, coracle_runtime::NetworkOn::None)).await.unwrap();
    bench.fake.disappear(id(&first));
    bench.change(|record| record.container_id = Some(theirs.clone()));
    let there = bench.process();
    let refused = there.ensure().await;
    assert!(matches!(refused, Err(RoomError::Lifecycle(Error::NotManaged { .. }))), "{:?}", refused.err());
    assert_eq!(bench.fake.inspect(&Handle::from(&theirs)).await.unwrap().status, Status::Created);
    let ended = there.end(Saving::Discard).await;
    assert!(ended.failed.is_empty() && !bench.file().exists(), "{ended:?}");
    assert!(bench.fake.inspect(&Handle::from(&theirs)).await.is_ok());
}

#[tokio::test]
async fn after_four_failures_nothing_is_made_for_a_minute() {
    let bench = Bench::new();
    let here = bench.process();
    for _ in 0..4 {
        let ready = here.room().await;
        bench.fake.crash(id(&ready));
    }
    for _ in 0..2 {
        let refused = here.ensure().await;
        let Err(RoomError::CrashLoop { reason: Reason::Crashed, retry_after }) = refused else {
            panic!("it is refused: {:?}", refused.err())
        };
        assert!(retry_after <= Duration::from_secs(60) && retry_after > Duration::from_secs(50), "{retry_after:?}");
        assert_eq!(bench.containers().await.len(), 0);
    }
    bench.change(|record| record.refused_until = Some(Timestamp::now()));
    assert_eq!(news(&here.room().await), Some((Reason::Crashed, 4, 5, false)));
}

#[tokio::test]
async fn what_cannot_be_made_leaves_nothing_and_keeps_what_was_there() {
    for verb in [Verb::Create, Verb::Start, Verb::Inspect, Verb::CreateVolume] {
        let bench = Bench::new();
        let here = bench.process();
        bench.fake.fail_next(verb);
        let failed = here.ensure().await;
        assert!(matches!(failed, Err(RoomError::NotMade(_))), "{verb:?}: {:?}", failed.err());
        bench.fake.mend();
        assert_eq!(bench.left().await, (0, 0, 0, 0), "{verb:?}");
        let first = here.room().await;
        write(&here.root(&first));
        bench.fake.disappear(id(&first));
        if matches!(verb, Verb::Create | Verb::Start) {
            bench.fake.fail_next(verb);
            assert!(here.ensure().await.is_err(), "{verb:?}");
            assert_eq!(bench.left().await, (0, 1, 0, 1), "{verb:?}");
        }
        let second = here.room().await;
        assert_eq!(news(&second), Some((Reason::Vanished, 1, 2, false)), "{verb:?}");
        assert!(kept(&here.root(&second)), "{verb:?}");
    }
}

#[tokio::test]
async fn w04_a_volume_that_the_user_cannot_write_is_no_room() {
    let bench = Bench::new();
    let here = bench.process();
    let tell = bench.tell();
    let session = session();
    let ask = ask(&session, &tell);
    let engines = bench.engines();
    let made = here.rooms.ensure(&engines, ask, async |_| {
        let mut plan = bench.plan().await?;
        // Something else lies there.
        plan.volume_at = ContainerPath::parse("/workspace").unwrap();
        plan.spec.tmpfs.push(Tmpfs { at: plan.volume_at.clone(), size: ByteSize::mib(1), mode: 0o000 });
        plan.spec.exec_user = Ids { uid: 4_000_000_000, gid: u32::MAX };
        Ok(plan)
    });
    let failed = made.await;
    assert!(matches!(failed, Err(RoomError::NotReady(_))));
    assert_eq!(failed.unwrap_err().to_string(), "Workspace failed readiness checks.");
    assert_eq!(bench.left().await, (0, 0, 0, 0));
}

#[tokio::test]
async fn w08_one_that_nobody_uses_goes_and_its_files_stay() {
    let bench = Bench::new();
    let here = bench.process();
    let first = here.room().await;
    write(&here.root(&first));
    here.sweep(later(3600, 3600)).await;
    assert_eq!(bench.containers().await.len(), 1, "a call is in it");
    drop(first);
    for (now, why) in [
        (later(899, 899), "not long enough"),
        (later(7200, 60), "the clock was set forward"),
        (later(60, 7200), "the clock was set back"),
    ] {
        here.sweep(now).await;
        assert_eq!(bench.containers().await.len(), 1, "{why}");
    }
    bench.told();
    bench.process().sweep(later(901, 901)).await;
    assert_eq!(bench.left().await, (0, 1, 0, 1));
    assert!(matches!(*bench.told(), [RoomDeed::IdleCleanup { idle_seconds: 900.. }]));
    let second = here.room().await;
    assert_eq!(news(&second), Some((Reason::Idle, 1, 2, false)));
    assert!(kept(&here.root(&second)));
    here.rooms.discard(&bench.engines(), (&session(), WS), (None, Reason::Timeout)).await.unwrap();
    assert_eq!(bench.left().await, (0, 1, 0, 1));
    assert_eq!(news(&here.room().await), Some((Reason::Timeout, 2, 3, false)));
}

#[tokio::test]
async fn one_that_was_there_long_enough_goes_with_its_files_and_the_next_is_a_first_one() {
    for swept in [false, true] {
        let bench = Bench::new();
        let here = bench.process();
        let first = here.room().await;
        write(&here.root(&first));
        here.expire(later(30_000, 30_000)).await;
        assert_eq!(bench.containers().await.len(), 1, "a call is in it");
        drop(first);
        here.expire(later(28_000, 28_000)).await;
        here.expire(later(30_000, 60)).await;
        assert_eq!(bench.containers().await.len(), 1, "not long enough by both clocks");
        if swept {
            here.sweep(later(1000, 1000)).await;
        }
        bench.told();
        bench.process().expire(later(30_000, 30_000)).await;
        assert_eq!(bench.left().await, (0, 0, 0, 1));
        let told = bench.told();
        let [RoomDeed::Saved { files: 1, .. }, RoomDeed::Ended { reason: EndReason::Lifetime }] = &*told else {
            panic!("{told:?}")
        };
        bench.process().expire(later(60_000, 60_000)).await;
        assert_eq!(bench.told(), [], "it ends once");
        let anew = here.room().await;
        assert_eq!((news(&anew), anew.room.generation), (Some((Reason::Lifetime, 1, 1, true)), 1));
        assert!(!kept(&here.root(&anew)));
        assert_eq!(news(&here.room().await), None, "it is told once");
        assert_eq!(bench.left().await, (1, 1, 1, 1));
    }
}

#[tokio::test]
async fn the_end_takes_all_of_one_session_and_it_has_no_rooms_any_more() {
    let bench = Bench::new();
    let (here, other) = (bench.process(), ContainerName::parse("s2").unwrap());
    here.room().await;
    here.ensure_of(&session(), RoomRole::Run).await.unwrap();
    here.ensure_of(&other, WS).await.unwrap();
    let over = here.ensure_of(&other, RoomRole::Run).await;
    assert!(matches!(over, Err(RoomError::NotMade(Error::LimitReached { limit: 3, .. }))));
    assert_eq!(bench.left().await, (3, 3, 3, 2));
    let ended = here.end(Saving::Discard).await;
    assert_eq!((ended.ended.len(), ended.failed.len()), (2, 0), "{ended:?}");
    assert_eq!(bench.left().await, (1, 1, 1, 1));
    assert!(matches!(here.ensure().await, Err(RoomError::Ended(_))));
    here.rooms.reopen(&session());
    assert_eq!(here.room().await.room.generation, 1);
}

#[tokio::test]
async fn what_an_end_left_over_is_finished_by_the_next_process() {
    let bench = Bench::new();
    let here = bench.process();
    here.room().await;
    bench.fake.fail_next(Verb::RemoveVolume);
    let ended = here.end(Saving::Discard).await;
    assert_eq!((ended.ended.len(), ended.failed.len()), (0, 1), "{ended:?}");
    assert!(matches!(bench.told().last(), Some(RoomDeed::CleanupFailed { .. })));
    let there = bench.process();
    assert!(matches!(there.ensure().await, Err(RoomError::Ended(_))));
    assert_eq!(there.recover(SignedDuration::ZERO).await.ended.len(), 1);
    assert_eq!(bench.left().await, (0, 0, 0, 0));
    assert_eq!(there.room().await.room.generation, 1);
}

#[tokio::test]
async fn a_session_goes_when_its_process_is_dead_and_its_lease_is_over() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let (lived, next) = (Process { owner: Some(dead), ..bench.process() }, bench.process());
    lived.room().await;
    assert!(next.recover(SignedDuration::from_secs(119)).await.ended.is_empty());
    assert_eq!(next.recover(SignedDuration::from_secs(121)).await.ended.len(), 1);
    assert_eq!(bench.left().await, (0, 0, 0, 0));

    next.room().await;
    assert!(next.recover(SignedDuration::from_hours(9)).await.ended.is_empty(), "its process lives");
    next.end(Saving::Discard).await;
    let nobodys = Process { owner: None, ..bench.process() };
    nobodys.room().await;
    assert!(nobodys.recover(SignedDuration::from_hours(9)).await.ended.is_empty(), "it ends when it is told to");
}

#[tokio::test]
async fn a_lease_is_renewed_by_its_owner_and_taken_over_from_a_dead_one() {
    let bench = Bench::new();
    let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
    let it = Process { owner: Some(dead), ..bench.process() };
    it.room().await;
    let before = bench.store().rooms().unwrap().remove(0);
    it.rooms.renew(&ProcessId::current()).unwrap();
    let after = bench.store().rooms().unwrap().remove(0);
    assert!(after.expires_at > before.expires_at && after.owner == Some(ProcessId::current()));
}

#[tokio::test]
async fn a_record_cut_at_any_byte_is_set_aside_and_its_container_found_again() {
    let bench = Bench::new();
    let first = bench.process().room().await;
    let whole = std::fs::read(bench.file()).unwrap();
    for at in (0..whole.len() - 2).step_by(97).chain([whole.len() - 3]) {
        std::fs::write(bench.file(), &whole[..at]).unwrap();
        let again = bench.process().room().await;
        assert_eq!((id(&again), again.made, news(&again)), (id(&first), false, None), "cut at {at}");
    }
    // Without the other record there is what the engine shows.
    std::fs::write(bench.file(), "").unwrap();
    std::fs::remove_dir_all(bench.dir.path().join("containers")).unwrap();
    std::fs::create_dir(bench.dir.path().join("containers")).unwrap();
    let again = bench.process().room().await;
    assert_eq!((id(&again), again.room.generation), (id(&first), 1));
    // And without its container the volume.
    write(&bench.process().root(&again));
    std::fs::write(bench.file(), vec![b' '; 70 << 10]).unwrap();
    bench.fake.disappear(id(&first));
    let here = bench.process();
    let second = here.room().await;
    assert!(kept(&here.root(&second)) && second.made);
}

#[tokio::test]
async fn the_other_tool_neither_lists_nor_knows_them() {
    let bench = Bench::new();
    let here = bench.process();
    let ready = here.room().await;
    let (engines, store) = (bench.engines(), bench.store());
    let listing = list(&engines, &store).await.unwrap();
    assert!(listing.containers.is_empty() && listing.unverified.is_empty(), "{listing:?}");
    let [container] = &*bench.containers().await else { panic!("there is one") };
    for handle in [container.name.as_str(), id(&ready).as_str()] {
        let found = find(&engines, &store, &Handle::parse(handle).unwrap()).await;
        assert!(matches!(found, Err(Error::NotManaged { .. })), "{found:?}");
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
    let ready = here.room().await;
    assert_eq!((news(&ready), ready.room.generation), (None, 1));
    assert_eq!(bench.left().await, (1, 1, 1, 1));
}

#[tokio::test]
async fn what_fills_a_volume_runs_once_and_its_failure_is_that_of_the_call() {
    let bench = Bench::new();
    let here = bench.process();
    let fills = Arc::new(AtomicU32::new(0));
    let ensure = async |fails: bool| {
        let (tell, session, fills) = (bench.tell(), session(), fills.clone());
        let ask = ask(&session, &tell);
        let plan = async |_| {
            let fill = move |_: Link| {
                fills.fetch_add(1, Ordering::Relaxed);
                let done: Result<(), BoxError> = if fails { Err("no".into()) } else { Ok(()) };
                Box::pin(std::future::ready(done)) as Filling
            };
            Ok(Blueprint { fill: Some(Fill(Box::new(fill))), ..bench.plan().await? })
        };
        here.rooms.ensure(&bench.engines(), ask, plan).await
    };
    assert!(matches!(ensure(true).await, Err(RoomError::Fill(_))));
    assert_eq!(bench.left().await, (0, 0, 0, 0));
    let ready = ensure(false).await.unwrap();
    bench.fake.crash(id(&ready));
    ensure(false).await.unwrap();
    assert_eq!(fills.load(Ordering::Relaxed), 2);
}

#[tokio::test]
async fn work_is_saved_before_its_volume_goes_also_when_its_container_is_gone() {
    for gone in [false, true] {
        let bench = Bench::new();
        let here = bench.process();
        let ready = here.room().await;
        write(&here.root(&ready));
        if gone {
            bench.fake.disappear(id(&ready));
        }
        let tell = bench.tell();
        let keep = Saving::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(10) });
        if gone {
            let kept_back = here.end(keep).await;
            assert!(matches!(kept_back.failed[..], [(.., RoomError::Lifecycle(Error::SaveFailed { .. }))]));
            assert_eq!(bench.volumes().await, 1, "nobody could read what is in it");
        }
        let plan = bench.plan().await.unwrap();
        let ending = Ending { reader: Some((&plan.guest, &plan.policy)), ..ending(keep, &tell) };
        let ended = here.rooms.end(&bench.engines(), &session(), &ending).await.unwrap();
        assert_eq!((ended.ended.len(), ended.saved.len(), ended.saved.first().map(|it| it.files)), (1, 1, Some(1)));
        assert_eq!(bench.left().await, (0, 0, 0, 0), "{ended:?}");
    }
}

#[tokio::test]
async fn x04_a_sandbox_that_ended_is_started_again_with_all_that_it_had() {
    let bench = Bench::new();
    let one = bench.process();
    let first = one.ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    let (root, first_id) = (one.root(&first), id(&first).clone());
    std::fs::write(root.join("installed"), "").unwrap();
    drop(first);
    bench.fake.stop(&first_id, Duration::ZERO).await.unwrap();
    let again = one.ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    assert_eq!((id(&again), news(&again)), (&first_id, Some((Reason::Restarted, 1, 2, false))));
    assert!(root.join("installed").exists());
    assert_eq!(one.ensure_of(&session(), RoomRole::Sandbox).await.unwrap().room.generation, 2);
}

#[tokio::test]
async fn a_sandbox_that_nobody_uses_is_stopped_and_not_removed() {
    let bench = Bench::new();
    let one = bench.process();
    let first_id = id(&one.ensure_of(&session(), RoomRole::Sandbox).await.unwrap()).clone();
    one.sweep(later(1000, 1000)).await;
    let status = async || bench.fake.inspect(&Handle::from(&first_id)).await.unwrap().status;
    assert_eq!(status().await, Status::Running, "it is not idle for as long as that");
    one.sweep(later(3700, 3700)).await;
    assert_eq!(status().await, Status::Exited);
    assert!(matches!(bench.told().last(), Some(RoomDeed::IdleCleanup { .. })));
    one.sweep(later(9000, 9000)).await;
    assert_eq!(bench.told(), [], "it is stopped once");
    let again = one.ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    assert_eq!((id(&again), news(&again)), (&first_id, Some((Reason::Idle, 1, 2, false))));
}

fn after(seconds: u64) -> Moment {
    later(i64::try_from(seconds).unwrap(), seconds)
}

/// All that tells a container from every other.
async fn seen(bench: &Bench, id: &ContainerId) -> coracle_runtime::Container {
    bench.fake.inspect(&Handle::from(id)).await.unwrap()
}

#[tokio::test]
async fn x07_a_container_with_our_labels_copied_is_left_alone_and_one_of_ours_is_used() {
    let sandbox = RoomRole::Sandbox;
    for (records, real) in [(true, true), (true, false), (false, true), (false, false)] {
        let what = format!("records: {records}, ours: {real}");
        let bench = Bench::new();
        let first = bench.process().ensure_of(&session(), sandbox).await.unwrap();
        write(&bench.fake.root(id(&first)).unwrap());
        let labels = seen(&bench, id(&first)).await.labels;
        let spec = CreateSpec::new(ContainerName::parse("copy").unwrap(), ImageRef::parse(LOCAL_IMAGE).unwrap());
        let admitted = coracle_runtime::admit(CreateSpec { labels, ..spec }, &Policy::everything()).unwrap();
        let image = bench.plan().await.unwrap().image;
        let copy = bench.fake.create(&admitted.on(image.id, coracle_runtime::NetworkOn::None)).await.unwrap();
        let before = seen(&bench, &copy).await;
        if !real {
            bench.fake.disappear(id(&first));
        }
        if !records {
            std::fs::write(bench.dir.path().join("sessions/s1/sandbox.json"), "").unwrap();
            std::fs::remove_dir_all(bench.dir.path().join("containers")).unwrap();
            std::fs::create_dir(bench.dir.path().join("containers")).unwrap();
        }
        let here = bench.process();
        let used = here.ensure_of(&session(), sandbox).await.unwrap();
        assert_eq!(id(&used) == id(&first), real, "{what}");
        assert_ne!(*id(&used), copy, "{what}");
        assert!(kept(&here.root(&used)), "{what}: its files are there");
        assert_eq!(here.rooms.forgotten(&bench.engines(), sandbox).await.unwrap(), [], "{what}");
        drop(used);
        here.end(Saving::Discard).await;
        assert_eq!(here.rooms.forgotten(&bench.engines(), sandbox).await.unwrap(), [], "{what}");
        assert!(!here.rooms.recall(&bench.engines(), (&session(), sandbox)).await.unwrap(), "{what}");
        assert_eq!(seen(&bench, &copy).await, before, "{what}");
        assert_eq!(bench.containers().await.len(), 1, "{what}");
    }
}

#[tokio::test]
async fn x07_a_sandbox_whose_container_is_not_ours_any_more_gets_a_fresh_one() {
    let bench = Bench::new();
    let first = bench.process().ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    // As another person's key would sign it.
    std::fs::write(bench.dir.path().join("key"), "0".repeat(32)).unwrap();
    let before = seen(&bench, id(&first)).await;
    let fresh = bench.process().ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    assert_ne!(id(&fresh), id(&first));
    assert_eq!(seen(&bench, id(&first)).await, before);
    assert_eq!(bench.volumes().await, 2, "the volume may be somebody else's, too");
}

#[tokio::test]
async fn x19_a_sandbox_that_only_the_engine_knows_is_known_again() {
    let bench = Bench::new();
    let first = bench.process().ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    for dir in ["sessions", "containers"] {
        std::fs::remove_dir_all(bench.dir.path().join(dir)).unwrap();
        std::fs::create_dir(bench.dir.path().join(dir)).unwrap();
    }
    let (here, engines) = (bench.process(), bench.engines());
    assert_eq!(here.rooms.forgotten(&engines, RoomRole::Sandbox).await.unwrap(), [session()]);
    assert_eq!(here.rooms.forgotten(&engines, RoomRole::Run).await.unwrap(), []);
    assert!(here.rooms.recall(&engines, (&session(), RoomRole::Sandbox)).await.unwrap());
    assert_eq!(here.rooms.forgotten(&engines, RoomRole::Sandbox).await.unwrap(), []);
    let again = here.ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    assert_eq!((id(&again), again.made), (id(&first), false));
}

#[tokio::test]
async fn a_sandbox_is_old_after_seven_days_by_both_clocks_unless_somebody_is_in_it() {
    const WEEK: u64 = 7 * 24 * 60 * 60;
    let bench = Bench::new();
    let here = bench.process();
    let old = async |now: Moment| here.rooms.old_sandboxes(&bench.engines(), &now).await.unwrap();
    let still = async || here.rooms.is_old_sandbox(&bench.engines(), &session(), &after(WEEK + 9)).await.unwrap();
    assert!(!still().await, "there is none");
    let first = here.ensure_of(&session(), RoomRole::Sandbox).await.unwrap();
    assert_eq!(old(after(WEEK + 9)).await, [], "a call is in it");
    assert!(!still().await, "a call is in it");
    drop(first);
    let week = i64::try_from(WEEK).unwrap();
    for (wall, up) in [(week - 60, WEEK - 60), (week + 9, 60), (60, WEEK + 9)] {
        assert_eq!(old(later(wall, up)).await, [], "{wall} {up}");
    }
    assert_eq!(old(after(WEEK + 9)).await, [session()]);
    assert!(still().await);
    bench.process().expire(after(WEEK + 9)).await;
    assert_eq!(bench.containers().await.len(), 1, "it goes by who saves its work");
    // That could not be: it is tried again, and each time later.
    let mut at = WEEK + 9;
    for pause in [60, 120, 240] {
        here.rooms.put_off((&session(), RoomRole::Sandbox), &after(at)).unwrap();
        assert_eq!(old(after(at + pause - 2)).await, [], "{pause}");
        at += pause + 2;
        assert_eq!(old(after(at)).await, [session()], "{pause}");
    }
    for _ in 0..40 {
        here.rooms.put_off((&session(), RoomRole::Sandbox), &after(at)).unwrap();
    }
    assert_eq!(old(after(at + 6 * 3600 + 2)).await, [session()], "at least four times a day");
}

#[tokio::test]
async fn an_old_room_that_cannot_be_ended_is_tried_again_after_a_pause_that_grows() {
    let bench = Bench::new();
    drop(bench.process().room().await);
    let fails = async |at: u64| {
        bench.told();
        bench.fake.fail_next(Verb::RemoveVolume);
        bench.process().expire(after(at)).await;
        bench.told().iter().any(|it| matches!(it, RoomDeed::CleanupFailed { .. }))
    };
    assert!(fails(30_000).await);
    assert!(!fails(30_050).await);
    assert!(fails(30_065).await);
    assert!(!fails(30_170).await);
    assert!(fails(30_190).await);
}
