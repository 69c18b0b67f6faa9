//! Profiles and the cache on real engines: images are built, committed, found and cleared.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use coracle_images::cache::{Built, Cache, CacheLookup, CachedImage, Clear};
use coracle_images::profile::{self, Purpose};
use coracle_images::{
    Base, BaseRequest, Bootstrap, BuildOptions, BuildReport, FetchSettings, ImageRequest, OnFailure, Pull, Recipe,
    Setup, run_recipe,
};
use coracle_runtime::labels::Signer;
use coracle_runtime::{ImageCommit, NetworkAttachment};
use coracle_types::{Command, ContainerPath, Exec, Ids, ImageRef, LabelNamespace, Secret, random_hex};
use tempfile::TempDir;

use crate::engines::{Case, IMAGE, Lack, Running, Way, on_every_engine, skip, variable, with_real_engines};

const DAY: Duration = Duration::from_secs(24 * 3600);

/// The directory of Debian's certificates.
const BUNDLE: &str = "/etc/ssl/certs/ca-certificates.crt";
const BUNDLE_NAMES: [&str; 5] =
    ["SSL_CERT_FILE", "CURL_CA_BUNDLE", "PIP_CERT", "NODE_EXTRA_CA_CERTS", "GIT_SSL_CAINFO"];

/// An image builder for one call, with a key of its own.
struct Builder<'a> {
    case: &'a Case,
    state: TempDir,
    signer: Signer,
}

impl<'a> Builder<'a> {
    /// The namespace of the case's label, so that images are removed with their case.
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

    async fn find(&self, request: &ImageRequest) -> CacheLookup {
        self.cache().find(&*self.case.runtime, request).await.unwrap()
    }

    async fn base(&self, request: &ImageRequest) -> Base {
        let bootstrap = Bootstrap {
            root: "/".into(),
            mirror: None,
            suite: None,
            build_timeout: DAY,
            lock_file: self.state.path().join("locks/base"),
            temp_dir: self.state.path().join("tmp"),
            signer: self.signer.clone(),
            version: "0.1.0".into(),
            created: request.now.to_string(),
        };
        let settings = FetchSettings {
            proxy: false,
            pull_timeout: Duration::from_secs(60),
            probe_timeout: Duration::from_secs(2),
            fallback: Some(Box::new(bootstrap)),
        };
        let request = BaseRequest { image: &request.image, explicit: false, pull: Pull::Missing };
        let progress = |it: &str| eprintln!("  {it}");
        coracle_images::ensure(&*self.case.runtime, request, &settings, &progress).await.unwrap()
    }

    async fn run(&self, running: &Running<'_>, recipe: &Recipe, on_failure: OnFailure) -> BuildReport {
        let env = BUNDLE_NAMES.map(|it| (it.to_owned(), BUNDLE.to_owned())).into();
        let options = BuildOptions { env, limit: Duration::from_secs(900), on_failure, cancel: Default::default() };
        let begun = Instant::now();
        let tell = |it: &str| eprintln!("  {:>6.1} s {it}", begun.elapsed().as_secs_f32());
        run_recipe(running.link(), recipe, &options, &tell).await.unwrap()
    }

    async fn commit(&self, running: &Running<'_>, base: &Base, request: &ImageRequest) -> CachedImage {
        let built = Built { container: &running.id, base, request, contents: None, max_bytes: None };
        let committed = self.cache().commit(&*self.case.runtime, &built).await.unwrap();
        self.case.runtime.remove(&running.id).await.unwrap();
        committed
    }
}

