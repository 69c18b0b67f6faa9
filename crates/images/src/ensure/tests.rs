use std::path::Path;
use std::sync::Mutex;

use coracle_runtime::fake::Verb;
use coracle_runtime::labels::Signer;
use coracle_runtime::{FakeRuntime, ImageStore as _, LabelFilter};
use coracle_types::{EngineKind, LabelNamespace, Secret};
use tempfile::TempDir;
use tokio::net::TcpListener;

use super::*;
use crate::base::fixture;
use crate::base_image::names;
use crate::error::BaseStage;

#[derive(Clone, Debug)]
struct Want {
    image: ImageRef,
    explicit: bool,
    pull: Pull,
    settings: FetchSettings,
}

impl Want {
    async fn ensure(&self, fake: &FakeRuntime, progress: &Progress<'_>) -> Result<Base, Error> {
        let Self { image, explicit, pull, settings } = self;
        ensure(fake, BaseRequest { image, explicit: *explicit, pull: *pull }, settings, progress).await
    }

    fn with(mut self, change: impl FnOnce(&mut FetchSettings)) -> Self {
        change(&mut self.settings);
        self
    }
}

/// A fake engine, a host with packages for a base, and a registry that accepts connections while `_listener` exists.
struct World {
    fake: FakeRuntime,
    host: TempDir,
    state: TempDir,
    _listener: Option<TcpListener>,
    image: ImageRef,
}

impl World {
    async fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let image = ImageRef::parse(format!("{}/python:3", listener.local_addr().unwrap())).unwrap();
        let (host, state) = (fixture::host(), tempfile::tempdir().unwrap());
        let os = host.path().join("var/lib/dpkg/status");
        let arch = debian_arch_of_the_fake();
        let status = std::fs::read_to_string(&os).unwrap().replace("amd64", arch);
        std::fs::write(os, status).unwrap();
        Self { fake: FakeRuntime::new(), host, state, _listener: Some(listener), image }
    }

    async fn without_registry() -> Self {
        Self { _listener: None, ..Self::new().await }
    }

    fn recipe(&self, key: u8) -> Bootstrap {
        Bootstrap {
            root: self.host.path().into(),
            mirror: None,
            suite: None,
            build_timeout: Duration::from_secs(60),
            lock_file: self.state.path().join("locks/base.lock"),
            temp_dir: self.state.path().join("tmp"),
            signer: Signer::new(LabelNamespace::parse("coracle").unwrap(), Secret::new(vec![key; 32]), 1000),
            version: "0.1.0".into(),
            created: "2030-01-01T00:00:00Z".into(),
        }
    }

    fn want(&self) -> Want {
        Want {
            image: self.image.clone(),
            explicit: false,
            pull: Pull::Missing,
            settings: FetchSettings {
                proxy: false,
                pull_timeout: Duration::from_secs(900),
                probe_timeout: Duration::from_secs(5),
                fallback: Some(Box::new(self.recipe(1))),
            },
        }
    }

    async fn ensure(&self, want: &Want) -> Result<Base, Error> {
        want.ensure(&self.fake, &|_| {}).await
    }

    fn count(&self, verb: Verb) -> usize {
        self.fake.calls().iter().filter(|it| **it == verb).count()
    }
}

fn debian_arch_of_the_fake() -> &'static str {
    if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" }
}

#[tokio::test]
async fn a_local_image_is_used_without_asking_a_registry() {
    let world = World::without_registry().await;
    let busybox = ImageRef::parse("busybox").unwrap();
    for pull in [Pull::Missing, Pull::Never] {
        let base = world.ensure(&Want { image: busybox.clone(), pull, ..world.want() }).await.unwrap();
        assert_eq!((base.source, base.note), (ImageOrigin::Local, None));
    }
    assert_eq!(world.count(Verb::Pull), 0);
}

