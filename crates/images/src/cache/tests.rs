use coracle_runtime::ImageCommit;
use coracle_runtime::ImageStore as _;
use std::sync::Mutex;

use coracle_runtime::fake::Verb;
use coracle_runtime::labels::Signer;
use coracle_runtime::{
    ByteSize, Command, ContainerId, ContainerName, ContainerPath, CreateSpec, Exec, FakeRuntime, GuestDelivery, Ids,
    ImageConfig, LabelNamespace, LinkSettings, NetworkAttachment, Policy, Secret, admit,
};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::cook::{Cooking, OnFailure, cook};
use crate::packages::PackageName;
use crate::{Pull, Setup, Want};
use crate::{Recipe, Source};

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

    async fn base(&self, wanted: &Wanted) -> Base {
        let want = Want {
            image: wanted.image.clone(),
            explicit: false,
            pull: Pull::Never,
            proxy: false,
            pull_timeout: DAY,
            probe_timeout: DAY,
            fallback: crate::Fallback::Fail,
        };
        crate::ensure(&self.fake, &want, &|_| {}).await.unwrap()
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

    /// What the tool does on a miss, with the lock held.
    async fn build(&self, wanted: &Wanted, replaces: bool, max_bytes: Option<ByteSize>) -> Result<Cached, Error> {
        let (cache, base) = (self.cache(), self.base(wanted).await);
        let container = self.container(&base.image, &[("coracle.role", "build"), ("coracle.session", "of one")]).await;
        let link = self.fake.link(&container, None, LinkSettings::default()).await.unwrap();
        let cooking =
            Cooking { env: BTreeMap::new(), limit: DAY, on_failure: OnFailure::Stop, cancel: CancellationToken::new() };
        let cooked = cook(&link, &wanted.recipe_on(&base), &cooking, &|_| {}).await.unwrap();
        assert!(cooked.whole(), "{cooked:?}");
        let built = Built { container: &container, base: &base, wanted, contents: None, replaces, max_bytes };
        let kept = cache.keep(&self.fake, &built).await;
        self.fake.remove(&container).await.unwrap();
        kept
    }

    async fn find(&self, wanted: &Wanted) -> Found {
        self.cache().find(&self.fake, wanted).await.unwrap()
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

    /// How often the engine was asked.
    async fn asked(&self, act: impl AsyncFnOnce()) -> Vec<Verb> {
        let before = self.fake.calls().len();
        act().await;
        self.fake.calls().split_off(before)
    }
}

fn wanted(script: &str) -> Wanted {
    Wanted {
        purpose: Some(Purpose::parse("python").unwrap()),
        image: ImageRef::parse("busybox").unwrap(),
        explicit: false,
        recipe: Recipe { setup: vec![Setup::from(script.to_owned())], ..Recipe::default() },
        bootstrap: Recipe::default(),
        ca: None,
        tool: "0.1".into(),
        max_age: 7 * DAY,
        now: "2030-01-01T00:00:00Z".parse().unwrap(),
    }
}

fn later(wanted: &Wanted, by: Duration) -> Wanted {
    Wanted { now: wanted.now + jiff::SignedDuration::try_from(by).unwrap(), ..wanted.clone() }
}

fn hit(found: Found) -> Cached {
    let Found::Hit(it) = found else { panic!("{found:?}") };
    it
}

#[tokio::test]
async fn what_was_built_is_found_in_one_call_and_holds_what_was_cooked() {
    let (world, wanted) = (World::new(), wanted("echo cooked >made"));
    assert_eq!(world.find(&wanted).await, Found::Miss);
    let kept = world.build(&wanted, false, None).await.unwrap();
    assert!(!kept.image.labels.values().any(|it| it == "build" || it == "of one"), "{:?}", kept.image.labels);
    let owner = world.cache().signer.fingerprint();
    let name = format!("docker.io/library/coracle-cache:python-{}-{owner}", &kept.key[..16]);
    assert_eq!(kept.reference.as_str(), name);
    let asked = world.asked(async || assert_eq!(hit(world.find(&wanted).await), kept)).await;
    assert_eq!(asked, [Verb::FindImage]);
    let container = world.container(&kept.image, &[]).await;
    let link = world.fake.link(&container, None, LinkSettings::default()).await.unwrap();
    let exec = Exec::new(Command::Shell("cat made".into()), Ids::ROOT, ContainerPath::root());
    assert_eq!(link.exec(exec).await.unwrap().stdout.text(), "cooked\n");
}

#[tokio::test]
async fn without_its_base_it_is_found_by_what_was_asked_for() {
    let (world, wanted) = (World::new(), wanted("true"));
    let kept = world.build(&wanted, false, None).await.unwrap();
    world.without_base().await;
    let asked = world.asked(async || assert_eq!(hit(world.find(&wanted).await), kept)).await;
    assert_eq!(asked, [Verb::FindImage]);
    std::fs::remove_dir_all(world.state.path().join("images")).unwrap();
    let asked = world.asked(async || assert_eq!(hit(world.find(&wanted).await), kept)).await;
    assert_eq!(asked, [Verb::FindImage, Verb::ListImages]);
    let other = Wanted { image: ImageRef::parse("alpine").unwrap(), ..wanted.clone() };
    assert_eq!(world.find(&other).await, Found::Miss);
    let other_ca = Wanted { ca: Some("x".into()), ..wanted };
    assert_eq!(world.find(&other_ca).await, Found::Stale(kept), "better than nothing, and not what is wanted");
}

#[tokio::test]
async fn other_contents_are_another_image() {
    let (world, plain) = (World::new(), wanted("true"));
    world.build(&plain, false, None).await.unwrap();
    let more = plain.recipe.clone().with([PackageName::parse("jq").unwrap()]);
    for other in [
        wanted("true "),
        Wanted { recipe: more, ..plain.clone() },
        Wanted { ca: Some("x".into()), ..plain.clone() },
        Wanted { tool: "0.2".into(), ..plain.clone() },
    ] {
        assert_eq!(world.find(&other).await, Found::Miss, "{other:?}");
    }
}

#[tokio::test]
async fn two_profiles_on_one_bootstrapped_base_are_two_images() {
    let on = |brings: &str, image: &str| Wanted {
        image: ImageRef::parse(image).unwrap(),
        bootstrap: wanted(brings).recipe,
        ..wanted("true")
    };
    let (bun, go) = (on("echo bun", "oven/bun:1-slim"), on("echo go", "golang:1.22"));
    let world = World::new();
    let base = Base { source: Source::Bootstrap, ..world.base(&wanted("true")).await };
    assert_ne!(bun.key_on(&base, EngineKind::Fake), go.key_on(&base, EngineKind::Fake));
    assert_eq!(bun.recipe_on(&base).setup.len(), 2);
    let container = world.container(&base.image, &[]).await;
    let built =
        Built { container: &container, base: &base, wanted: &bun, contents: None, replaces: false, max_bytes: None };
    let kept = world.cache().keep(&world.fake, &built).await.unwrap();
    assert_eq!(hit(world.find(&bun).await), kept);
    assert_eq!(world.find(&go).await, Found::Miss);
    assert_eq!(hit(world.cache().find_on(&world.fake, &bun, &base).await.unwrap()), kept);
}

#[tokio::test]
async fn an_image_that_is_not_ours_is_not_used() {
    let (world, wanted) = (World::new(), wanted("true"));
    let kept = world.build(&wanted, false, None).await.unwrap();
    let theirs = world.cache_of(2);
    assert_eq!(theirs.find(&world.fake, &wanted).await.unwrap(), Found::Miss);
    assert_eq!(theirs.list(&world.fake).await.unwrap(), []);
    // The right name and key, and labels that were copied and changed.
    world.fake.remove_image(&kept.image.id).await.unwrap();
    let container = world.container(&world.base(&wanted).await.image, &[]).await;
    let mut labels = kept.image.labels.clone();
    labels.insert("coracle.created".into(), "2030-01-01T00:00:01Z".into());
    let commit = ImageCommit {
        container,
        tag: Some(kept.reference.clone()),
        labels: labels.into_iter().collect(),
        config: ImageConfig::default(),
    };
    world.fake.commit_image(&commit).await.unwrap();
    assert_eq!(world.find(&wanted).await, Found::Miss);
}

#[tokio::test]
async fn an_image_made_from_a_container_of_a_cached_one_is_none() {
    let (world, wanted) = (World::new(), wanted("true"));
    let kept = world.build(&wanted, false, None).await.unwrap();
    let container = world.container(&kept.image, &[]).await;
    let mut labels = kept.image.labels.clone();
    labels.insert("coracle.kind".into(), "snapshot".into());
    labels.insert("coracle.created".into(), "2030-01-02T00:00:00Z".into());
    world.cache().signer.sign(EngineKind::Fake, &mut labels);
    let (labels, config) = (labels.into_iter().collect(), ImageConfig::default());
    let commit = ImageCommit { container: container.clone(), tag: None, labels, config };
    world.fake.commit_image(&commit).await.unwrap();
    world.fake.remove(&container).await.unwrap();
    world.without_base().await;
    std::fs::remove_dir_all(world.state.path().join("images")).unwrap();
    assert_eq!(hit(world.find(&later(&wanted, 2 * DAY)).await), kept);
    assert_eq!(world.cache().list(&world.fake).await.unwrap().len(), 1);
}

#[tokio::test]
async fn an_old_one_is_told_apart_and_its_successor_takes_its_place() {
    let (world, wanted) = (World::new(), wanted("true"));
    let old = world.build(&wanted, false, None).await.unwrap();
    let week = later(&wanted, 7 * DAY);
    assert_eq!(hit(world.find(&week).await), old);
    let late = later(&wanted, 8 * DAY);
    assert_eq!(world.find(&late).await, Found::Stale(old.clone()));
    let new = world.build(&late, false, None).await.unwrap();
    assert_eq!((&new.key, hit(world.find(&late).await)), (&old.key, new.clone()));
    assert!(!world.images().await.iter().any(|it| it.id == old.image.id), "the old one is gone");
}

#[tokio::test]
async fn to_bust_is_to_replace_what_that_profile_has_on_that_base() {
    let (world, first) = (World::new(), wanted("true"));
    let old = world.build(&first, false, None).await.unwrap();
    let node = Wanted { purpose: Some(Purpose::parse("node").unwrap()), ..wanted("echo node") };
    let other = world.build(&node, false, None).await.unwrap();
    let user = world.container(&old.image, &[]).await;
    let second = wanted("echo second");
    let new = world.build(&second, true, None).await.unwrap();
    let there = |all: &[Image], it: &Cached| all.iter().any(|image| image.id == it.image.id);
    let all = world.images().await;
    assert!(there(&all, &old) && there(&all, &new) && there(&all, &other), "one in use stays");
    world.fake.remove(&user).await.unwrap();
    let newest = world.build(&second, true, None).await.unwrap();
    let all = world.images().await;
    assert!(!there(&all, &old) && !there(&all, &new) && there(&all, &newest) && there(&all, &other));
}

#[tokio::test]
async fn the_longest_unused_goes_when_there_is_no_room() {
    let world = World::new();
    let [a, b, c] = ["echo a", "echo b", "echo c"].map(wanted);
    let first = world.build(&a, false, None).await.unwrap();
    world.build(&later(&b, DAY), false, None).await.unwrap();
    hit(world.find(&later(&a, 2 * DAY)).await);
    let room = ByteSize(first.image.size_bytes * 2 + 100);
    world.build(&later(&c, 3 * DAY), false, Some(room)).await.unwrap();
    assert_eq!(world.find(&b).await, Found::Miss);
    hit(world.find(&a).await);
    hit(world.find(&c).await);
    let alone = world.build(&later(&b, 4 * DAY), false, Some(ByteSize(1))).await.unwrap();
    assert_eq!(world.cache().list(&world.fake).await.unwrap()[0].image_id, alone.image.id);
    assert_eq!(world.cache().list(&world.fake).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_container_that_holds_more_than_the_recipe_becomes_no_image() {
    let (world, wanted) = (World::new(), wanted("true"));
    let base = world.base(&wanted).await;
    let container = world.container(&base.image, &[("team", "blue")]).await;
    let keep = async |base: &Base| {
        let built =
            Built { container: &container, base, wanted: &wanted, contents: None, replaces: false, max_bytes: None };
        world.cache().keep(&world.fake, &built).await
    };
    let kept = keep(&base).await;
    assert!(matches!(&kept, Err(Error::Unfit { what }) if what.contains("`team`")), "{kept:?}");
    let mut other = base.clone();
    other.image.labels.insert("team".into(), "blue".into());
    other.image.env.push("CANARY=value".into());
    let kept = keep(&other).await;
    assert!(matches!(&kept, Err(Error::Unfit { what }) if what.ends_with("in `CANARY`")), "{kept:?}");
    other.image.env.pop();
    other.image.volumes.push("/data".into());
    let kept = keep(&other).await;
    assert!(matches!(kept, Err(Error::Unfit { .. })), "{kept:?}");
    assert_eq!(world.images().await.len(), 1, "nothing is left");
    assert_eq!(world.find(&wanted).await, Found::Miss);
}

#[tokio::test]
async fn calls_at_once_build_it_once() {
    let (world, wanted, built) = (World::new(), wanted("true"), Mutex::new(0));
    let create = async || {
        let cache = world.cache();
        if let Found::Hit(it) = world.find(&wanted).await {
            return it;
        }
        let base = world.base(&wanted).await;
        let _lock = cache.lock(&wanted.key_on(&base, EngineKind::Fake), &|_| {}).await.unwrap();
        if let Found::Hit(it) = cache.find_on(&world.fake, &wanted, &base).await.unwrap() {
            return it;
        }
        *built.lock().unwrap() += 1;
        world.build(&wanted, false, None).await.unwrap()
    };
    let (a, b, c, d) = tokio::join!(create(), create(), create(), create());
    assert!([b, c, d].iter().all(|it| it.image.id == a.image.id));
    assert_eq!(*built.lock().unwrap(), 1);
}

#[tokio::test]
async fn what_is_kept_is_listed_and_cleared_by_profile_or_whole() {
    let world = World::new();
    let python = world.build(&wanted("echo a"), false, None).await.unwrap();
    let node = Wanted { purpose: Some(Purpose::parse("node").unwrap()), ..wanted("echo b") };
    let node = world.build(&node, false, None).await.unwrap();
    let custom = world.build(&Wanted { purpose: None, ..wanted("echo c") }, false, None).await.unwrap();
    assert!(custom.reference.as_str().contains(":custom-"));
    let user = world.container(&node.image, &[]).await;
    let cache = world.cache();
    let clear = async |purpose: Option<&str>, dry_run| {
        let purpose = purpose.map(|it| Purpose::parse(it).unwrap());
        cache.clear(&world.fake, &Clear { purpose, dry_run, own_names: vec![] }).await.unwrap()
    };
    let dry = clear(None, true).await;
    assert_eq!((dry.images.len(), dry.cleared.len(), dry.kept.len()), (3, 2, 1));
    assert_eq!(dry.kept[0], Kept { image: node.reference.clone(), reason: "used by c4".into() });
    let listed = cache.list(&world.fake).await.unwrap();
    let one = listed.iter().find(|it| it.image_id == python.image.id).unwrap();
    assert_eq!((one.purpose.clone(), one.in_use), (python.purpose.clone(), false));
    assert_eq!((one.key.as_deref(), one.base.clone()), (Some(python.key.as_str()), Some(python.base.clone())));
    assert!(listed.iter().find(|it| it.image_id == node.image.id).unwrap().in_use);

    let cleared = clear(Some("python"), false).await;
    assert_eq!((cleared.cleared, cleared.kept), (vec![python.reference], vec![]));
    assert_eq!(clear(Some("rust"), false).await, Cleared::default());
    world.fake.remove(&user).await.unwrap();
    assert_eq!(clear(None, false).await.cleared.len(), 2);
    assert_eq!(clear(None, false).await, Cleared::default());
}

#[tokio::test]
async fn an_image_goes_with_all_names_of_ours_and_stays_under_another() {
    let world = World::new();
    let own_names = vec![ImageRef::parse("bun-runner-base:latest").unwrap()];
    let clear = Clear { own_names: own_names.clone(), ..Clear::default() };
    let tag = async |image: &Image, name: &str| {
        let tag = ImageRef::parse(name).unwrap();
        world.fake.tag_image(&image.id, &tag).await.unwrap();
    };
    let snippets = world.build(&wanted("echo a"), false, None).await.unwrap();
    tag(&snippets.image, "bun-runner-base:latest").await;
    let sandbox = world.build(&wanted("echo b"), false, None).await.unwrap();
    tag(&sandbox.image, "coracle-sandbox:0.1.0").await;
    let shared = world.build(&wanted("echo c"), false, None).await.unwrap();
    tag(&shared.image, "team/tools:1").await;

    let cleared = world.cache().clear(&world.fake, &clear).await.unwrap();
    assert_eq!(cleared.cleared.len(), 2, "{cleared:?}");
    let reason = "it has another name, `docker.io/team/tools:1`; remove it by that name".to_owned();
    assert_eq!(cleared.kept, [Kept { image: shared.reference, reason }]);
    let left = world.images().await;
    assert!(left.iter().all(|it| it.id != snippets.image.id && it.id != sandbox.image.id), "{left:?}");
    let shared = left.iter().find(|it| it.id == shared.image.id).unwrap();
    assert_eq!(shared.tags, ["docker.io/team/tools:1"]);
}

#[tokio::test]
async fn an_image_that_stands_in_is_remembered_as_such_and_serves_nobody_who_names_the_image() {
    let world = World::new();
    let wanted = wanted("true");
    let base = world.base(&wanted).await;
    let container = world.container(&base.image, &[("coracle.role", "build")]).await;
    let contents = Contents::default();
    let built = Built {
        container: &container,
        base: &base,
        wanted: &wanted,
        contents: Some(&contents),
        replaces: false,
        max_bytes: None,
    };
    let kept = world.cache().keep(&world.fake, &built).await.unwrap();
    assert_eq!(kept.contents, Some(contents));
    assert_eq!(hit(world.find(&wanted).await), kept);
    let explicit = Wanted { explicit: true, ..wanted };
    assert_eq!(world.find(&explicit).await, Found::Miss);
}
