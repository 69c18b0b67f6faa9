//! The embedded engine in this process, with a data directory of its own.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use coracle_client::{Link, LinkSettings, SocketAt};
use coracle_engine::{EmbeddedRuntime, EngineOptions, RegistryOptions};
use coracle_runtime::{
    ContainerRuntime, CreateSpec, GuestDelivery, LabelFilter, NetworkAttachment, NetworkRequest, Policy, admit,
};
use coracle_types::{
    Command, ContainerId, ContainerName, ContainerPath, Exec, Exit, Handle, Ids, ImageId, ImageRef, random_hex,
};
use tempfile::TempDir;

use crate::LABEL;
use crate::busybox::{self, IMAGE};

/// Time limit for a guest to respond.
const PATIENCE: Duration = Duration::from_secs(10);

pub(crate) struct Embedded {
    pub(crate) runtime: EmbeddedRuntime,
    image: ImageId,
    guest: PathBuf,
    pub(crate) dir: TempDir,
}

/// A container that answers.
pub(crate) struct Answering {
    pub(crate) id: ContainerId,
    link: Link,
    dir: PathBuf,
    /// Until its PID 1 runs, and until it answered.
    pub(crate) created: Duration,
    pub(crate) answered: Duration,
}

impl Embedded {
    pub(crate) async fn open() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let guest = guest(&dir.path().join("guest"));
        let runtime = EmbeddedRuntime::open(EngineOptions {
            data_dir: dir.path().join("engine"),
            guest: Some(guest.clone()),
            home: dir.path().to_owned(),
            registries: RegistryOptions::default(),
        })
        .unwrap();
        let image = busybox::ensure(&runtime).await.unwrap();
        Self { runtime, image, guest, dir }
    }

    /// A container whose first `true` has ended.
    pub(crate) async fn answering(&self, network: bool) -> Answering {
        self.make(network, None).await
    }

    /// The same, with the files of another container.
    pub(crate) async fn forked(&self, parent: &Answering) -> Answering {
        self.make(false, Some(&parent.id)).await
    }

    async fn make(&self, network: bool, parent: Option<&ContainerId>) -> Answering {
        let name = ContainerName::parse(format!("bench-{}", random_hex::<6>())).unwrap();
        let link = self.dir.path().join(name.as_str());
        make_private(&link);
        let begun = Instant::now();
        let guest = GuestDelivery::Bound { program: self.guest.clone(), link: link.clone() };
        let labels = [(LABEL.to_owned(), std::process::id().to_string())].into();
        let (request, attachment) = match network {
            true => (NetworkRequest::Bridge, NetworkAttachment::EngineDefault),
            false => (NetworkRequest::None, NetworkAttachment::None),
        };
        let spec = CreateSpec { labels, network: request, ..CreateSpec::new(name, ImageRef::parse(IMAGE).unwrap()) };
        let placed = admit(spec, &Policy::everything()).unwrap().with_guest(Some(guest));
        let placed = placed.with_image(self.image.clone(), attachment);
        let made = match parent {
            Some(parent) => self.runtime.fork(parent, &placed).await,
            None => self.runtime.create(&placed).await,
        };
        let id = made.unwrap();
        self.runtime.start(&id).await.unwrap();
        let created = begun.elapsed();
        let at = SocketAt { dir: link.clone(), pid1: None };
        let held = loop {
            let link = self.runtime.link(&id, Some(at.clone()), LinkSettings::default()).await.unwrap();
            if link.open().await.is_ok() {
                break link;
            }
            // As with any engine, the guest has no socket yet when the container has started.
            tokio::time::sleep(Duration::from_millis(1)).await;
            assert!(begun.elapsed() < PATIENCE, "no process answers at {}", at.dir.display());
        };
        exec(&held).await;
        Answering { id, link: held, dir: link, created, answered: begun.elapsed() }
    }

    pub(crate) async fn remove(&self, it: Answering) -> Duration {
        drop(it.link);
        let begun = Instant::now();
        self.runtime.remove(&it.id).await.unwrap();
        let took = begun.elapsed();
        std::fs::remove_dir_all(it.dir).unwrap();
        took
    }

    /// Removes what a failed measurement left.
    pub(crate) async fn remove_all(&self) {
        for container in self.runtime.list(&LabelFilter::default()).await.unwrap_or_default() {
            let _ = self.runtime.remove(&container.id).await;
        }
    }

    pub(crate) async fn pid(&self, it: &Answering) -> u32 {
        self.runtime.inspect(&Handle::from(&it.id)).await.unwrap().pid.unwrap()
    }
}

async fn exec(link: &Link) {
    run(link, Command::Argv(vec!["true".to_owned()])).await;
}

async fn run(link: &Link, command: Command) {
    let output = link.exec(Exec::new(command, Ids::ROOT, ContainerPath::root())).await.unwrap();
    assert_eq!(output.exit, Exit::Code(0));
}

impl Answering {
    /// Runs a script, which has to succeed.
    pub(crate) async fn script(&self, text: &str) {
        run(&self.link, Command::Shell(text.to_owned())).await;
    }

    /// The duration of one `true`.
    pub(crate) async fn answer(&self) -> Duration {
        let begun = Instant::now();
        exec(&self.link).await;
        begun.elapsed()
    }
}

/// The guest that `coracle` carries, as a file.
pub(crate) fn guest(at: &Path) -> PathBuf {
    let arch = if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" };
    coracle_context::guest::embedded(arch).expect("`cargo xtask guest` was before the build").place(at).unwrap()
}

/// Creates a link directory like the tool does.
fn make_private(dir: &Path) {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().mode(0o700).create(dir).unwrap();
}