#[tokio::test]
async fn a_missing_image_is_pulled_and_an_old_one_pulled_again_on_request() {
    let world = World::new().await;
    world.fake.registry_has(&world.image);
    assert_eq!(world.ensure(&world.want()).await.unwrap().source, ImageOrigin::Pulled);
    assert_eq!(world.ensure(&world.want()).await.unwrap().source, ImageOrigin::Local);
    let always = Want { pull: Pull::Always, ..world.want() };
    assert_eq!(world.ensure(&always).await.unwrap().source, ImageOrigin::Pulled);
    assert_eq!(world.count(Verb::Pull), 2);
}

#[tokio::test]
async fn a_registry_that_did_not_answer_is_not_contacted_again_at_once() {
    let world = World::without_registry().await;
    let attempts = Mutex::new(0);
    let progress = |text: &str| *attempts.lock().unwrap() += usize::from(text.contains("no registry answers"));
    for _ in 0..3 {
        assert_eq!(world.want().ensure(&world.fake, &progress).await.unwrap().source, ImageOrigin::Bootstrap);
    }
    assert_eq!(*attempts.lock().unwrap(), 1);
    // An image that the caller names is fetched.
    let explicit = Want { explicit: true, ..world.want() };
    assert!(matches!(world.ensure(&explicit).await, Err(Error::PullFailed { .. })));
}

#[tokio::test]
async fn without_a_registry_a_base_is_built_once_and_signed() {
    let world = World::without_registry().await;
    let messages = Mutex::new(Vec::new());
    let made = world.want().ensure(&world.fake, &|it| messages.lock().unwrap().push(it.to_owned())).await.unwrap();
    assert_eq!(made.source, ImageOrigin::Bootstrap);
    let name = format!("coracle-base:debian-bookworm-{}", debian_arch_of_the_fake());
    assert_eq!(made.reference.as_str(), name);
    assert!(
        made.note.as_ref().unwrap().starts_with("made from 8 packages installed on this host (Debian 12,"),
        "{made:?}"
    );
    assert!(made.image.env.iter().any(|it| it.starts_with("PATH=/")));
    assert!(world.recipe(1).signer.verify(EngineKind::Fake, &made.image.labels));
    assert!(messages.lock().unwrap()[0].contains("no registry answers at 127.0.0.1:"), "{messages:?}");

    let again = world.ensure(&world.want()).await.unwrap();
    assert_eq!((again.image.id, again.note), (made.image.id, made.note));
    assert_eq!((world.count(Verb::Import), world.count(Verb::Pull)), (1, 0));
    assert_eq!(std::fs::read_dir(world.state.path().join("tmp")).unwrap().count(), 0);
}

#[tokio::test]
async fn concurrent_creates_build_one_base() {
    let world = World::without_registry().await;
    let want = world.want();
    let (a, b, c) = tokio::join!(world.ensure(&want), world.ensure(&want), world.ensure(&want));
    let ids = [a, b, c].map(|it| it.unwrap().image.id);
    assert!(ids.iter().all(|it| *it == ids[0]));
    assert_eq!(world.count(Verb::Import), 1);
}

#[tokio::test]
async fn a_base_without_our_signature_is_not_used() {
    let world = World::without_registry().await;
    let theirs = world.ensure(&world.want()).await.unwrap();
    let fallback = Some(Box::new(world.recipe(2)));
    let ours = world.ensure(&world.want().with(|it| it.fallback = fallback)).await.unwrap();
    assert_ne!(ours.image.id, theirs.image.id);
    assert_eq!(ours.reference, theirs.reference);
}

