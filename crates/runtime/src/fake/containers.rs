//! Containers of the fake engine: how they come, run, end and go.

use std::sync::{Arc, Mutex, Weak};

use coracle_guest::Supervisor;
use tokio_util::sync::CancellationToken;

use super::files::Files;
use super::guest::Played;
use super::images::Stored;
use super::ports::{self, Held};
use super::{FakeRuntime, State, Verb, now, off_thread, programs, random_id, refused};
use crate::{
    Access, Capability, Container, ContainerId, EngineKind, Error, Handle, LabelFilter, MountPoint, Placed, Removed,
    Result, Status,
};

/// A container: what `inspect` shows of it, and what it holds.
#[derive(Debug)]
pub(super) struct Machine {
    pub(super) seen: Container,
    pub(super) files: Arc<Files>,
    pub(super) placed: Placed,
    /// Its PID 1, while it runs, if it was made with one.
    pub(super) guest: Option<Arc<Supervisor>>,
    ports: Vec<Held>,
    /// Commands in it may be programs of the host, which end with it.
    programs: bool,
    /// Fires when its PID 1 ends.
    pub(super) life: CancellationToken,
}

impl Machine {
    /// The error that a command gets in a container that does not run.
    pub(super) fn not_running(&self) -> Error {
        let Container { status, exit_code, oom_killed, .. } = self.seen;
        Error::NotRunning { status, exit_code, oom_killed, output: None }
    }

    fn end(&mut self, exit_code: i64) {
        self.life.cancel();
        self.guest = None;
        self.ports.clear();
        self.seen.ports.clear();
        self.seen.pid = None;
        self.seen.status = Status::Exited;
        self.seen.exit_code = Some(exit_code);
        if self.programs {
            programs::kill_now(&self.seen.id);
        }
    }
}

impl Drop for Machine {
    /// Nothing that was started for a test outlives its engine.
    fn drop(&mut self) {
        if self.seen.running() {
            self.end(137);
        }
    }
}

impl FakeRuntime {
    pub(super) async fn make(&self, placed: &Placed) -> Result<ContainerId> {
        let (image, network) = self.with(|state| state.check(placed))?;
        let (layer, mounts) = (image.layer.clone(), placed.spec().mounts.clone());
        let files = Arc::new(off_thread(move || Files::make(layer, mounts)).await?);
        let id = ContainerId::parse(random_id()).expect("64 hex digits are an id");
        let seen = seen(&id, placed, &image, network);
        let (placed, life) = (placed.clone(), CancellationToken::new());
        self.with(|state| {
            state.check(&placed)?;
            let machine =
                Machine { seen, files, placed, guest: None, ports: Vec::new(), programs: state.programs, life };
            state.containers.insert(id.clone(), machine);
            Ok(id)
        })
    }
}

impl State {
    pub(super) fn machine(&self, id: &ContainerId) -> Result<&Machine> {
        self.containers.get(id).ok_or_else(|| Error::NoSuchContainer(id.to_string()))
    }

    fn machine_mut(&mut self, id: &ContainerId) -> Result<&mut Machine> {
        self.containers.get_mut(id).ok_or_else(|| Error::NoSuchContainer(id.to_string()))
    }

    /// Whether it can be made: the name is free, the image and the network are there.
    fn check(&self, placed: &Placed) -> Result<(Stored, String)> {
        let spec = placed.spec();
        if self.containers.values().any(|it| it.seen.name == spec.name.as_str()) {
            return Err(Error::NameTaken(spec.name.clone()));
        }
        if spec.gpu {
            return Err(Error::Unsupported { engine: EngineKind::Fake, capability: Capability::Gpu });
        }
        let image = self.images.iter().find(|it| it.image.id == *placed.image()).cloned();
        let image = image.ok_or_else(|| refused(Verb::Create, format!("no image {}", placed.image())))?;
        Ok((image, self.network_of(placed.network())?))
    }

    pub(super) fn start(&mut self, id: &ContainerId, engine: Weak<Mutex<Self>>) -> Result<()> {
        if self.machine(id)?.seen.running() {
            return Ok(());
        }
        self.started += 1;
        let pid = BEYOND_ANY_PID + self.started;
        let machine = self.machine_mut(id)?;
        machine.ports = ports::hold(machine.placed.ports_bind(), &machine.placed.spec().ports)?;
        machine.life = CancellationToken::new();
        machine.guest = machine.placed.guest().map(|_| {
            let container = (id.clone(), machine.files.clone());
            Played::supervisor(engine, container, (machine.seen.env.clone(), machine.programs))
        });
        machine.seen.ports = machine.ports.iter().map(|it| it.published.clone()).collect();
        machine.seen.pid = Some(pid);
        machine.seen.status = Status::Running;
        machine.seen.exit_code = None;
        machine.seen.started_at = Some(now());
        Ok(())
    }

    /// Its PID 1 ends with that code, if it runs.
    pub(super) fn end(&mut self, id: &ContainerId, exit_code: i64) -> Result<()> {
        let machine = self.machine_mut(id)?;
        if machine.seen.running() {
            machine.end(exit_code);
        }
        Ok(())
    }

    pub(super) fn remove(&mut self, id: &ContainerId) -> Removed {
        if self.containers.remove(id).is_some() { Removed::Now } else { Removed::AlreadyGone }
    }

    pub(super) fn find(&self, handle: &Handle) -> Result<Container> {
        let found = |it: &&Machine| match handle {
            Handle::Name(name) => it.seen.name == name.as_str(),
            Handle::IdPrefix(digits) => it.seen.id.as_str().starts_with(digits.as_str()),
        };
        let missing = || Error::NoSuchContainer(handle.to_string());
        self.containers.values().find(found).map(|it| it.seen.clone()).ok_or_else(missing)
    }

    pub(super) fn list(&self, filter: &LabelFilter) -> Vec<Container> {
        self.containers.values().map(|it| &it.seen).filter(|it| filter.admits(&it.labels)).cloned().collect()
    }
}

/// No process of a Linux host has such an id (`PID_MAX_LIMIT` is 4194304), so nothing can be done to one by mistake.
const BEYOND_ANY_PID: u32 = 5_000_000;

fn seen(id: &ContainerId, placed: &Placed, image: &Stored, network: String) -> Container {
    let spec = placed.spec();
    let mount = |it: &crate::Mount| MountPoint {
        source: it.host.real().to_owned(),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
    };
    // As engines do: the image's labels are inherited, the container's own win.
    let mut labels = image.image.labels.clone();
    labels.extend(spec.labels.clone());
    Container {
        id: id.clone(),
        name: spec.name.to_string(),
        image: image.image.id.clone(),
        status: Status::Created,
        pid: None,
        exit_code: None,
        oom_killed: false,
        created: now(),
        started_at: None,
        labels,
        env: image.image.env.clone(),
        ports: Vec::new(),
        mounts: spec.mounts.iter().map(mount).collect(),
        networks: vec![network],
        limits: spec.limits,
    }
}
