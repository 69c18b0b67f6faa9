//! Containers that sessions get without asking, on real engines (workspace.md 1 and 7).

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coracle_lifecycle::{
    Blueprint, BoxError, EndReason, EndedRooms, Ending, Engines, GuestProgram, Links, Moment, Ready, Reason, RoomAsk,
    RoomDeed, RoomError, RoomEvent, RoomRole, RoomTerms, Rooms, SaveLimits, Saving, Store,
};
use coracle_runtime::link::{LinkSettings, Transport};
use coracle_runtime::{
    ByteSize, Capabilities, Command, Container, ContainerName, ContainerPath, ContainerRuntime, CreateSpec, EngineKind,
    Exec, Exit, Handle, Ids, ImageAct, ImageRef, LabelFilter, LabelNamespace, Limits, NetworkAsk, Policy, ProcessId,
    Status, Tmpfs, Ulimits, VolumeAct, random_hex,
};
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::engines::{
    Case, IMAGE, Lack, caught, engine_program, guest_program, on_every_engine_and_rootless, ran, with_real_engines,
};

const USER: Ids = Ids { uid: 65534, gid: 65534 };
const WS: RoomRole = RoomRole::Workspace;

#[derive(Debug)]
struct One(Arc<dyn ContainerRuntime>);

#[async_trait]
impl Engines for One {
    async fn of(&self, _: EngineKind, _: &str) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
        Ok(self.0.clone())
    }

    async fn preferred(&self) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
        Ok(self.0.clone())
    }
}

/// A state directory on an engine, with a namespace of its own.
struct Bench<'a> {
    case: &'a Case,
    state: TempDir,
    namespace: LabelNamespace,
    told: Arc<Mutex<Vec<RoomDeed>>>,
    capabilities: Capabilities,
}

/// A process that uses it. Clones are the same one.
#[derive(Clone)]
struct Process {
    rooms: Rooms,
    engines: Arc<One>,
    told: Arc<Mutex<Vec<RoomDeed>>>,
    plan: Plan,
    role: RoomRole,
    owner: Option<ProcessId>,
}

/// What a blueprint is made of.
#[derive(Clone)]
struct Plan {
    labels: BTreeMap<String, String>,
    capabilities: Capabilities,
    keeps_limits: bool,
    /// Its guest is spoken to by a command of the engine.
    by_stream: bool,
}

fn session() -> ContainerName {
    ContainerName::parse("s1").unwrap()
}

fn at(path: &str) -> ContainerPath {
    ContainerPath::parse(path).unwrap()
}

impl<'a> Bench<'a> {
    fn new(case: &'a Case) -> Self {
        let namespace = LabelNamespace::parse(format!("rooms-{}", random_hex::<3>())).unwrap();
        let state = tempfile::tempdir().unwrap();
        Self { case, state, namespace, told: Arc::default(), capabilities: Capabilities::Guest }
    }

    fn process(&self) -> Process {
        let store = Store::open(self.state.path(), self.namespace.clone()).unwrap();
        let plan = Plan {
            labels: [self.case.label()].into(),
            capabilities: self.capabilities,
            keeps_limits: self.case.keeps_limits(),
            by_stream: false,
        };
        Process {
            rooms: Rooms::new(store, Links::new(LinkSettings::default()), RoomTerms::default()),
            engines: Arc::new(One(self.case.runtime.clone())),
            told: self.told.clone(),
            plan,
            role: WS,
            owner: Some(ProcessId::current()),
        }
    }

    fn managed(&self) -> LabelFilter {
        LabelFilter(vec![(format!("{}.managed", self.namespace), Some("true".into()))])
    }

    async fn containers(&self) -> Vec<Container> {
        self.case.runtime.list(&self.managed()).await.unwrap()
    }

    async fn volumes(&self) -> Vec<String> {
        let found = self.case.runtime.volume(VolumeAct::List(self.managed())).await.unwrap();
        found.into_iter().map(|it| it.name).collect()
    }

