//! The engines that a test runs on: the fake always, and those that `CORACLE_ENGINES` names: `docker`, `podman`,
//! `podman-rootless`, `embedded`, `embedded-rootless`, `kubernetes`.
//!
//! `container` is Apple's: a simulation by a program of the tests, or with `CORACLE_TEST_ENGINE=container` the real one
//! of a Mac.
//!
//! A named engine that does not respond fails the test: a suite that skips missing engines would always pass.

mod busybox;
mod check;
mod each;
mod embedded;
mod git_server;
mod kubernetes;
mod person;
mod pool;
mod ran;
mod running;
mod scripted;
mod tier;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use coracle_docker::{CliRuntime, Dialect};
use coracle_engine_program::{ApiUse, EngineSettings};
use coracle_runtime::{ContainerRuntime, CreateSpec, FakeRuntime, LabelFilter};
use coracle_types::{ContainerName, EngineKind, ImageId, ImageRef, NetworkName, random_hex};
use tempfile::TempDir;
use tokio::process::Command;

use self::kubernetes::KUBERNETES;
use self::person::{EMBEDDED_ROOTLESS, ROOTLESS};
use self::scripted::CONTAINER;
pub(crate) use busybox::{FROM_IMAGE, IMAGE, busybox_with, tar_of};
pub(crate) use check::{CaseCheck, Check, RunningCheck};
pub(crate) use each::{
    caught, has_real_engine, has_rootless, on_every_engine, on_every_engine_and_rootless, on_one_engine,
};
pub(crate) use git_server::{GitServer, Manner, git, tries_git};
pub(crate) use kubernetes::KubeCluster;
pub(crate) use person::{is_root, lasting_dir, own_uid};
pub(crate) use pool::in_every_way_into_a_shared_one;
pub(crate) use ran::{ran, skip};
pub(crate) use running::{
    Running, Way, guest_program, in_every_way, with_a_guest, with_a_real_guest, with_real_engines, worker_program,
};
pub(crate) use scripted::{Lack, Scripted, with_scripted};
pub(crate) use tier::meets_a_cluster;

/// A label of everything that a test creates: its value is the case's `run`.
pub(crate) const LABEL: &str = "coracle-test.run";

/// The longest time for what does not wait for something that takes a minute or more, on a busy machine too.
pub(crate) const WITHOUT_WAITING: Duration = Duration::from_secs(30);

/// An engine, with names and labels of its own, so that tests run side by side on it.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) runtime: Arc<dyn ContainerRuntime>,
    /// A busybox, by id.
    pub(crate) image: ImageId,
    run: String,
    /// Whether it may have created more than containers. Only then is the rest searched at the end.
    more: AtomicBool,
    /// Whether a check, or a part of it, was skipped.
    left_out: AtomicBool,
    fake: Option<FakeRuntime>,
    scripted: Option<Scripted>,
    kube: Option<KubeCluster>,
    /// Configuration of the engine's program.
    config: TempDir,
    /// Link directories of its containers.
    links: TempDir,
}

impl Case {
    /// Its engine with a program that always fails, so that every answer comes over the socket; `None` without a socket.
    pub(crate) fn by_api_alone(&self) -> Option<CliRuntime> {
        let (dialect, socket) = match self.engine() {
            EngineKind::Docker => (Dialect::Docker, "/var/run/docker.sock"),
            EngineKind::Podman if is_root() => (Dialect::Podman, "/run/podman/podman.sock"),
            _ => return None,
        };
        let program = Some(PathBuf::from("/bin/false"));
        let settings =
            EngineSettings { program, endpoint: Some(format!("unix://{socket}")), ..settings(self.config.path()) };
        Path::new(socket).exists().then(|| CliRuntime::connect(dialect, &settings).unwrap())
    }

    /// Its engine without the socket.
    pub(crate) fn by_program_alone(&self) -> Option<CliRuntime> {
        let dialect = match self.engine() {
            EngineKind::Docker => Dialect::Docker,
            EngineKind::Podman => Dialect::Podman,
            _ => return None,
        };
        let settings = EngineSettings { api: ApiUse::Never, ..settings(self.config.path()) };
        Some(CliRuntime::connect(dialect, &settings).unwrap())
    }

