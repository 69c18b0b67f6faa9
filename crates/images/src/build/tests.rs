use coracle_client::LinkSettings;
use coracle_runtime::fake::Verb;
use coracle_runtime::labels::Signer;
use coracle_runtime::{CreateSpec, FakeRuntime, GuestDelivery, LabelFilter, NetworkAttachment, Policy, admit};
use coracle_types::{ContainerName, LabelNamespace, Secret};
use tempfile::TempDir;

use super::*;
use crate::Setup;

const DAY: Duration = Duration::from_secs(24 * 3600);

struct World {
    fake: FakeRuntime,
    cache: Cache,
    _state: TempDir,
}

/// Creates containers of a fake engine, and counts them.
struct FakeContainers<'a> {
    fake: &'a FakeRuntime,
    with_guest: bool,
    created: usize,
}

impl BuildContainers for FakeContainers<'_> {
    type Error = Error;

    async fn create(&mut self, base: &Base, _: &Recipe) -> Result<Option<BuildContainer>, Error> {
        if !self.with_guest {
            return Ok(None);
        }
        self.created += 1;
        let name = ContainerName::parse(format!("c{}", self.fake.calls().len())).unwrap();
        let guest = GuestDelivery::Bound { program: "/".into(), link: "/".into() };
        let spec = CreateSpec::new(name, base.image.id.clone().into());
        let admitted = admit(spec, &Policy::everything()).unwrap().with_guest(Some(guest));
        let id = self.fake.create(&admitted.with_image(base.image.id.clone(), NetworkAttachment::None)).await?;
        self.fake.start(&id).await?;
        let link = self.fake.link(&id, None, LinkSettings::default()).await?;
        Ok(Some(BuildContainer { id, link, env: BTreeMap::new() }))
    }
}

impl World {
    fn new() -> Self {
        let state = tempfile::tempdir().unwrap();
        let cache = Cache {
            signer: Signer::new(LabelNamespace::parse("coracle").unwrap(), Secret::new(vec![1; 32]), 1000),
            dir: state.path().join("images"),
            locks: state.path().join("locks"),
            version: "0.1.0".into(),
        };
        Self { fake: FakeRuntime::with_programs(), cache, _state: state }
    }

    /// Returns how many containers were created, and the outcome.
    async fn build(&self, request: &ImageRequest) -> (usize, Result<BuildOutcome, Error>) {
        self.build_with(request, true).await
    }

    async fn build_with(&self, request: &ImageRequest, with_guest: bool) -> (usize, Result<BuildOutcome, Error>) {
        let mut containers = FakeContainers { fake: &self.fake, with_guest, created: 0 };
        let settings = FetchSettings { proxy: true, pull_timeout: DAY, probe_timeout: DAY, fallback: None };
        let builder = ImageBuilder {
            runtime: &self.fake,
            cache: &self.cache,
            fetch: &settings,
            timeout: DAY,
            max_bytes: ByteSize(u64::MAX),
            cancel: CancellationToken::new(),
            progress: &|_| {},
        };
        let outcome = builder.build(request, &mut containers).await;
        for container in self.fake.list(&LabelFilter::default()).await.unwrap() {
            // The container is still in use, unless another call created it.
            if containers.created > 0 {
                self.fake.remove(&container.id).await.unwrap();
            }
        }
        (containers.created, outcome)
    }
}

fn request(script: &str) -> ImageRequest {
    ImageRequest {
        purpose: None,
        image: ImageRef::parse("busybox").unwrap(),
        explicit: false,
        pull: Pull::Missing,
        rebuild: false,
        stands_in: false,
        recipe: Recipe { setup: vec![Setup::from(script.to_owned())], ..Recipe::default() },
        bootstrap: Recipe::default(),
        ca: None,
        tool: "0.1".into(),
        max_age: 7 * DAY,
        now: "2030-01-01T00:00:00Z".parse().unwrap(),
    }
}

fn id(outcome: BuildOutcome) -> String {
    outcome.into_image().unwrap().0.id.to_string()
}

#[tokio::test]
async fn concurrent_calls_build_an_image_once() {
    let (world, request) = (World::new(), request("true"));
    let [a, b, c] = <[_; 3]>::from(tokio::join!(world.build(&request), world.build(&request), world.build(&request)));
    assert_eq!(a.0 + b.0 + c.0, 1);
    let ids = [a, b, c].map(|it| id(it.1.unwrap()));
    assert!(ids.iter().all(|it| *it == ids[0]), "{ids:?}");
    let (created, again) = world.build(&request).await;
    assert!(created == 0 && matches!(again.unwrap(), BuildOutcome::Cached(_)));
}

#[tokio::test]
async fn a_rebuild_replaces_the_cached_image() {
    let (world, plain) = (World::new(), request("true"));
    let first = id(world.build(&plain).await.1.unwrap());
    let rebuild = ImageRequest { rebuild: true, ..plain.clone() };
    let (created, second) = world.build(&rebuild).await;
    let second = second.unwrap();
    assert!(created == 1 && matches!(second, BuildOutcome::Built(..)), "{second:?}");
    let second = id(second);
    assert_ne!(first, second);
    assert_eq!(id(world.build(&plain).await.1.unwrap()), second);
}

#[tokio::test]
async fn a_stale_image_is_used_when_its_base_is_gone() {
    let (world, plain) = (World::new(), request("true"));
    let old = id(world.build(&plain).await.1.unwrap());
    let late = ImageRequest { now: "2031-01-01T00:00:00Z".parse().unwrap(), pull: Pull::Never, ..plain };
    let (base, _) = crate::find(&world.fake, &late.image).await.unwrap().unwrap();
    coracle_runtime::ImageStore::remove_image(&world.fake, &base.id).await.unwrap();
    let outcome = world.build(&late).await.1.unwrap();
    assert!(matches!(&outcome, BuildOutcome::Stale(_, Error::NotFound(_))), "{outcome:?}");
    assert_eq!(id(outcome), old);
    let rebuild = ImageRequest { rebuild: true, ..late };
    assert!(matches!(world.build(&rebuild).await.1, Err(Error::NotFound(_))));
}

#[tokio::test]
async fn a_failed_recipe_leaves_the_base_and_a_reason() {
    let world = World::new();
    let failed = world.build(&request("echo no >&2; exit 3")).await.1.unwrap();
    let BuildOutcome::Failed(base, failure) = failed else { panic!("{failed:?}") };
    assert!(base.reference.as_str().contains("busybox") && failure.why.ends_with("exit 3"), "{failure:?}");
    assert_eq!(failure.log.as_deref(), Some("no"));
    let no_guest = world.build_with(&request("true"), false).await.1.unwrap();
    assert!(no_guest.into_image().unwrap_err().why.contains("no guest"));
    assert!(!world.fake.calls().contains(&Verb::Commit));
}