    /// Containers, volumes, and records of sessions.
    async fn left(&self) -> (usize, usize, usize) {
        let sessions = std::fs::read_dir(self.state.path().join("sessions")).unwrap().count();
        (self.containers().await.len(), self.volumes().await.len(), sessions)
    }

    fn told(&self) -> Vec<RoomDeed> {
        std::mem::take(&mut self.told.lock().unwrap())
    }

    async fn program(&self, words: &[&str]) {
        let mut program = engine_program(self.case.engine().as_str());
        assert!(program.args(words).stdout(std::process::Stdio::null()).status().await.unwrap().success(), "{words:?}");
    }

    async fn clean_up(&self) {
        for it in self.containers().await {
            self.case.runtime.remove(&it.id).await.unwrap();
        }
        for name in self.volumes().await {
            self.case.runtime.volume(VolumeAct::Remove(name)).await.unwrap();
        }
    }
}

impl Plan {
    async fn blueprint(&self, runtime: Arc<dyn ContainerRuntime>) -> Result<Blueprint, BoxError> {
        let image = ImageRef::parse(IMAGE)?;
        let found = runtime.image(ImageAct::Find(vec![image.clone()])).await?;
        let limits = Limits { memory: Some(ByteSize::mib(128)), cpus: Some(1.0), pids: Some(256) };
        let spec = CreateSpec {
            exec_user: USER,
            read_only: !self.by_stream,
            // The image has no such home, whose mode would stay.
            tmpfs: vec![
                Tmpfs { at: at("/tmp"), size: ByteSize::mib(16), mode: 0o1777 },
                Tmpfs { at: at("/home/user"), size: ByteSize::mib(16), mode: 0o700 },
            ],
            ulimits: Ulimits { nofile: Some(4096), core: Some(0) },
            capabilities: self.capabilities,
            network: NetworkAsk::None,
            limits: if self.keeps_limits { limits } else { Limits::default() },
            labels: self.labels.clone(),
            ..CreateSpec::new(ContainerName::parse("any")?, image)
        };
        // A volume over a directory of the image is whose that is, and nobody gives it away where nobody is root.
        let place = if self.capabilities == Capabilities::None { "/bin" } else { "/workspace" };
        Ok(Blueprint {
            spec,
            policy: Policy::everything(),
            image: found.into_iter().next().ok_or("the image is there")?,
            reference: IMAGE.into(),
            guest: GuestProgram { shared_files: !self.by_stream, ..guest() },
            volume_at: at(place),
            workdir: at(place),
            env: BTreeMap::new(),
            volume_size: None,
            fill: None,
            protected: Vec::new(),
            max_containers_total: 10,
            tool_version: "0".into(),
        })
    }
}

fn guest() -> GuestProgram {
    GuestProgram { path: guest_program(), sha256: String::new(), shared_files: true, worker: None }
}

impl Process {
    async fn ensure(&self) -> Result<Ready, RoomError> {
        let (tell, session) = (self.tell(), session());
        let (role, owner) = (self.role, self.owner.as_ref());
        let ask = RoomAsk {
            session: &session,
            role,
            spec_hash: "a",
            user: USER,
            rootless: self.plan.capabilities == Capabilities::None,
            owner,
            tell: &tell,
        };
        self.rooms.ensure(&*self.engines, ask, |runtime| self.plan.blueprint(runtime)).await
    }

    async fn room(&self) -> Ready {
        self.ensure().await.unwrap()
    }

    fn tell(&self) -> impl Fn(RoomEvent) + Send + Sync + use<> {
        let told = self.told.clone();
        move |event| told.lock().unwrap().push(event.what)
    }

    async fn end(&self) -> EndedRooms {
        let tell = self.tell();
        self.rooms.end(&*self.engines, &session(), &ending((&guest(), &Policy::everything()), &tell)).await.unwrap()
    }

