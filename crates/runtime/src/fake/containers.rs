//! Containers of the fake engine: how they come, run, end and go.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex, Weak};

use coracle_guest::Supervisor;
use coracle_types::{Capability, ContainerId, ContainerStatus, EngineKind, Error, Handle, Result};
use tokio_util::sync::CancellationToken;

use super::files::ContainerFiles;
use super::guest::FakeGuest;
use super::images::StoredImage;
use super::ports::{self, ReservedPort};
use super::programs::Programs;
use super::{EngineState, FakeRuntime, Verb, now, off_thread, programs, random_id, refused};
use crate::{Access, Container, LabelFilter, MountPoint, Placed, Port, RemovalOutcome, VolumeMount};

/// A container: what `inspect` shows of it, and what it holds.
#[derive(Debug)]
pub(super) struct FakeContainer {
    pub(super) seen: Container,
    pub(super) files: Arc<ContainerFiles>,
    /// Volumes that lie among them.
    pub(super) volumes: Vec<VolumeMount>,
    /// Ports that it holds while it runs, and on which address.
    pub(super) published: (IpAddr, Vec<Port>),
    /// It gets a guest when it starts.
    pub(super) guided: bool,
    /// Its PID 1, while it runs, if it was made with one.
    pub(super) guest: Option<Arc<Supervisor>>,
    ports: Vec<ReservedPort>,
    /// Commands in it may be programs of the host, which end with it.
    pub(super) programs: Programs,
    /// Output of a service's PID 1.
    pub(super) log: String,
    /// Fires when its PID 1 ends.
    pub(super) life: CancellationToken,
    /// It answers no request.
    pub(super) silent: bool,
}

impl FakeContainer {
    /// A container that runs nothing and was not started.
    pub(super) fn new(seen: Container, files: Arc<ContainerFiles>, published: (IpAddr, Vec<Port>)) -> Self {
        let life = CancellationToken::new();
        let (volumes, ports, log) = Default::default();
        Self {
            seen,
            files,
            volumes,
            published,
            guided: false,
            guest: None,
            ports,
            programs: Programs::None,
            log,
            life,
            silent: false,
        }
    }

    /// A service of a stack.
    pub(super) fn service(seen: Container, files: Arc<ContainerFiles>, ports: Vec<Port>) -> Self {
        Self::new(seen, files, (Ipv4Addr::LOCALHOST.into(), ports))
    }

    /// Starts a service: `true` and `false` end at once, as does `exit CODE`, and every other command runs on.
    pub(super) fn start_service(&mut self, command: &[String]) -> Result<()> {
        self.ports = ports::hold(self.published.0, &self.published.1)?;
        self.seen.ports = self.ports.iter().map(|it| it.published.clone()).collect();
        self.seen.status = ContainerStatus::Running;
        self.seen.started_at = Some(now());
        let words: Vec<_> = command.iter().flat_map(|it| it.split_whitespace()).collect();
        let code = match words.as_slice() {
            ["true"] => Some(0),
            ["false"] => Some(1),
            [.., "exit", code] => code.parse().ok(),
            _ => None,
        };
        if let Some(code) = code {
            self.log = format!("it ended with {code}\n");
            self.end(code);
        }
        Ok(())
    }

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
        self.seen.status = ContainerStatus::Exited;
        self.seen.exit_code = Some(exit_code);
        if self.programs != Programs::None {
            programs::kill_now(&self.seen.id);
        }
    }
}

impl Drop for FakeContainer {
    /// Nothing that was started for a test outlives its engine.
    fn drop(&mut self) {
        if matches!(self.seen.status, ContainerStatus::Running | ContainerStatus::Paused) {
            self.end(137);
        }
    }
}

impl FakeRuntime {
    pub(super) async fn create_container(&self, placed: &Placed) -> Result<ContainerId> {
        let (image, network) = self.with(|state| state.check(placed))?;
        let (layer, mounts) = (image.layer.clone(), placed.spec().mounts.clone());
        let (volumes, tmpfs) = (placed.spec().volumes.clone(), placed.spec().tmpfs.clone());
        let files = Arc::new(off_thread(move || ContainerFiles::create(layer, mounts, &volumes, &tmpfs)).await?);
        let id = ContainerId::parse(random_id()).expect("64 hex digits are an id");
        let seen = seen(&id, placed, &image, network);
        let published = (placed.ports_bind(), placed.spec().ports.clone());
        self.with(|state| {
            state.check(placed)?;
            state.lend(&files, &placed.spec().volumes)?;
            let mut machine = FakeContainer::new(seen, files, published);
            machine.volumes.clone_from(&placed.spec().volumes);
            (machine.guided, machine.programs) = (placed.guest().is_some(), state.programs);
            state.containers.insert(id.clone(), machine);
            Ok(id)
        })
    }
}

impl EngineState {
    pub(super) fn machine(&self, id: &ContainerId) -> Result<&FakeContainer> {
        self.containers.get(id).ok_or_else(|| Error::NoSuchContainer(id.to_string()))
    }

