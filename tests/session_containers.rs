//! Containers that sessions get without asking, on real engines.

mod ending;
mod replacing;

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use coracle_client::{LinkSettings, Transport};
use coracle_lifecycle::{
    BoxError, ClockReading, ContainerEvent, ContainerTemplate, EndOptions, EndReason, EndedSession, Engines,
    EnsureRequest, GuestProgram, Links, Ready, Reason, SaveLimits, SavePolicy, SessionContainers, SlotError, SlotEvent,
    SlotKey, SlotLimits, SlotRole, Store,
};
use coracle_runtime::{
    Capabilities, Container, ContainerRuntime, CreateSpec, LabelFilter, Limits, NetworkRequest, Policy, Tmpfs, Ulimits,
};
use coracle_types::{
    ByteSize, Command, ContainerName, ContainerPath, ContainerStatus, EngineKind, Exec, Exit, Handle, Ids, ImageRef,
    LabelNamespace, ProcessId, random_hex,
};
use jiff::SignedDuration;
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::engines::{
    Case, Check, IMAGE, Lack, caught, engine_program, guest_program, on_every_engine_and_rootless, ran,
    with_real_engines,
};

const USER: Ids = Ids { uid: 65534, gid: 65534 };
const WS: SlotRole = SlotRole::Workspace;

#[derive(Debug)]
struct One(Arc<dyn ContainerRuntime>);

#[async_trait]
impl Engines for One {
    async fn for_record(&self, _: EngineKind, _: &str) -> coracle_lifecycle::Result<Arc<dyn ContainerRuntime>> {
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
    events: Arc<Mutex<Vec<ContainerEvent>>>,
    capabilities: Capabilities,
}

/// A process that uses it. Clones are the same process.
#[derive(Clone)]
struct Process {
    slots: SessionContainers,
    engines: Arc<One>,
    events: Arc<Mutex<Vec<ContainerEvent>>>,
    plan: Plan,
    role: SlotRole,
    owner: Option<ProcessId>,
}

/// The parts of a template.
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
        Self { case, state, namespace, events: Arc::default(), capabilities: Capabilities::Guest }
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
            slots: SessionContainers::new(store, Links::new(LinkSettings::default()), SlotLimits::default()),
            engines: Arc::new(One(self.case.runtime.clone())),
            events: self.events.clone(),
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
        let found = self.case.runtime.list_volumes(&self.managed()).await.unwrap();
        found.into_iter().map(|it| it.name).collect()
    }

    /// Containers, volumes, and records of sessions.
    async fn left(&self) -> (usize, usize, usize) {
        let sessions = std::fs::read_dir(self.state.path().join("sessions")).unwrap().count();
        (self.containers().await.len(), self.volumes().await.len(), sessions)
    }

    fn events(&self) -> Vec<ContainerEvent> {
        std::mem::take(&mut self.events.lock().unwrap())
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
            self.case.runtime.remove_volume(&name).await.unwrap();
        }
    }
}