    async fn recover(&self, after: SignedDuration) -> EndedRooms {
        let (tell, now) = (self.tell(), Timestamp::now() + after);
        let (guest, policy) = (guest(), Policy::everything());
        self.rooms.recover(&*self.engines, now, &ending((&guest, &policy), &tell)).await.unwrap()
    }

    async fn expire(&self, after: u64) {
        let (tell, now) = (self.tell(), Moment::now());
        let wall = now.wall + SignedDuration::from_secs(after.try_into().unwrap());
        let now = Moment { wall, up_s: now.up_s + after, ..now };
        let (guest, policy) = (guest(), Policy::everything());
        self.rooms.expire(&*self.engines, &now, &ending((&guest, &policy), &tell)).await.unwrap();
    }

    async fn sweep(&self, after: u64) {
        self.sweep_by(after.try_into().unwrap(), after).await;
    }

    /// As if the wall clock went on by so many seconds, and the machine by others.
    async fn sweep_by(&self, wall: i64, up: u64) {
        let (tell, now) = (self.tell(), Moment::now());
        let now = Moment { wall: now.wall + SignedDuration::from_secs(wall), up_s: now.up_s + up, ..now };
        self.rooms.sweep(&*self.engines, &now, &tell).await.unwrap();
    }
}

fn ending<'a>(reader: (&'a GuestProgram, &'a Policy), tell: &'a (dyn Fn(RoomEvent) + Send + Sync)) -> Ending<'a> {
    let saving = Saving::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(15) });
    Ending {
        saving,
        reader: Some(reader),
        grace: Duration::from_secs(1),
        within: Duration::from_secs(20),
        tell,
        reason: EndReason::Command,
    }
}

fn id(ready: &Ready) -> &str {
    ready.room.container_id.as_ref().unwrap().as_str()
}

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), USER, at("/workspace"))
}

/// What a script of the user printed.
async fn printed(ready: &Ready, script: &str) -> String {
    let it = ready.link.exec(sh(script)).await.unwrap();
    assert_eq!((it.exit, it.stderr.text().as_str()), (Exit::Code(0), ""), "{script}");
    it.stdout.text()
}

fn news(ready: &Ready) -> Option<(Reason, u32, u32, bool)> {
    ready.news.as_ref().map(|it| (it.reason, it.from, it.to, it.files_lost))
}