fn request(image: &str, recipe: Recipe) -> ImageRequest {
    ImageRequest {
        purpose: None,
        image: ImageRef::parse(image).unwrap(),
        explicit: false,
        pull: Pull::Missing,
        rebuild: false,
        stands_in: false,
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
async fn built_images_are_cached_found_and_cleared_like_their_base() {
    on_every_engine(async |case| {
        if case.lacks(Lack::Commit) {
            return;
        }
        let (builder, recipe) = (Builder::new(case), scripts(&["mkdir -p cooked && echo \"$PIP_CERT\" >cooked/made"]));
        let request = request(IMAGE, recipe);
        assert_eq!(builder.find(&request).await, CacheLookup::Miss);
        let (base, build) = (builder.base(&request).await, case.runs(Way::Socket).await);
        let report = builder.run(&build, &request.recipe, OnFailure::Stop).await;
        assert!(report.is_complete(), "{report:?}");
        let committed = builder.commit(&build, &base, &request).await;
        assert_eq!(builder.find(&request).await, CacheLookup::Hit(committed.clone()));
        assert!(!committed.image.env.iter().any(|it| it.contains(BUNDLE)), "{:?}", committed.image.env);

        let session = case.run(Way::Socket, case.spec("session"), &committed.image.id).await;
        assert_eq!(session.printed(user("cat cooked/made")).await, format!("{BUNDLE}\n"));
        let clear = Clear::default();
        let all = builder.cache().clear(&*case.runtime, &clear).await.unwrap();
        assert_eq!((all.cleared.len(), all.retained[0].image.clone()), (0, committed.reference.clone()));
        case.runtime.remove(&session.id).await.unwrap();
        let all = builder.cache().clear(&*case.runtime, &clear).await.unwrap();
        assert_eq!(all.cleared, [committed.reference]);
        assert_eq!(builder.find(&request).await, CacheLookup::Miss);
    })
    .await;
}

#[tokio::test]
async fn a_name_and_a_key_without_our_signature_are_not_enough() {
    with_real_engines(async |case| {
        let (builder, request) = (Builder::new(case), request(IMAGE, scripts(&["true"])));
        let (base, build) = (builder.base(&request).await, case.runs(Way::Socket).await);
        let committed = builder.commit(&build, &base, &request).await;
        case.runtime.remove_image(&committed.image.id).await.unwrap();
        let planted = case.run(Way::Socket, case.spec("planted"), &case.image).await;
        let mut labels: BTreeMap<_, _> = committed.image.labels;
        labels.insert("coracle-test.created".into(), "2030-01-01T00:00:01Z".into());
        let commit = ImageCommit {
            container: planted.id.clone(),
            tag: Some(committed.reference.clone()),
            labels: labels.into_iter().collect(),
            config: base.image.config,
        };
        case.runtime.commit_image(&commit).await.unwrap();
        assert_eq!(case.runtime.find_images(&[committed.reference]).await.unwrap().len(), 1);
        assert_eq!(builder.find(&request).await, CacheLookup::Miss);
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

/// Takes minutes and the network, so only what `CORACLE_COOK=python,node` names is built.
#[tokio::test]
async fn profiles_are_built_on_a_bootstrapped_base() {
    let selected = variable("CORACLE_COOK").unwrap_or_default();
    let selected: Vec<_> = USES.iter().filter(|it| selected.split(',').any(|name| name == it.0)).collect();
    if selected.is_empty() {
        return skip("takes minutes; CORACLE_COOK names what is built");
    }
    with_real_engines(async |case| {
        let builder = Builder::new(case);
        for (name, uses) in &selected {
            let purpose = Purpose::parse(name).unwrap();
            let profile = profile::resolve(&purpose, &BTreeMap::new(), None).unwrap();
            let request = ImageRequest {
                purpose: Some(purpose),
                bootstrap: profile.bootstrap,
                ..request(profile.image.as_str(), profile.recipe)
            };
            assert_eq!(builder.find(&request).await, CacheLookup::Miss);
            let begun = Instant::now();
            let base = builder.base(&request).await;
            eprintln!("{} {name}: base after {:?}", case.engine(), begun.elapsed());
            let build = case
                .run_on(
                    Way::Socket,
                    case.spec(&format!("build-{name}")),
                    (&base.image.id, NetworkAttachment::EngineDefault),
                )
                .await;
            let report = builder.run(&build, &request.recipe_on(&base), OnFailure::Stop).await;
            eprintln!("{} {name}: built after {:?}", case.engine(), begun.elapsed());
            assert!(report.is_complete(), "{report:#?}");
            let committed = builder.commit(&build, &base, &request).await;
            eprintln!(
                "{} {name}: kept after {:?}, {} bytes",
                case.engine(),
                begun.elapsed(),
                committed.image.size_bytes
            );
            let begun = Instant::now();
            assert_eq!(builder.find(&request).await, CacheLookup::Hit(committed.clone()));
            eprintln!("{} {name}: found in {:?}", case.engine(), begun.elapsed());
            let session = case
                .run_on(
                    Way::Socket,
                    case.spec(&format!("session-{name}")),
                    (&committed.image.id, NetworkAttachment::EngineDefault),
                )
                .await;
            let mut exec = user(uses);
            exec.env.insert("HOME".into(), "/tmp".into());
            let used = session.exec(exec).await.unwrap();
            eprintln!("{:?} {} {}", used.exit, used.stdout.text(), used.stderr.text());
            assert_eq!(used.exit, coracle_types::Exit::Code(0));
            case.runtime.remove(&session.id).await.unwrap();
        }
        let cleared = builder.cache().clear(&*case.runtime, &Clear::default()).await.unwrap();
        eprintln!("{cleared:#?}");
        assert_eq!((cleared.cleared.len(), cleared.retained), (selected.len() + 1, vec![]));
        let left = case.mine();
        assert_eq!(case.runtime.list_images(&left).await.unwrap(), []);
    })
    .await;
}