impl Plan {
    async fn template(&self, runtime: Arc<dyn ContainerRuntime>) -> Result<ContainerTemplate, BoxError> {
        let image = ImageRef::parse(IMAGE)?;
        let found = runtime.find_images(std::slice::from_ref(&image)).await?;
        let limits = Limits { memory: Some(ByteSize::mib(128)), cpus: Some(1.0), pids: Some(256) };
        let spec = CreateSpec {
            exec_user: USER,
            read_only: !self.by_stream,
            // The image has no such home. Otherwise its mode would stay.
            tmpfs: vec![
                Tmpfs { at: at("/tmp"), size: ByteSize::mib(16), mode: 0o1777 },
                Tmpfs { at: at("/home/user"), size: ByteSize::mib(16), mode: 0o700 },
            ],
            ulimits: Ulimits { nofile: Some(4096), core: Some(0) },
            capabilities: self.capabilities,
            network: NetworkRequest::None,
            limits: if self.keeps_limits { limits } else { Limits::default() },
            labels: self.labels.clone(),
            ..CreateSpec::new(ContainerName::parse("any")?, image)
        };
        // A volume over a directory of the image takes that directory's owner, and without root it cannot be changed.
        let place = if self.capabilities == Capabilities::None { "/bin" } else { "/workspace" };
        Ok(ContainerTemplate {
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
    async fn ensure(&self) -> Result<Ready, SlotError> {
        let (observer, session) = (self.observer(), session());
        let (role, owner) = (self.role, self.owner.as_ref());
        let request = EnsureRequest {
            session: &session,
            role,
            spec_hash: "a",
            user: USER,
            rootless: self.plan.capabilities == Capabilities::None,
            owner,
            observer: &observer,
        };
        self.slots.ensure(&*self.engines, request, |runtime| self.plan.template(runtime)).await
    }

    async fn slot(&self) -> Ready {
        self.ensure().await.unwrap()
    }

    fn observer(&self) -> impl Fn(SlotEvent) + Send + Sync + use<> {
        let events = self.events.clone();
        move |event| events.lock().unwrap().push(event.what)
    }

    async fn end(&self) -> EndedSession {
        let observer = self.observer();
        self.slots.end(&*self.engines, &session(), &ending((&guest(), &Policy::everything()), &observer)).await.unwrap()
    }

    async fn recover(&self, after: SignedDuration) -> EndedSession {
        let (observer, now) = (self.observer(), ClockReading::now());
        let up_s = now.up_s + after.as_secs().unsigned_abs();
        let now = ClockReading { wall: now.wall + after, up_s, ..now };
        let (guest, policy) = (guest(), Policy::everything());
        self.slots.recover(&*self.engines, &now, &ending((&guest, &policy), &observer)).await.unwrap()
    }

    async fn expire(&self, after: u64) {
        let (observer, now) = (self.observer(), ClockReading::now());
        let wall = now.wall + SignedDuration::from_secs(after.try_into().unwrap());
        let now = ClockReading { wall, up_s: now.up_s + after, ..now };
        let (guest, policy) = (guest(), Policy::everything());
        self.slots.expire(&*self.engines, &now, &ending((&guest, &policy), &observer)).await.unwrap();
    }

    async fn sweep(&self, after: u64) {
        self.sweep_by(after.try_into().unwrap(), after).await;
    }

    /// Sweeps as if the wall clock advanced by so many seconds, and the machine's uptime by others.
    async fn sweep_by(&self, wall: i64, up: u64) {
        let (observer, now) = (self.observer(), ClockReading::now());
        let now = ClockReading { wall: now.wall + SignedDuration::from_secs(wall), up_s: now.up_s + up, ..now };
        self.slots.sweep(&*self.engines, &now, &observer).await.unwrap();
    }
}

fn ending<'a>(
    reader: (&'a GuestProgram, &'a Policy),
    observer: &'a (dyn Fn(SlotEvent) + Send + Sync),
) -> EndOptions<'a> {
    let saving = SavePolicy::Keep(SaveLimits { max_bytes: 1 << 20, time: Duration::from_secs(15) });
    EndOptions {
        saving,
        reader: Some(reader),
        grace: Duration::from_secs(1),
        within: Duration::from_secs(20),
        observer,
        reason: EndReason::Command,
    }
}

fn id(ready: &Ready) -> &str {
    ready.slot.container_id.as_ref().unwrap().as_str()
}

fn sh(script: &str) -> Exec {
    Exec::new(Command::Shell(script.into()), USER, at("/workspace"))
}

/// The output of the user's script.
async fn printed(ready: &Ready, script: &str) -> String {
    let it = ready.link.exec(sh(script)).await.unwrap();
    assert_eq!((it.exit, it.stderr.text().as_str()), (Exit::Code(0), ""), "{script}");
    it.stdout.text()
}

fn news(ready: &Ready) -> Option<(Reason, u32, u32, bool)> {
    ready.replacement.as_ref().map(|it| (it.reason, it.from, it.to, it.files_lost))
}

/// Runs a check, and removes what it created even if it panics.
async fn checked(case: &Case, capabilities: Capabilities, check: impl AsyncFn(&Bench<'_>)) {
    bench_checked(case, capabilities, &check).await;
}

async fn bench_checked(case: &Case, capabilities: Capabilities, check: &dyn for<'c> Check<Bench<'c>>) {
    if !case.is_real() {
        return case.left_out();
    }
    let bench = Bench { capabilities, ..Bench::new(case) };
    let done = caught(check.on(&bench)).await;
    bench.clean_up().await;
    if let Err(panic) = done {
        resume_unwind(panic);
    }
}

async fn with_bench(check: impl AsyncFn(&Bench<'_>)) {
    with_guest_bench(&check).await;
}

async fn with_guest_bench(check: &dyn for<'c> Check<Bench<'c>>) {
    with_real_engines(async |case| bench_checked(case, Capabilities::Guest, check).await).await;
}

#[tokio::test]
async fn w01_a_session_container_matches_its_plan() {
    on_every_engine_and_rootless(async |case| {
        if case.lacks(Lack::Ulimits) {
            return;
        }
        checked(case, Capabilities::Guest, async |bench| {
            let here = bench.process();
            assert_eq!(bench.left().await, (0, 0, 0));
            let ready = here.slot().await;
            let [container] = &*bench.containers().await else { panic!("there is one") };
            assert_eq!((container.id.as_str(), container.status), (id(&ready), ContainerStatus::Running));
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
        assert!(all.iter().all(|it| id(it) == id(&all[0]) && it.slot.generation == 1 && it.replacement.is_none()));
        assert_eq!((bench.left().await, bench.events().len()), ((1, 1, 1), 2));
        for process in &processes {
            for _ in 0..20 {
                assert!(!process.slot().await.made);
            }
        }
        ran("W02", bench.case.engine());
    })
    .await;
}

#[tokio::test]
async fn w04_an_unwritable_volume_is_refused_and_nothing_is_left() {
    with_real_engines(async |case| {
        checked(case, Capabilities::None, async |bench| {
            let failed = bench.process().ensure().await;
            assert!(matches!(failed, Err(SlotError::NotReady(_))), "{failed:?}");
            assert_eq!(bench.left().await, (0, 0, 0));
            ran("W04", case.engine());
        })
        .await;
    })
    .await;
}
