use std::collections::BTreeMap;
use std::sync::Mutex;

use coracle_client::LinkSettings;
use coracle_runtime::fake::Verb;
use coracle_runtime::labels::Signer;
use coracle_runtime::{
    CreateSpec, FakeRuntime, GuestDelivery, ImageCommit, ImageConfig, ImageStore as _, NetworkAttachment, Policy, admit,
};
use coracle_types::{ByteSize, Command, ContainerId, ContainerName, ContainerPath, Exec, Ids, LabelNamespace, Secret};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::build::run_recipe;
use crate::packages::PackageName;
use crate::recipe::{BuildOptions, OnFailure};
use crate::{ImageOrigin, Pull, Recipe, Setup};

const DAY: Duration = Duration::from_secs(24 * 3600);

struct World {
    fake: FakeRuntime,
    state: TempDir,
    made: Mutex<u32>,
}

impl World {
    fn new() -> Self {
        Self { fake: FakeRuntime::with_programs(), state: tempfile::tempdir().unwrap(), made: Mutex::new(0) }
    }

    fn cache_of(&self, key: u8) -> Cache {
        Cache {
            signer: Signer::new(LabelNamespace::parse("coracle").unwrap(), Secret::new(vec![key; 32]), 1000),
            dir: self.state.path().join("images"),
            locks: self.state.path().join("locks"),
            version: "0.1.0".into(),
        }
    }

    fn cache(&self) -> Cache {
        self.cache_of(1)
    }

    async fn base(&self, request: &ImageRequest) -> Base {
        base_image(&self.fake, request).await
    }

    async fn container(&self, image: &Image, labels: &[(&str, &str)]) -> ContainerId {
        let number = {
            let mut made = self.made.lock().unwrap();
            *made += 1;
            *made
        };
        let name = ContainerName::parse(format!("c{number}")).unwrap();
        let labels = labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
        let spec = CreateSpec { labels, ..CreateSpec::new(name, image.id.clone().into()) };
        let guest = GuestDelivery::Bound { program: "/".into(), link: "/".into() };
        let admitted = admit(spec, &Policy::everything()).unwrap().with_guest(Some(guest));
        let id = self.fake.create(&admitted.with_image(image.id.clone(), NetworkAttachment::None)).await.unwrap();
        self.fake.start(&id).await.unwrap();
        id
    }

    async fn build(&self, request: &ImageRequest, max_bytes: Option<ByteSize>) -> Result<CachedImage, Error> {
        let base = self.base(request).await;
        let container = self.container(&base.image, &[("coracle.role", "build"), ("coracle.session", "of one")]).await;
        let link = self.fake.link(&container, None, LinkSettings::default()).await.unwrap();
        let options = BuildOptions {
            env: BTreeMap::new(),
            limit: DAY,
            on_failure: OnFailure::Stop,
            cancel: CancellationToken::new(),
        };
        let report = run_recipe(&link, &request.recipe_on(&base), &options, &|_| {}).await.unwrap();
        assert!(report.is_complete(), "{report:?}");
        let cached = self.commit(&container, &base, request, max_bytes).await;
        self.fake.remove(&container).await.unwrap();
        cached
    }

    async fn commit(
        &self,
        container: &ContainerId,
        base: &Base,
        request: &ImageRequest,
        max_bytes: Option<ByteSize>,
    ) -> Result<CachedImage, Error> {
        let built = Built { container, base, request, contents: None, max_bytes };
        self.cache().commit(&self.fake, &built).await
    }

    async fn find(&self, request: &ImageRequest) -> CacheLookup {
        self.cache().find(&self.fake, request).await.unwrap()
    }

    async fn images(&self) -> Vec<Image> {
        self.fake.list_images(&LabelFilter::default()).await.unwrap()
    }

    async fn without_base(&self) {
        for image in self.images().await {
            if image.tags.iter().any(|it| it.contains("busybox")) {
                self.fake.remove_image(&image.id).await.unwrap();
            }
        }
    }