/// Runs a check, and removes what it made also when it panics.
async fn checked(case: &Case, capabilities: Capabilities, check: impl AsyncFn(&Bench<'_>)) {
    if !case.is_real() {
        return;
    }
    let bench = Bench { capabilities, ..Bench::new(case) };
    let done = caught(check(&bench)).await;
    bench.clean_up().await;
    if let Err(panic) = done {
        resume_unwind(panic);
    }
}

async fn with_bench(check: impl AsyncFn(&Bench<'_>)) {
    with_real_engines(async |case| checked(case, Capabilities::Guest, &check).await).await;
}

#[tokio::test]
async fn w01_a_room_is_as_its_plan_says() {
    on_every_engine_and_rootless(async |case| {
        if case.lacks(Lack::Ulimits) {
            return;
        }
        checked(case, Capabilities::Guest, async |bench| {
            let here = bench.process();
            assert_eq!(bench.left().await, (0, 0, 0));
            let ready = here.room().await;
            let [container] = &*bench.containers().await else { panic!("there is one") };
            assert_eq!((container.id.as_str(), container.status), (id(&ready), Status::Running));
            if case.keeps_limits() {
                let limits = Limits { memory: Some(ByteSize::mib(128)), cpus: Some(1.0), pids: Some(256) };
                assert_eq!(container.limits, limits);
            }
            let script = "id -u; id -g; ls /sys/class/net; stat -c '%a %u' /home/user /tmp; ulimit -n; pwd";
            let seen = printed(&ready, script).await;
            assert_eq!(seen, "65534\n65534\nlo\n700 65534\n1777 0\n4096\n/workspace\n");
            let seen = printed(&ready, "grep -E 'Cap(Prm|Eff|Bnd)|NoNewPrivs' /proc/self/status; echo x >/tmp/x").await;
            assert!(seen.contains("CapEff:\t0000000000000000") && seen.contains("NoNewPrivs:\t1"), "{seen}");
            let refused = ready.link.exec(sh("echo no >/etc/made")).await.unwrap();
            assert!(refused.stderr.text().contains("Read-only"), "{refused:?}");
            ran("W01", case.engine());
        })
        .await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn w02_many_first_calls_of_two_processes_make_one() {
    with_bench(async |bench| {
        let processes = [bench.process(), bench.process()];
        let mut calls = JoinSet::new();
        for at in 0..32 {
            let process = processes[at % 2].clone();
            calls.spawn(async move { process.ensure().await });
        }
        let all: Vec<_> = calls.join_all().await.into_iter().map(Result::unwrap).collect();
        assert_eq!(all.iter().filter(|it| it.made).count(), 1);
        assert!(all.iter().all(|it| id(it) == id(&all[0]) && it.room.generation == 1 && it.news.is_none()));
        assert_eq!((bench.left().await, bench.told().len()), ((1, 1, 1), 2));
        for process in &processes {
            for _ in 0..20 {
                assert!(!process.room().await.made);
            }
        }
        ran("W02", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w04_a_volume_that_cannot_be_written_is_no_room_and_nothing_is_left() {
    with_real_engines(async |case| {
        checked(case, Capabilities::None, async |bench| {
            let failed = bench.process().ensure().await;
            assert!(matches!(failed, Err(RoomError::NotReady(_))), "{failed:?}");
            assert_eq!(bench.left().await, (0, 0, 0));
            ran("W04", case.engine());
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn w05_one_that_is_killed_or_removed_is_replaced_and_its_files_are_there() {
    with_bench(async |bench| {
        let (here, there) = (bench.process(), bench.process());
        let first = here.room().await;
        printed(&first, "echo kept > file; echo lost > /tmp/file").await;
        there.room().await;
        bench.program(&["kill", id(&first)]).await;
        let second = here.room().await;
        assert_eq!(news(&second), Some((Reason::Crashed, 1, 2, false)));
        assert_eq!(second.news.as_ref().unwrap().exit_code, Some(137));
        assert_eq!(printed(&second, "cat file; ls /tmp").await, "kept\n");
        for process in [&here, &there] {
            let again = process.room().await;
            assert_eq!((news(&again), again.room.generation, id(&again)), (None, 2, id(&second)));
        }
        bench.program(&["rm", "--force", id(&second)]).await;
        let third = there.room().await;
        assert_eq!(news(&third), Some((Reason::Vanished, 2, 3, false)));
        assert_eq!(printed(&third, "cat file").await, "kept\n");
        bench.program(&["rm", "--force", id(&third)]).await;
        bench.program(&["volume", "rm", &bench.volumes().await[0]]).await;
        let fourth = here.room().await;
        assert_eq!(news(&fourth), Some((Reason::Vanished, 3, 4, true)));
        assert_eq!(printed(&fourth, "ls").await, "");
        assert_eq!(bench.left().await, (1, 1, 1));
        bench.program(&["kill", id(&fourth)]).await;
        assert!(matches!(here.ensure().await, Err(RoomError::CrashLoop { reason: Reason::Crashed, .. })));
        ran("W05", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w07_one_that_is_paused_or_stopped_is_brought_back_or_replaced() {
    with_bench(async |bench| {
        let here = bench.process();
        let first = here.room().await;
        bench.program(&["pause", id(&first)]).await;
        let again = here.room().await;
        assert_eq!((news(&again), again.made, id(&again)), (None, false, id(&first)));
        assert_eq!(printed(&again, "echo on").await, "on\n");
        bench.program(&["stop", id(&first)]).await;
        let second = here.room().await;
        assert_eq!(news(&second), Some((Reason::Crashed, 1, 2, false)));
        here.rooms.discard(&*here.engines, (&session(), WS), (None, Reason::Timeout)).await.unwrap();
        assert_eq!(bench.left().await, (0, 1, 1));
        assert_eq!(news(&here.room().await), Some((Reason::Timeout, 2, 3, false)));
        ran("W07", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w08_one_that_nobody_uses_goes_but_not_while_a_command_runs() {
    with_bench(async |bench| {
        let (here, other) = (bench.process(), bench.process());
        let first = here.room().await;
        printed(&first, "echo kept > file").await;
        let link = first.link.clone();
        drop(first);
        let begun = link.start(sh("sleep 300"), None).await.unwrap();
        for process in [&here, &other] {
            process.sweep(1000).await;
            assert_eq!(bench.left().await, (1, 1, 1), "a command runs in it");
        }
        let job = coracle_runtime::JobId::parse(&begun.job).unwrap();
        link.cancel(&job, Duration::ZERO).await.unwrap();
        drop(link);
        bench.told();
        other.sweep(1000).await;
        assert_eq!(bench.left().await, (0, 1, 1));
        assert!(matches!(*bench.told(), [RoomDeed::IdleCleanup { idle_seconds: 900.. }]));
        let second = here.room().await;
        assert_eq!(news(&second), Some((Reason::Idle, 1, 2, false)));
        assert_eq!(printed(&second, "cat file").await, "kept\n");
        drop(second);
        // And for good, once it was there for long.
        other.expire(30_000).await;
        assert_eq!(bench.left().await, (0, 0, 1));
        assert!(matches!(bench.told().last(), Some(RoomDeed::Ended { reason: EndReason::Lifetime })));
        let third = here.room().await;
        assert_eq!((news(&third), third.room.generation), (Some((Reason::Lifetime, 2, 1, true)), 1));
        ran("W08", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w08_one_whose_way_out_is_our_own_link_goes_too_but_not_while_somebody_is_in_it() {
    with_bench(async |bench| {
        let mut here = bench.process();
        here.plan.by_stream = true;
        let first = here.room().await;
        if first.link.transport() != Some(Transport::Stream) {
            return; // an engine that is played runs no commands of its own
        }
        // What keeps its way out has the link for as long as this process lives.
        let (kept, container) = (first.link.clone(), id(&first).to_owned());
        drop(first);
        let mut somebody = engine_program(bench.case.engine().as_str());
        let mut somebody = somebody.args(["exec", &container, "sleep", "4"]).spawn().unwrap();
        let sees = async |execs: usize| {
            let begun = std::time::Instant::now();
            while bench.containers().await[0].execs != execs {
                assert!(begun.elapsed() < Duration::from_secs(20), "{execs} are not seen");
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        sees(2).await;
        here.sweep(1000).await;
        assert_eq!(bench.left().await, (1, 1, 1), "somebody is in it");
        assert!(somebody.wait().await.unwrap().success());
        sees(1).await;
        assert_eq!(kept.transport(), Some(Transport::Stream), "a look takes nobody's way out");
        here.sweep(1000).await;
        assert_eq!(bench.left().await, (0, 1, 1));
        drop(kept);
        ran("W08", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w09_a_command_that_runs_for_15_minutes_or_a_clock_that_jumps_costs_nobody_a_room() {
    const IDLE: u64 = 15 * 60;
    const JUMP: i64 = 2 * 60 * 60;
    with_bench(async |bench| {
        let (here, other) = (bench.process(), bench.process());
        let link = here.room().await.link.clone();
        let command = link.start(sh("echo $$ > command; sleep 3000"), None).await.unwrap();
        for process in [&here, &other] {
            for (wall, up) in [(IDLE as i64, IDLE), (JUMP, 60), (JUMP + IDLE as i64, IDLE + 1), (-JUMP, IDLE + 1)] {
                process.sweep_by(wall, up).await;
                assert_eq!(bench.left().await, (1, 1, 1), "a command runs in it: {wall} s, {up} s");
            }
        }
        let running = here.room().await;
        assert_eq!((news(&running), running.made), (None, false));
        printed(&running, "kill -0 $(cat command)").await;
        let job = coracle_runtime::JobId::parse(&command.job).unwrap();
        link.cancel(&job, Duration::ZERO).await.unwrap();
        drop((running, link));
        // Nothing runs any more, and only one of the two clocks says that it was for long.
        for process in [&here, &other] {
            for (wall, up) in [(JUMP, 60), (-JUMP, IDLE + 1), (60, IDLE + 1)] {
                process.sweep_by(wall, up).await;
                assert_eq!(bench.left().await, (1, 1, 1), "a clock jumped: {wall} s, {up} s");
            }
        }
        // The same sweep, once both do.
        other.sweep_by(JUMP + IDLE as i64, IDLE + 60).await;
        assert_eq!(bench.left().await, (0, 1, 1));
        ran("W09", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w10_the_end_takes_everything_and_keeps_work() {
    with_bench(async |bench| {
        let here = bench.process();
        let ready = here.room().await;
        printed(&ready, "mkdir -p src && echo work > src/file").await;
        let begun = std::time::Instant::now();
        let ended = here.end().await;
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
        assert_eq!((ended.ended.len(), ended.failed.len()), (1, 0), "{ended:?}");
        assert_eq!(ended.saved.iter().map(|it| it.files).collect::<Vec<_>>(), [1]);
        assert_eq!(bench.left().await, (0, 0, 0));
        assert!(matches!(here.ensure().await, Err(RoomError::Ended(_))));
        ran("W10", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w11_the_next_process_ends_what_a_dead_one_left() {
    with_bench(async |bench| {
        let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
        for gone in [false, true] {
            let lived = Process { owner: Some(dead.clone()), ..bench.process() };
            let ready = lived.room().await;
            printed(&ready, "echo work > file").await;
            if gone {
                // Nobody used it, say: what is in the volume is work all the same.
                bench.program(&["rm", "--force", id(&ready)]).await;
            }
            let next = bench.process();
            assert!(next.recover(SignedDuration::from_secs(100)).await.ended.is_empty(), "its lease is not over");
            let ended = next.recover(SignedDuration::from_secs(130)).await;
            assert_eq!((ended.ended.len(), ended.failed.len()), (1, 0), "{ended:?}");
            assert_eq!(ended.saved.iter().map(|it| it.files).collect::<Vec<_>>(), [1], "gone: {gone}");
            assert_eq!(bench.left().await, (0, 0, 0));
        }
        ran("W11", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn r15_the_next_process_ends_the_snippets_of_a_dead_one_and_keeps_nothing_of_them() {
    with_bench(async |bench| {
        let dead = ProcessId { pid: u32::MAX, ..ProcessId::current() };
        for role in [None, Some(WS)] {
            let lived = Process { owner: Some(dead.clone()), role: RoomRole::Run, ..bench.process() };
            printed(&lived.room().await, "echo fetched > file").await;
            if let Some(role) = role {
                printed(&Process { role, ..lived }.room().await, "echo work > file").await;
            }
            let next = bench.process();
            assert!(next.recover(SignedDuration::from_secs(100)).await.ended.is_empty(), "its lease is not over");
            let ended = next.recover(SignedDuration::from_secs(130)).await;
            let roles = 1 + role.iter().count();
            assert_eq!((ended.ended.len(), ended.failed.len()), (roles, 0), "{ended:?}");
            assert_eq!(ended.saved.len(), role.iter().count(), "only the workspace is work: {ended:?}");
            assert_eq!(bench.left().await, (0, 0, 0));
        }
        ran("R15", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w12_a_record_that_is_damaged_is_made_anew_from_its_container() {
    with_bench(async |bench| {
        let first = bench.process().room().await;
        printed(&first, "echo kept > file").await;
        let file = bench.state.path().join("sessions/s1/workspace.json");
        for cut in [0, 100, 700] {
            let whole = std::fs::read(&file).unwrap();
            std::fs::write(&file, &whole[..cut]).unwrap();
            if cut == 100 {
                let containers = bench.state.path().join("containers");
                std::fs::remove_dir_all(&containers).unwrap();
                std::fs::create_dir(containers).unwrap();
            }
            let again = bench.process().room().await;
            assert_eq!((id(&again), again.made, news(&again)), (id(&first), false, None), "cut at {cut}");
            assert_eq!(printed(&again, "cat file").await, "kept\n");
        }
        let ended = bench.process().end().await;
        assert_eq!((ended.ended.len(), bench.left().await.0), (1, 0), "{ended:?}");
        ran("W12", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn one_whose_labels_are_not_ours_is_left_alone() {
    with_bench(async |bench| {
        let first = bench.process().room().await;
        // As another person's key would sign it.
        std::fs::write(bench.state.path().join("key"), random_hex::<16>()).unwrap();
        let refused = bench.process().ensure().await;
        let not_managed = matches!(refused, Err(RoomError::Lifecycle(coracle_lifecycle::Error::NotManaged { .. })));
        assert!(not_managed, "{refused:?}");
        let there = bench.case.runtime.inspect(&Handle::parse(id(&first)).unwrap()).await.unwrap();
        assert_eq!(there.status, Status::Running);
    })
    .await;
}

#[tokio::test]
async fn x07_a_container_with_our_labels_copied_is_left_alone_and_one_of_ours_is_used() {
    with_bench(async |bench| {
        let sandbox = || Process { role: RoomRole::Sandbox, owner: None, ..bench.process() };
        let first = sandbox().room().await;
        printed(&first, "echo kept > file").await;
        let ours = bench.containers().await.remove(0);
        let name = bench.case.name("copy").to_string();
        let labels = ours.labels.iter().map(|(key, value)| format!("--label={key}={value}"));
        let words: Vec<String> = ["run", "--detach", "--network=none", "--name", &name].map(str::to_owned).into();
        let words: Vec<_> = words.into_iter().chain(labels).chain([IMAGE, "sleep", "600"].map(str::to_owned)).collect();
        bench.program(&words.iter().map(String::as_str).collect::<Vec<_>>()).await;
        let copy = async || bench.case.runtime.inspect(&Handle::parse(&name).unwrap()).await.unwrap();
        let before = copy().await;
        assert_eq!((&before.labels, before.status), (&ours.labels, Status::Running));
        let lose = || {
            std::fs::write(bench.state.path().join("sessions/s1/sandbox.json"), "").unwrap();
            let containers = bench.state.path().join("containers");
            std::fs::remove_dir_all(&containers).unwrap();
            std::fs::create_dir(containers).unwrap();
        };
        let used = async |what: &str, ours: bool| {
            let used = sandbox().room().await;
            assert_eq!(id(&used) == id(&first), ours, "{what}");
            assert_ne!(id(&used), before.id.as_str(), "{what}");
            assert_eq!(printed(&used, "cat file").await, "kept\n", "{what}");
            assert_eq!(copy().await, before, "{what}");
            id(&used).to_owned()
        };
        used("all is there", true).await;
        lose();
        used("the records are lost", true).await;
        bench.case.runtime.remove(&ours.id).await.unwrap();
        let second = used("its container is gone", false).await;
        lose();
        bench.program(&["rm", "--force", &second]).await;
        used("records and container are gone", false).await;
        let ended = sandbox().end().await;
        assert_eq!((ended.ended.len(), ended.failed.len()), (1, 0), "{ended:?}");
        let (containers, volumes, _) = bench.left().await;
        assert_eq!((copy().await, containers, volumes), (before, 1, 0));
        ran("X07", bench.case.engine());
    })
    .await;
}