#[tokio::test]
async fn an_explicit_image_is_not_replaced() {
    let world = World::without_registry().await;
    for want in [
        Want { explicit: true, ..world.want() },
        Want { pull: Pull::Always, ..world.want() },
        world.want().with(|it| it.fallback = None),
    ] {
        assert!(matches!(world.ensure(&want).await, Err(Error::PullFailed { .. })), "{want:?}");
    }
    let never = Want { pull: Pull::Never, ..world.want() };
    assert!(matches!(world.ensure(&never).await, Err(Error::NotFound(_))));
    let id = Want { image: ImageRef::parse(format!("sha256:{}", "0".repeat(64))).unwrap(), ..world.want() };
    assert!(matches!(world.ensure(&id).await, Err(Error::NotFound(_))));
    let all = world.fake.list_images(&LabelFilter::default()).await.unwrap();
    assert_eq!(all.len(), 1, "no base was built");
}

#[tokio::test]
async fn a_refusal_of_the_registry_is_final() {
    let world = World::new().await;
    assert!(matches!(world.ensure(&world.want()).await, Err(Error::PullFailed { .. })));
    assert_eq!((world.count(Verb::Pull), world.count(Verb::Import)), (1, 0));
}

#[tokio::test]
async fn behind_a_proxy_the_engine_pulls_although_the_registry_does_not_answer_here() {
    let world = World::without_registry().await;
    world.fake.registry_has(&world.image);
    let base = world.ensure(&world.want().with(|it| it.proxy = true)).await.unwrap();
    assert_eq!(base.source, ImageOrigin::Pulled);
}

#[tokio::test]
async fn without_a_probe_the_engine_pulls_although_the_registry_does_not_answer_here() {
    let world = World::without_registry().await;
    world.fake.registry_has(&world.image);
    let base = world.ensure(&world.want().with(|it| it.probe_timeout = Duration::ZERO)).await.unwrap();
    assert_eq!(base.source, ImageOrigin::Pulled);
}

#[test]
fn an_engine_on_another_host_is_recognised_by_its_address() {
    assert!(is_elsewhere("ssh://me@there") && is_elsewhere("tcp://10.0.0.1:2376"));
    assert!(!is_elsewhere("local") && !is_elsewhere("unix:///var/run/docker.sock"));
}

#[tokio::test]
async fn a_slow_pull_ends_and_a_base_replaces_the_image() {
    let world = World::new().await;
    world.fake.registry_has(&world.image);
    world.fake.pulls_take(Duration::from_secs(3600));
    let short = world.want().with(|it| it.pull_timeout = Duration::from_millis(10));
    let explicit = Want { explicit: true, ..short.clone() };
    assert!(matches!(world.ensure(&explicit).await, Err(Error::PullTimeout { .. })));
    assert_eq!(world.ensure(&short).await.unwrap().source, ImageOrigin::Bootstrap);
}

#[tokio::test]
async fn a_failed_base_is_reported_with_its_stage() {
    let world = World::without_registry().await;
    world.fake.fail_next(Verb::Import);
    let failed = world.ensure(&world.want()).await.unwrap_err();
    assert!(matches!(failed, Error::BaseBuildFailed { stage: BaseStage::Import, .. }), "{failed:?}");
    std::fs::remove_file(world.host.path().join("var/lib/dpkg/status")).unwrap();
    let failed = world.ensure(&world.want()).await.unwrap_err();
    let source = std::error::Error::source(&failed).unwrap().to_string();
    assert_eq!(failed.to_string(), "no base image could be made (while choosing how)");
    assert_eq!(
        source,
        "this host is no Debian whose packages can be read, and neither `mmdebstrap` nor `debootstrap` is installed"
    );
    assert!(Path::new(&world.state.path().join("locks/base.lock")).exists());
}

#[test]
fn a_name_is_looked_up_as_engines_store_it() {
    let shown = |engine, name: &str| {
        let names = names(engine, &ImageRef::parse(name).unwrap());
        names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
    };
    assert_eq!(shown(EngineKind::Docker, "x"), "x docker.io/library/x:latest");
    assert_eq!(shown(EngineKind::Podman, "a/x:1"), "a/x:1 docker.io/a/x:1 localhost/a/x:1");
    assert_eq!(shown(EngineKind::Podman, "localhost/x:1"), "localhost/x:1");
}