    fn machine_mut(&mut self, id: &ContainerId) -> Result<&mut FakeContainer> {
        self.containers.get_mut(id).ok_or_else(|| Error::NoSuchContainer(id.to_string()))
    }

    /// Whether it can be made: the name is free, the image and the network are there.
    fn check(&self, placed: &Placed) -> Result<(StoredImage, String)> {
        let spec = placed.spec();
        if self.containers.values().any(|it| it.seen.name == spec.name.as_str()) {
            return Err(Error::NameTaken(spec.name.clone()));
        }
        if spec.gpu {
            return Err(Error::Unsupported { engine: EngineKind::Fake, capability: Capability::Gpu });
        }
        let image = self.images.iter().find(|it| it.image.id == *placed.image()).cloned();
        let image = image.ok_or_else(|| refused(Verb::Create, format!("no image {}", placed.image())))?;
        self.check_volumes(spec)?;
        Ok((image, self.network_of(placed.network())?))
    }

    pub(super) fn start(&mut self, id: &ContainerId, engine: Weak<Mutex<Self>>) -> Result<()> {
        if self.machine(id)?.seen.running() {
            return Ok(());
        }
        if self.machine(id)?.seen.status == ContainerStatus::Paused {
            return self.resume(id);
        }
        self.started += 1;
        let pid = BEYOND_ANY_PID + self.started;
        let machine = self.machine_mut(id)?;
        machine.ports = ports::hold(machine.published.0, &machine.published.1)?;
        machine.life = CancellationToken::new();
        machine.silent = false;
        machine.seen.oom_killed = false;
        machine.guest = machine.guided.then(|| {
            let container = (id.clone(), machine.files.clone());
            FakeGuest::supervisor(engine, container, (machine.seen.env.clone(), machine.programs))
        });
        machine.seen.ports = machine.ports.iter().map(|it| it.published.clone()).collect();
        machine.seen.pid = Some(pid);
        machine.seen.status = ContainerStatus::Running;
        machine.seen.exit_code = None;
        machine.seen.started_at = Some(now());
        Ok(())
    }

    /// Its PID 1 ends with that code, if it is there.
    pub(super) fn end(&mut self, id: &ContainerId, exit_code: i64) -> Result<()> {
        let machine = self.machine_mut(id)?;
        if matches!(machine.seen.status, ContainerStatus::Running | ContainerStatus::Paused) {
            machine.end(exit_code);
        }
        Ok(())
    }

    pub(super) fn end_for_memory(&mut self, id: &ContainerId) -> Result<()> {
        self.end(id, 137)?;
        self.machine_mut(id)?.seen.oom_killed = true;
        Ok(())
    }

    /// Connections that there are break; one that is made gets no answer.
    pub(super) fn silence(&mut self, id: &ContainerId) -> Result<()> {
        let machine = self.machine_mut(id)?;
        machine.silent = true;
        machine.life.cancel();
        machine.life = CancellationToken::new();
        Ok(())
    }

    pub(super) fn pause(&mut self, id: &ContainerId) -> Result<()> {
        if self.machine(id)?.seen.running() {
            self.silence(id)?;
            self.machine_mut(id)?.seen.status = ContainerStatus::Paused;
        }
        Ok(())
    }

    fn resume(&mut self, id: &ContainerId) -> Result<()> {
        let machine = self.machine_mut(id)?;
        (machine.silent, machine.seen.status) = (false, ContainerStatus::Running);
        Ok(())
    }

    pub(super) fn remove(&mut self, id: &ContainerId) -> RemovalOutcome {
        let Some(machine) = self.containers.remove(id) else { return RemovalOutcome::AlreadyGone };
        self.take_back(&machine.files, &machine.volumes);
        RemovalOutcome::Now
    }

    pub(super) fn find(&self, handle: &Handle) -> Result<Container> {
        let found = |it: &&FakeContainer| match handle {
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

fn seen(id: &ContainerId, placed: &Placed, image: &StoredImage, network: String) -> Container {
    let spec = placed.spec();
    let volumes = spec.volumes.iter().map(|it| MountPoint {
        source: std::path::Path::new("/nonexistent/coracle-fake").join(it.name.as_str()),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
        is_bind: false,
    });
    let mount = |it: &crate::Mount| MountPoint {
        source: it.host.real().to_owned(),
        target: it.at.to_string(),
        writable: it.access == Access::ReadWrite,
        is_bind: true,
    };
    // As engines do: the image's labels are inherited, the container's own win.
    let mut labels = image.image.labels.clone();
    labels.extend(spec.labels.clone());
    Container {
        id: id.clone(),
        name: spec.name.to_string(),
        image: image.image.id.clone(),
        status: ContainerStatus::Created,
        pid: None,
        exit_code: None,
        oom_killed: false,
        created: now(),
        started_at: None,
        labels,
        user: String::new(),
        workdir: "/".into(),
        env: image.image.env.clone(),
        ports: Vec::new(),
        mounts: spec.mounts.iter().map(mount).chain(volumes).collect(),
        networks: vec![network],
        limits: spec.limits,
        execs: 0,
        health: None,
        lifetime_over: None,
        isolation: None,
    }
}