    /// The same fake, for a library that needs the type.
    pub(crate) fn fake(&self) -> Option<FakeRuntime> {
        self.fake.clone()
    }

    /// Its cluster.
    pub(crate) fn kube(&self) -> Option<&KubeCluster> {
        self.kube.as_ref()
    }

    /// A text that names images of tests, as its engine finds them.
    pub(crate) fn with_image(&self, text: &str) -> String {
        self.kube.as_ref().map_or_else(|| text.to_owned(), |it| it.with_image(text))
    }

    /// The program of its engine, where it is not the usual one.
    pub(crate) fn program(&self) -> Option<PathBuf> {
        self.scripted.as_ref().map(Scripted::program)
    }

    pub(crate) fn engine(&self) -> EngineKind {
        self.runtime.kind()
    }

    /// Whether it is an engine that is not root's.
    pub(crate) fn is_rootless(&self) -> bool {
        matches!(self.engine(), EngineKind::Podman | EngineKind::Embedded) && !is_root()
    }

    /// The data directory of the embedded engine, for a program that opens it as well.
    pub(crate) fn engine_data(&self) -> Option<PathBuf> {
        (self.engine() == EngineKind::Embedded).then(embedded::data_dir)
    }

    /// Whether the kernel enforces limits of its containers. Only root can set those of version 1.
    pub(crate) fn keeps_limits(&self) -> bool {
        !self.is_rootless() || Path::new("/sys/fs/cgroup/cgroup.controllers").exists()
    }

    /// Whether it is a container engine: the fake has no users, mounts or network of its own.
    pub(crate) fn is_real(&self) -> bool {
        self.engine() != EngineKind::Fake
    }

    pub(crate) fn name(&self, name: &str) -> ContainerName {
        ContainerName::parse(format!("ct-{}-{name}", self.run)).unwrap()
    }

    pub(crate) fn network_name(&self, name: &str) -> NetworkName {
        self.makes_more();
        NetworkName::parse(format!("ct-{}-{name}", self.run)).unwrap()
    }

    /// An image tag of this case.
    pub(crate) fn tag(&self, name: &str) -> ImageRef {
        self.makes_more();
        ImageRef::parse(format!("coracle-test-{name}:{}", self.run)).unwrap()
    }

    /// A label for all objects.
    pub(crate) fn label(&self) -> (String, String) {
        self.makes_more();
        self.container_label()
    }

    /// A label for containers only.
    pub(crate) fn container_label(&self) -> (String, String) {
        (LABEL.to_owned(), self.run.clone())
    }

    /// Its containers may become images, which have their labels.
    pub(crate) fn makes_more(&self) {
        self.more.store(true, Ordering::Relaxed);
    }

    /// Everything that this case created.
    pub(crate) fn mine(&self) -> LabelFilter {
        LabelFilter(vec![(LABEL.to_owned(), Some(self.run.clone()))])
    }

    /// A container of the busybox image that is removed with its case.
    pub(crate) fn spec(&self, name: &str) -> CreateSpec {
        let image = ImageRef::parse(IMAGE).unwrap();
        CreateSpec { labels: [self.container_label()].into(), ..CreateSpec::new(self.name(name), image) }
    }

    async fn clean_up(&self) {
        for container in self.runtime.list(&self.mine()).await.unwrap() {
            self.runtime.remove(&container.id).await.unwrap();
        }
        if !self.more.load(Ordering::Relaxed) {
            return;
        }
        for network in self.runtime.list_networks(&self.mine()).await.unwrap() {
            self.runtime.remove_network(&network.id).await.unwrap();
        }
        for volume in self.runtime.list_volumes(&self.mine()).await.unwrap() {
            self.runtime.remove_volume(&volume.name).await.unwrap();
        }
        for image in self.runtime.list_images(&self.mine()).await.unwrap() {
            self.runtime.remove_image(&image.id).await.unwrap();
        }
    }
}

