//! Profiles and the cache on real engines: what is cooked, kept, found and cleared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_images::cache::{Built, Cache, Clear, Found, Wanted};
use coracle_images::cook::{Cooked, Cooking, OnFailure, cook};
use coracle_images::profile::{self, Purpose};
use coracle_images::{Base, Bootstrap, Fallback, Pull, Recipe, Setup, Want};
use coracle_runtime::labels::Signer;
use coracle_runtime::{
    Command, ContainerPath, Exec, Ids, ImageCommit, ImageRef, LabelNamespace, NetworkAttachment, Secret, random_hex,
};
use tempfile::TempDir;

use crate::engines::{Case, IMAGE, Lack, Running, Way, on_every_engine, skip, variable, with_real_engines};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// Where Debian's programs look for the certificates of its base.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const BUNDLE_NAMES: [&str; 5] =
    ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"];

/// An image builder for one call, with a key of its own.
struct Kitchen<'a> {
    case: &'a Case,
    state: TempDir,
    signer: Signer,
}

impl<'a> Kitchen<'a> {
    /// The namespace is that of the case's own label: what goes into an image is removed with its case.
    fn new(case: &'a Case) -> Self {
        case.makes_more();
        let namespace = LabelNamespace::parse("coracle-test").unwrap();
        let signer = Signer::new(namespace, Secret::new(random_hex::<32>().into_bytes()), 1000);
        Self { case, state: tempfile::tempdir().unwrap(), signer }
    }

    fn cache(&self) -> Cache {
        Cache {
            signer: self.signer.clone(),
            dir: self.state.path().join("images"),
            locks: self.state.path().join("locks"),
            version: "0.1.0".into(),
        }
    }

    async fn find(&self, wanted: &Wanted) -> Found {
        self.cache().find(&*self.case.runtime, wanted).await.unwrap()
    }

    async fn base(&self, wanted: &Wanted) -> Base {
        let bootstrap = Bootstrap {
            root: "/".into(),
            mirror: None,
            suite: None,
            build_timeout: DAY,
            lock_file: self.state.path().join("locks/base"),
            temp_dir: self.state.path().join("tmp"),
            signer: self.signer.clone(),
            version: "0.1.0".into(),
            created: wanted.now.to_string(),
        };
        let want = Want {
            image: wanted.image.clone(),
            explicit: false,
            pull: Pull::Missing,
            proxy: false,
            pull_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(2),
            fallback: Fallback::Bootstrap(Box::new(bootstrap)),
        };
        coracle_images::ensure(&*self.case.runtime, &want, &|it| eprintln!("  {it}")).await.unwrap()
    }

    async fn cook(&self, running: &Running<'_>, recipe: &Recipe, on_failure: OnFailure) -> Cooked {
        let env = BUNDLE_NAMES.map(|it| (it.to_owned(), BUNDLE.to_owned())).into();
        let cooking = Cooking { env, limit: Duration::from_secs(900), on_failure, cancel: Default::default() };
        let begun = Instant::now();
        let tell = |it: &str| eprintln!("  {:>6.1} s {it}", begun.elapsed().as_secs_f32());
        cook(running.link(), recipe, &cooking, &tell).await.unwrap()
    }

    async fn keep(&self, running: &Running<'_>, base: &Base, wanted: &Wanted) -> coracle_images::cache::Cached {
        let built = Built { container: &running.id, base, wanted, contents: None, replaces: false, max_bytes: None };
        let kept = self.cache().keep(&*self.case.runtime, &built).await.unwrap();
        self.case.runtime.remove(&running.id).await.unwrap();
        kept
    }
}

fn wanted(image: &str, recipe: Recipe) -> Wanted {
    Wanted {
        purpose: None,
        image: ImageRef::parse(image).unwrap(),
        explicit: false,
        recipe,
        bootstrap: Recipe::default(),
        ca: None,
        tool: "0.1".into(),
        max_age: 7 * DAY,
        now: "2030-01-01T00:00:00Z".parse().unwrap(),
    }
}

fn scripts(scripts: &[&str]) -> Recipe {
    Recipe { setup: scripts.iter().map(|it| Setup::from((*it).to_owned())).collect(), ..Recipe::default() }
}

fn user(script: &str) -> Exec {
    let mut exec = Exec::new(Command::Shell(script.into()), Ids { uid: 1000, gid: 1000 }, ContainerPath::root());
    exec.env = BUNDLE_NAMES.map(|it| (it.to_owned(), BUNDLE.to_owned())).into();
    exec
}

#[tokio::test]
async fn what_was_cooked_is_kept_as_its_base_was_and_found_and_cleared() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Commit) {
            return;
        }
        let (kitchen, recipe) = (Kitchen::new(case), scripts(&["mkdir -p cooked && echo \"$PIP_CERT\" >cooked/made"]));
        let wanted = wanted(IMAGE, recipe);
        assert_eq!(kitchen.find(&wanted).await, Found::Miss);
        let (base, build) = (kitchen.base(&wanted).await, case.runs(Way::Socket).await);
        let cooked = kitchen.cook(&build, &wanted.recipe, OnFailure::Stop).await;
        assert!(cooked.whole(), "{cooked:?}");
        let kept = kitchen.keep(&build, &base, &wanted).await;
        assert_eq!(kitchen.find(&wanted).await, Found::Hit(kept.clone()));
        assert!(!kept.image.env.iter().any(|it| it.contains(BUNDLE)), "{:?}", kept.image.env);

        let session = case.run(Way::Socket, case.spec("session"), &kept.image.id).await;
        assert_eq!(session.printed(user("cat cooked/made")).await, format!("{BUNDLE}\n"));
        let clear = Clear::default();
        let all = kitchen.cache().clear(&*case.runtime, &clear).await.unwrap();
        assert_eq!((all.cleared.len(), all.kept[0].image.clone()), (0, kept.reference.clone()));
        case.runtime.remove(&session.id).await.unwrap();
        let all = kitchen.cache().clear(&*case.runtime, &clear).await.unwrap();
        assert_eq!(all.cleared, [kept.reference]);
        assert_eq!(kitchen.find(&wanted).await, Found::Miss);
    })
    .await;
}