    /// Returns the engine calls of an action.
    async fn calls_of(&self, act: impl AsyncFnOnce()) -> Vec<Verb> {
        let before = self.fake.calls().len();
        act().await;
        self.fake.calls().split_off(before)
    }
}

async fn base_image(fake: &FakeRuntime, request: &ImageRequest) -> Base {
    let (image, reference) = crate::find(fake, &request.image).await.unwrap().unwrap();
    Base { image, reference, source: ImageOrigin::Local, note: None }
}

fn request(script: &str) -> ImageRequest {
    ImageRequest {
        purpose: Some(Purpose::parse("python").unwrap()),
        image: ImageRef::parse("busybox").unwrap(),
        explicit: false,
        pull: Pull::Never,
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

fn later(request: &ImageRequest, by: Duration) -> ImageRequest {
    ImageRequest { now: request.now + jiff::SignedDuration::try_from(by).unwrap(), ..request.clone() }
}

fn hit(found: CacheLookup) -> CachedImage {
    let CacheLookup::Hit(it) = found else { panic!("{found:?}") };
    it
}

#[tokio::test]
async fn a_built_image_is_found_in_one_call_and_has_the_files_of_the_recipe() {
    let (world, request) = (World::new(), request("echo cooked >made"));
    assert_eq!(world.find(&request).await, CacheLookup::Miss);
    let cached = world.build(&request, None).await.unwrap();
    assert!(!cached.image.labels.values().any(|it| it == "build" || it == "of one"), "{:?}", cached.image.labels);
    let owner = world.cache().signer.fingerprint();
    let name = format!("docker.io/library/coracle-cache:python-{}-{owner}", &cached.key[..16]);
    assert_eq!(cached.reference.as_str(), name);
    let calls = world.calls_of(async || assert_eq!(hit(world.find(&request).await), cached)).await;
    assert_eq!(calls, [Verb::FindImage]);
    let container = world.container(&cached.image, &[]).await;
    let link = world.fake.link(&container, None, LinkSettings::default()).await.unwrap();
    let exec = Exec::new(Command::Shell("cat made".into()), Ids::ROOT, ContainerPath::root());
    assert_eq!(link.exec(exec).await.unwrap().stdout.text(), "cooked\n");
}

#[tokio::test]
async fn without_its_base_it_is_found_by_the_request() {
    let (world, request) = (World::new(), request("true"));
    let cached = world.build(&request, None).await.unwrap();
    world.without_base().await;
    let calls = world.calls_of(async || assert_eq!(hit(world.find(&request).await), cached)).await;
    assert_eq!(calls, [Verb::FindImage]);
    std::fs::remove_dir_all(world.state.path().join("images")).unwrap();
    let calls = world.calls_of(async || assert_eq!(hit(world.find(&request).await), cached)).await;
    assert_eq!(calls, [Verb::FindImage, Verb::ListImages]);
    let other = ImageRequest { image: ImageRef::parse("alpine").unwrap(), ..request.clone() };
    assert_eq!(world.find(&other).await, CacheLookup::Miss);
    let other_ca = ImageRequest { ca: Some("x".into()), ..request };
    assert_eq!(
        world.find(&other_ca).await,
        CacheLookup::Stale(cached),
        "better than none, but not the requested image"
    );
}

#[tokio::test]
async fn other_contents_are_another_image() {
    let (world, plain) = (World::new(), request("true"));
    world.build(&plain, None).await.unwrap();
    let more = plain.recipe.clone().with([PackageName::parse("jq").unwrap()]);
    for other in [
        request("true "),
        ImageRequest { recipe: more, ..plain.clone() },
        ImageRequest { ca: Some("x".into()), ..plain.clone() },
        ImageRequest { tool: "0.2".into(), ..plain.clone() },
    ] {
        assert_eq!(world.find(&other).await, CacheLookup::Miss, "{other:?}");
    }
}

#[tokio::test]
async fn two_profiles_on_one_bootstrapped_base_are_two_images() {
    let on = |brings: &str, image: &str| ImageRequest {
        image: ImageRef::parse(image).unwrap(),
        bootstrap: request(brings).recipe,
        ..request("true")
    };
    let (bun, go) = (on("echo bun", "oven/bun:1-slim"), on("echo go", "golang:1.22"));
    let world = World::new();
    let base = Base { source: ImageOrigin::Bootstrap, ..world.base(&request("true")).await };
    assert_ne!(bun.key_on(&base, EngineKind::Fake), go.key_on(&base, EngineKind::Fake));
    assert_eq!(bun.recipe_on(&base).setup.len(), 2);
    let container = world.container(&base.image, &[]).await;
    let cached = world.commit(&container, &base, &bun, None).await.unwrap();
    assert_eq!(hit(world.find(&bun).await), cached);
    assert_eq!(world.find(&go).await, CacheLookup::Miss);
    assert_eq!(hit(world.cache().find_on(&world.fake, &bun, &base).await.unwrap()), cached);
}

#[tokio::test]
async fn an_image_of_another_state_directory_is_not_used() {
    let (world, request) = (World::new(), request("true"));
    let cached = world.build(&request, None).await.unwrap();
    let theirs = world.cache_of(2);
    assert_eq!(theirs.find(&world.fake, &request).await.unwrap(), CacheLookup::Miss);
    assert_eq!(theirs.list(&world.fake).await.unwrap(), []);
    // The right name and key, but labels that were copied and changed.
    world.fake.remove_image(&cached.image.id).await.unwrap();
    let container = world.container(&world.base(&request).await.image, &[]).await;
    let mut labels = cached.image.labels.clone();
    labels.insert("coracle.created".into(), "2030-01-01T00:00:01Z".into());
    let commit = ImageCommit {
        container,
        tag: Some(cached.reference.clone()),
        labels: labels.into_iter().collect(),
        config: ImageConfig::default(),
    };
    world.fake.commit_image(&commit).await.unwrap();
    assert_eq!(world.find(&request).await, CacheLookup::Miss);
}

#[tokio::test]
async fn an_image_committed_from_a_cached_ones_container_is_no_cached_image() {
    let (world, request) = (World::new(), request("true"));
    let cached = world.build(&request, None).await.unwrap();
    let container = world.container(&cached.image, &[]).await;
    let mut labels = cached.image.labels.clone();
    labels.insert("coracle.kind".into(), "snapshot".into());
    labels.insert("coracle.created".into(), "2030-01-02T00:00:00Z".into());
    world.cache().signer.sign(EngineKind::Fake, &mut labels);
    let (labels, config) = (labels.into_iter().collect(), ImageConfig::default());
    let commit = ImageCommit { container: container.clone(), tag: None, labels, config };
    world.fake.commit_image(&commit).await.unwrap();
    world.fake.remove(&container).await.unwrap();
    world.without_base().await;
    std::fs::remove_dir_all(world.state.path().join("images")).unwrap();
    assert_eq!(hit(world.find(&later(&request, 2 * DAY)).await), cached);
    assert_eq!(world.cache().list(&world.fake).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_old_image_is_stale_and_is_replaced_by_its_successor() {
    let (world, request) = (World::new(), request("true"));
    let old = world.build(&request, None).await.unwrap();
    let week = later(&request, 7 * DAY);
    assert_eq!(hit(world.find(&week).await), old);
    let late = later(&request, 8 * DAY);
    assert_eq!(world.find(&late).await, CacheLookup::Stale(old.clone()));
    let new = world.build(&late, None).await.unwrap();
    assert_eq!((&new.key, hit(world.find(&late).await)), (&old.key, new.clone()));
    assert!(!world.images().await.iter().any(|it| it.id == old.image.id), "the old one is gone");
}

#[tokio::test]
async fn a_rebuild_replaces_the_profiles_image_on_that_base() {
    let (world, first) = (World::new(), request("true"));
    let old = world.build(&first, None).await.unwrap();
    let node = ImageRequest { purpose: Some(Purpose::parse("node").unwrap()), ..request("echo node") };
    let other = world.build(&node, None).await.unwrap();
    let user = world.container(&old.image, &[]).await;
    let second = ImageRequest { rebuild: true, ..request("echo second") };
    let new = world.build(&second, None).await.unwrap();
    let there = |all: &[Image], it: &CachedImage| all.iter().any(|image| image.id == it.image.id);
    let all = world.images().await;
    assert!(there(&all, &old) && there(&all, &new) && there(&all, &other), "one in use stays");
    world.fake.remove(&user).await.unwrap();
    let newest = world.build(&second, None).await.unwrap();
    let all = world.images().await;
    assert!(!there(&all, &old) && !there(&all, &new) && there(&all, &newest) && there(&all, &other));
}

#[tokio::test]
async fn the_least_recently_used_image_is_removed_when_there_is_no_room() {
    let world = World::new();
    let [a, b, c] = ["echo a", "echo b", "echo c"].map(request);
    let first = world.build(&a, None).await.unwrap();
    world.build(&later(&b, DAY), None).await.unwrap();
    hit(world.find(&later(&a, 2 * DAY)).await);
    let room = ByteSize(first.image.size_bytes * 2 + 100);
    world.build(&later(&c, 3 * DAY), Some(room)).await.unwrap();
    assert_eq!(world.find(&b).await, CacheLookup::Miss);
    hit(world.find(&a).await);
    hit(world.find(&c).await);
    let alone = world.build(&later(&b, 4 * DAY), Some(ByteSize(1))).await.unwrap();
    assert_eq!(world.cache().list(&world.fake).await.unwrap()[0].image_id, alone.image.id);
    assert_eq!(world.cache().list(&world.fake).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_container_with_more_than_the_recipe_is_not_cached() {
    let (world, request) = (World::new(), request("true"));
    let base = world.base(&request).await;
    let container = world.container(&base.image, &[("team", "blue")]).await;
    let commit = async |base: &Base| world.commit(&container, base, &request, None).await;
    let cached = commit(&base).await;
    assert!(matches!(&cached, Err(Error::Unfit { what }) if what.contains("`team`")), "{cached:?}");
    let mut other = base.clone();
    other.image.labels.insert("team".into(), "blue".into());
    other.image.env.push("CANARY=value".into());
    let cached = commit(&other).await;
    assert!(matches!(&cached, Err(Error::Unfit { what }) if what.ends_with("in `CANARY`")), "{cached:?}");
    other.image.env.pop();
    other.image.volumes.push("/data".into());
    let cached = commit(&other).await;
    assert!(matches!(cached, Err(Error::Unfit { .. })), "{cached:?}");
    assert_eq!(world.images().await.len(), 1, "no image was left");
    assert_eq!(world.find(&request).await, CacheLookup::Miss);
}

#[tokio::test]
async fn an_image_of_a_fixed_name_is_used_unless_another_recipe_or_key_built_it() {
    let (world, request) = (World::new(), request("true"));
    let (cache, kind) = (world.cache(), EngineKind::Fake);
    let cached = world.build(&request, None).await.unwrap().image;
    assert!(cache.is_current(kind, &cached, &request.recipe));
    assert!(!cache.is_current(kind, &cached, &Recipe::default()));
    let tags = vec!["bun-runner-base:latest".to_owned()];
    let derived = Image { tags, ..cached.clone() };
    assert!(cache.is_current(kind, &derived, &Recipe::default()), "built by a user on one of Coracle's");
    assert!(cache.is_current(kind, &world.base(&request).await.image, &Recipe::default()), "an unsigned image");
    assert!(!world.cache_of(2).is_current(kind, &cached, &request.recipe), "of another state directory");
}

#[tokio::test]
async fn cached_images_are_listed_and_cleared_by_profile_or_all() {
    let world = World::new();
    let python = world.build(&request("echo a"), None).await.unwrap();
    let node = ImageRequest { purpose: Some(Purpose::parse("node").unwrap()), ..request("echo b") };
    let node = world.build(&node, None).await.unwrap();
    let custom = world.build(&ImageRequest { purpose: None, ..request("echo c") }, None).await.unwrap();
    assert!(custom.reference.as_str().contains(":custom-"));
    let user = world.container(&node.image, &[]).await;
    let cache = world.cache();
    let clear = async |purpose: Option<&str>, dry_run| {
        let purpose = purpose.map(|it| Purpose::parse(it).unwrap());
        cache.clear(&world.fake, &Clear { purpose, dry_run, own_names: vec![] }).await.unwrap()
    };
    let dry = clear(None, true).await;
    assert_eq!((dry.images.len(), dry.cleared.len(), dry.retained.len()), (3, 2, 1));
    assert_eq!(dry.retained[0], RetainedImage { image: node.reference.clone(), reason: "used by c4".into() });
    let listed = cache.list(&world.fake).await.unwrap();
    let one = listed.iter().find(|it| it.image_id == python.image.id).unwrap();
    assert_eq!((one.purpose.clone(), one.in_use), (python.purpose.clone(), false));
    assert_eq!((one.key.as_deref(), one.base.clone()), (Some(python.key.as_str()), Some(python.base.clone())));
    assert!(listed.iter().find(|it| it.image_id == node.image.id).unwrap().in_use);

    let cleared = clear(Some("python"), false).await;
    assert_eq!((cleared.cleared, cleared.retained), (vec![python.reference], vec![]));
    assert_eq!(clear(Some("rust"), false).await, CacheClearReport::default());
    world.fake.remove(&user).await.unwrap();
    assert_eq!(clear(None, false).await.cleared.len(), 2);
    assert_eq!(clear(None, false).await, CacheClearReport::default());
}

#[tokio::test]
async fn an_image_is_removed_with_all_names_of_coracle_unless_it_has_another() {
    let world = World::new();
    let own_names = vec![ImageRef::parse("bun-runner-base:latest").unwrap()];
    let clear = Clear { own_names: own_names.clone(), ..Clear::default() };
    let tag = async |image: &Image, name: &str| {
        let tag = ImageRef::parse(name).unwrap();
        world.fake.tag_image(&image.id, &tag).await.unwrap();
    };
    let snippets = world.build(&request("echo a"), None).await.unwrap();
    tag(&snippets.image, "bun-runner-base:latest").await;
    let sandbox = world.build(&request("echo b"), None).await.unwrap();
    tag(&sandbox.image, "coracle-sandbox:0.1.0").await;
    let shared = world.build(&request("echo c"), None).await.unwrap();
    tag(&shared.image, "team/tools:1").await;

    let cleared = world.cache().clear(&world.fake, &clear).await.unwrap();
    assert_eq!(cleared.cleared.len(), 2, "{cleared:?}");
    let reason = "it has another name, `docker.io/team/tools:1`; remove it by that name".to_owned();
    assert_eq!(cleared.retained, [RetainedImage { image: shared.reference, reason }]);
    let left = world.images().await;
    assert!(left.iter().all(|it| it.id != snippets.image.id && it.id != sandbox.image.id), "{left:?}");
    let shared = left.iter().find(|it| it.id == shared.image.id).unwrap();
    assert_eq!(shared.tags, ["docker.io/team/tools:1"]);
}

#[tokio::test]
async fn a_replacement_image_is_recorded_as_such_and_not_used_for_an_explicit_name() {
    let world = World::new();
    let request = request("true");
    let base = world.base(&request).await;
    let container = world.container(&base.image, &[("coracle.role", "build")]).await;
    let contents = Contents::default();
    let built =
        Built { container: &container, base: &base, request: &request, contents: Some(&contents), max_bytes: None };
    let cached = world.cache().commit(&world.fake, &built).await.unwrap();
    assert_eq!(cached.contents, Some(contents));
    assert_eq!(hit(world.find(&request).await), cached);
    let explicit = ImageRequest { explicit: true, ..request };
    assert_eq!(world.find(&explicit).await, CacheLookup::Miss);
}