async fn case(engine: &str) -> Result<Case, String> {
    let config = tempfile::tempdir().unwrap();
    let fake = (engine == "fake").then(FakeRuntime::with_programs);
    let real = variable("CORACLE_TEST_ENGINE").as_deref() == Some(CONTAINER);
    let scripted = (engine == CONTAINER && !real).then(Scripted::new).transpose()?;
    let kube = if engine == KUBERNETES { Some(KubeCluster::open().await?) } else { None };
    let runtime: Arc<dyn ContainerRuntime> = match engine {
        KUBERNETES => Arc::new(kube.as_ref().unwrap().connect()?),
        "fake" => Arc::new(fake.clone().unwrap()),
        "docker" => Arc::new(connect(Dialect::Docker, &config)?),
        "podman" | ROOTLESS => Arc::new(connect(Dialect::Podman, &config)?),
        "embedded" | EMBEDDED_ROOTLESS => Arc::new(embedded::open()?),
        CONTAINER => match &scripted {
            Some(scripted) => Arc::new(scripted.connect(config.path())),
            None => {
                coracle_context::engines::connect::connect(EngineKind::Container, &settings(config.path()))
                    .map_err(|err| err.to_string())?
                    .0
            }
        },
        other => return Err(format!("CORACLE_ENGINES names `{other}`, which is no engine")),
    };
    let image = match &kube {
        Some(kube) => kube.image(&*runtime).await,
        None => pool::image(&*runtime).await,
    };
    let image = image.map_err(|err| format!("CORACLE_ENGINES names {engine}: {err}"))?;
    let run = format!("{}-{}", std::process::id(), random_hex::<4>());
    Ok(Case {
        runtime,
        image,
        run,
        more: AtomicBool::default(),
        left_out: AtomicBool::default(),
        fake,
        scripted,
        kube,
        config,
        links: tempfile::tempdir().unwrap(),
    })
}

pub(crate) fn settings(config: &Path) -> EngineSettings {
    EngineSettings {
        program: None,
        endpoint: None,
        config_dir: config.to_owned(),
        home: PathBuf::from(variable("HOME").unwrap_or("/root".into())),
        runtime_dir: variable("XDG_RUNTIME_DIR").map(PathBuf::from),
        temp_dir: std::env::temp_dir(),
        api: ApiUse::Auto,
        ssh_config: None,
        ssh_agent: None,
        logins: Default::default(),
    }
}

fn connect(dialect: Dialect, config: &TempDir) -> Result<CliRuntime, String> {
    CliRuntime::connect(dialect, &settings(config.path()))
        .map_err(|err| format!("CORACLE_ENGINES names {}: {err}", dialect.kind()))
}

/// The engine's own program, with the environment of the test. The embedded engine has none: a program of the tests stands
/// for it.
#[expect(clippy::disallowed_methods, reason = "a test looks past the program that it tests")]
pub(crate) fn engine_program(name: &str) -> Command {
    if name == "embedded" {
        let mut command = Command::new(beside_tests("embedded-engine"));
        command.arg(embedded::data_dir());
        return command;
    }
    Command::new(name)
}

/// A program that is built with the tests.
pub(crate) fn beside_tests(name: &str) -> PathBuf {
    let tests = std::env::current_exe().unwrap();
    let built = tests.ancestors().nth(2).map(|it| it.join(name)).unwrap();
    assert!(built.exists(), "`cargo build --workspace --bins` makes {}", built.display());
    built
}

#[expect(clippy::disallowed_methods, reason = "the environment names the engines and their user")]
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[tokio::test]
async fn an_engine_that_is_named_and_unknown_is_a_failure() {
    assert!(case("nosuch").await.unwrap_err().contains("`nosuch`"));
}

#[tokio::test]
async fn a_failed_check_is_a_failure_and_leaves_nothing() {
    let case = case("fake").await.unwrap();
    let failed = caught(async {
        let spec = crate::conformance::placed(&case, case.spec("left"));
        case.runtime.create(&spec).await.unwrap();
        panic!("a check that fails");
    });
    assert!(failed.await.is_err());
    case.clean_up().await;
    assert_eq!(case.runtime.list(&case.mine()).await.unwrap(), []);
}
