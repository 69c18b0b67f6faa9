//! The engines of a run.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::engines::{self, apt, embedded, rootless};
use crate::sh::{target, var};

/// Apple's engine, played by a program of the tests: nothing has to be brought up for it.
const CONTAINER: &str = "container";

/// A cluster, played by a server of the tests on the embedded engine.
const KUBERNETES: &str = "kubernetes";

/// Options of `cargo xtask test`, beside the arguments for cargo-nextest.
pub(super) const OPTIONS: &[&str] = &["--fake-only", "--all-engines"];

#[derive(Debug, Default)]
pub(super) struct Matrix {
    /// Beside the fake.
    pub(super) engines: Vec<String>,
    /// Whether each test runs on its part of the engines (`tests/engines/tier.rs`), and not on every one.
    pub(super) is_subset: bool,
    /// Every engine that this machine can have.
    pub(super) all: bool,
    /// A name for this run, so that its tests share what they find.
    pub(super) run: String,
    /// Engines that were named from outside must be available, and the omission of the others is intended.
    is_narrowed: bool,
    /// Unavailable engines, each with its reason, which is repeated at the end.
    skipped: Vec<String>,
}

impl Matrix {
    pub(super) fn up(options: &[&str]) -> Result<Self> {
        let (fake_only, all) = (options.contains(&"--fake-only"), options.contains(&"--all-engines"));
        let it = match var("CORACLE_ENGINES") {
            _ if fake_only && all => bail!("--fake-only or --all-engines, not both"),
            Some(_) if all => bail!("--all-engines is every engine: CORACLE_ENGINES is not set with it"),
            _ if fake_only => Ok(Self { is_narrowed: true, ..Self::default() }),
            Some(list) => Self::named(&list),
            None => Self::usual(all),
        }?;
        Ok(Self { run: this_run(), ..it })
    }

    fn named(list: &str) -> Result<Self> {
        let engines: Vec<String> = list.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect();
        engines.iter().filter(|it| *it != CONTAINER && *it != KUBERNETES).try_for_each(|it| engines::up(Some(it)))?;
        Ok(Self { engines, is_narrowed: true, ..Self::default() })
    }

    /// Without root Podman takes several times as long, and nearly all tests on it run with root, too: it is run only
    /// with `--all-engines`. The embedded engine without root keeps the contract of engines in each run.
    fn usual(all: bool) -> Result<Self> {
        let engines = ["docker", "podman", embedded::NAME].map(str::to_owned).into();
        let mut it = Self { engines, is_subset: !all, all, ..Self::default() };
        it.engines.iter().try_for_each(|it| engines::up(Some(it)))?;
        if apt::is_root() {
            engines::up(Some(embedded::ROOTLESS))?;
            it.engines.push(embedded::ROOTLESS.to_owned());
        }
        if !all {
            it.skip("`cargo xtask test --all-engines` runs the tool's tests on it, too");
        } else if !apt::is_root() {
            it.skip("it is what `podman` is for a person who is not root");
        } else if let Err(why) = engines::up(Some(rootless::NAME)) {
            it.skip(&format!("{why:#}"));
        } else {
            it.engines.push(rootless::NAME.to_owned());
        }
        // They play containers in namespaces, which root makes.
        if apt::is_root() && cfg!(target_os = "linux") {
            it.engines.extend([CONTAINER, KUBERNETES].map(str::to_owned));
        }
        Ok(it)
    }

    fn skip(&mut self, why: &str) {
        self.skip_engine(rootless::NAME, why);
    }

    fn skip_engine(&mut self, engine: &str, why: &str) {
        let why = format!("{engine}: {why}");
        println!("  skips {why}");
        self.skipped.push(why);
    }

    /// Another person runs these tests only where what was built lies open to others.
    pub(super) fn drop_the_unreachable(&mut self) {
        for engine in [rootless::NAME, embedded::ROOTLESS] {
            if self.is_narrowed || !self.engines.iter().any(|it| it == engine) {
                continue;
            }
            if let Err(why) = rootless::reaches(&target().join("debug/coracle")) {
                self.engines.retain(|it| it != engine);
                self.skip_engine(engine, &format!("{why:#}"));
            }
        }
    }

    /// Whether every test finds here what it needs.
    pub(super) fn has_everything(&self) -> bool {
        apt::is_root() && !self.is_narrowed
    }

    pub(super) fn announce(&self) {
        if self.is_subset {
            println!(
                "the contract on the fake, the embedded engine and a quarter each on docker and podman; each other test on the \
                 fake or the embedded engine, and one in 24 each on docker, podman and embedded-rootless;"
            );
            println!("  --all-engines runs every test on each engine,");
            println!("  and CORACLE_ENGINES=podman cargo xtask test -E 'test(NAME)' runs one where you want it");
        }
    }

    pub(super) fn print(&self) {
        self.announce();
        for why in &self.skipped {
            println!("skipped: {why}");
        }
    }
}

fn this_run() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_secs())
}
