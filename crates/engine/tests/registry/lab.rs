//! A registry, a server in front of it, and an engine with a directory of its own.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coracle_engine::{EmbeddedRuntime, EngineOptions, RegistryOptions};
use coracle_runtime::{Image, ImageStore as _};
use coracle_types::{Error, ImageRef};
use tempfile::TempDir;

use crate::front::Front;
use crate::image::TestImage;
use crate::server::Registry;

/// Longer than anything takes that works.
const DEADLINE: Duration = Duration::from_secs(60);

/// All that a pull needs.
pub(crate) struct Lab {
    pub(crate) registry: Registry,
    pub(crate) front: Front,
    pub(crate) engine: TestEngine,
}

/// An engine, and where its files are.
pub(crate) struct TestEngine {
    pub(crate) runtime: EmbeddedRuntime,
    pub(crate) home: PathBuf,
    data: PathBuf,
    _dir: TempDir,
}

impl TestEngine {
    pub(crate) fn new(registries: RegistryOptions) -> Self {
        // Not in `/tmp`: programs in a directory that everybody can write are not started.
        let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
        let (home, data) = (dir.path().join("home"), dir.path().join("data"));
        std::fs::create_dir_all(&home).unwrap();
        let options = EngineOptions { data_dir: data.clone(), guest: None, home: home.clone(), registries };
        Self { runtime: EmbeddedRuntime::open(options).unwrap(), home, data, _dir: dir }
    }

    pub(crate) async fn pull(&self, name: &str) -> Result<Image, Error> {
        self.pull_within(name, DEADLINE).await
    }

    pub(crate) async fn pull_within(&self, name: &str, deadline: Duration) -> Result<Image, Error> {
        self.runtime.pull_image(&ImageRef::parse(name).unwrap(), deadline).await
    }

    /// The reason for which a pull fails. It leaves nothing.
    pub(crate) async fn refusal(&self, name: &str) -> String {
        let before = self.files();
        let reason = match self.pull(name).await {
            Err(Error::PullFailed { image, excerpt }) if image.as_str() == name => excerpt.to_string(),
            other => panic!("{other:?}"),
        };
        assert_eq!(self.files(), before, "{reason}");
        reason
    }

    /// Every file and directory of the engine.
    pub(crate) fn files(&self) -> BTreeSet<PathBuf> {
        let mut found = BTreeSet::new();
        walk(&self.data, &mut found);
        found
    }

    /// Writes the file in which `docker login` keeps credentials.
    pub(crate) fn write_docker_config(&self, config: &serde_json::Value) {
        let dir = self.home.join(".docker");
        std::fs::create_dir_all(&dir).unwrap();
        std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
    }
}

fn walk(dir: &Path, found: &mut BTreeSet<PathBuf>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && !path.is_symlink() {
            walk(&path, found);
        }
        found.insert(path);
    }
}

impl Lab {
    /// Starts all, with an image in the store already, so that the store's own files are there.
    pub(crate) async fn start() -> Option<Self> {
        let registry = Registry::start().await?;
        let front = Front::start(Some(registry.port)).await;
        let lab = Self { front, engine: TestEngine::new(RegistryOptions::default()), registry };
        lab.registry.push("first", "1", &TestImage::new(&["first"])).await;
        lab.engine.pull(&lab.direct("first:1")).await.unwrap();
        Some(lab)
    }

    /// The name of an image by the registry itself.
    pub(crate) fn direct(&self, image: &str) -> String {
        format!("127.0.0.1:{}/{image}", self.registry.port)
    }

    /// The name of an image by the server in front.
    pub(crate) fn name(&self, image: &str) -> String {
        format!("localhost:{}/{image}", self.front.port)
    }

    /// With the server behaving again, the pull works: nothing that was left is in its way.
    pub(crate) async fn pulls_again(&self, name: &str, image: &TestImage) {
        self.front.behave();
        assert_eq!(self.engine.pull(name).await.unwrap().id.as_str(), image.id());
    }
}