#[tokio::test]
async fn a_name_and_a_key_without_our_signature_are_not_enough() {
    with_real_engines(async |case| {
        let (kitchen, wanted) = (Kitchen::new(case), wanted(IMAGE, scripts(&["true"])));
        let (base, build) = (kitchen.base(&wanted).await, case.runs(Way::Socket).await);
        let kept = kitchen.keep(&build, &base, &wanted).await;
        case.runtime.remove_image(&kept.image.id).await.unwrap();
        let planted = case.run(Way::Socket, case.spec("planted"), &case.image).await;
        let mut labels: BTreeMap<_, _> = kept.image.labels;
        labels.insert("coracle-test.created".into(), "2030-01-01T00:00:01Z".into());
        let commit = ImageCommit {
            container: planted.id.clone(),
            tag: Some(kept.reference.clone()),
            labels: labels.into_iter().collect(),
            config: base.image.config,
        };
        case.runtime.commit_image(&commit).await.unwrap();
        assert_eq!(case.runtime.find_images(&[kept.reference]).await.unwrap().len(), 1);
        assert_eq!(kitchen.find(&wanted).await, Found::Miss);
    })
    .await;
}

/// Typical use of each profile by the exec user, on a bootstrapped base.
const USES: [(&str, &str); 4] = [
    (
        "python",
        "cd /tmp && python3 --version && pip3 --version && uv venv -q v && uv pip install -q --python v/bin/python six && v/bin/python -c 'import six'",
    ),
    (
        "node",
        "cd /tmp && node --version && npm --version && corepack --version && echo '{}' >package.json && npm install --silent ms && node -e 'require(\"ms\")'",
    ),
    ("bun", "cd /tmp && bun --version && bun -e 'console.log(1 + 1)'"),
    ("general", "git --version && gcc --version && jq --version"),
];

/// Takes minutes and the network, so only what `CORACLE_COOK=python,node` names is cooked.
#[tokio::test]
async fn profiles_are_cooked_on_a_bootstrapped_base() {
    let asked = variable("CORACLE_COOK").unwrap_or_default();
    let asked: Vec<_> = USES.iter().filter(|it| asked.split(',').any(|name| name == it.0)).collect();
    if asked.is_empty() {
        return skip("takes minutes; CORACLE_COOK names what is built");
    }
    with_real_engines(async |case| {
        let kitchen = Kitchen::new(case);
        for (name, uses) in &asked {
            let purpose = Purpose::parse(name).unwrap();
            let profile = profile::of(&purpose, &BTreeMap::new(), None).unwrap();
            let wanted = Wanted {
                purpose: Some(purpose),
                bootstrap: profile.bootstrap,
                ..wanted(profile.image.as_str(), profile.recipe)
            };
            assert_eq!(kitchen.find(&wanted).await, Found::Miss);
            let begun = Instant::now();
            let base = kitchen.base(&wanted).await;
            eprintln!("{} {name}: base after {:?}", case.engine(), begun.elapsed());
            let build = case
                .run_on(
                    Way::Socket,
                    case.spec(&format!("build-{name}")),
                    (&base.image.id, NetworkAttachment::EngineDefault),
                )
                .await;
            let cooked = kitchen.cook(&build, &wanted.recipe_on(&base), OnFailure::Stop).await;
            eprintln!("{} {name}: cooked after {:?}", case.engine(), begun.elapsed());
            assert!(cooked.whole(), "{cooked:#?}");
            let kept = kitchen.keep(&build, &base, &wanted).await;
            eprintln!("{} {name}: kept after {:?}, {} bytes", case.engine(), begun.elapsed(), kept.image.size_bytes);
            let begun = Instant::now();
            assert_eq!(kitchen.find(&wanted).await, Found::Hit(kept.clone()));
            eprintln!("{} {name}: found in {:?}", case.engine(), begun.elapsed());
            let session = case
                .run_on(
                    Way::Socket,
                    case.spec(&format!("session-{name}")),
                    (&kept.image.id, NetworkAttachment::EngineDefault),
                )
                .await;
            let mut exec = user(uses);
            exec.env.insert("HOME".into(), "/tmp".into());
            let used = session.exec(exec).await.unwrap();
            eprintln!("{:?} {} {}", used.exit, used.stdout.text(), used.stderr.text());
            assert_eq!(used.exit, coracle_runtime::Exit::Code(0));
            case.runtime.remove(&session.id).await.unwrap();
        }
        let cleared = kitchen.cache().clear(&*case.runtime, &Clear::default()).await.unwrap();
        eprintln!("{cleared:#?}");
        assert_eq!((cleared.cleared.len(), cleared.kept), (asked.len() + 1, vec![]));
        let left = case.mine();
        assert_eq!(case.runtime.list_images(&left).await.unwrap(), []);
    })
    .await;
}
