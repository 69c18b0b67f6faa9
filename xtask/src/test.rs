//! `cargo xtask test`: everything, on every engine, on a machine that may have neither tools nor engines.

use std::env::join_paths;
use std::ffi::OsString;
use std::iter::once;

use anyhow::Result;

use crate::engines::{self, apt, rootless};
use crate::sh::{sh, target, var, which};
use crate::skips::Skips;
use crate::{clients, guest};

/// What the image of most tests is made of, on the fake engine too.
const IMAGE_PACKAGES: &[&str] = &["busybox-static"];

/// What tests look at or pack into an image: the host's own packages are the base where no registry answers.
const PACKAGES: &[&str] =
    &["bash", "ca-certificates", "curl", "docker-registry", "git", "python3", "ripgrep", "util-linux"];

pub(crate) fn run(words: &[String]) -> Result<()> {
    let has = |option: &str| words.iter().any(|it| it == option);
    let fake_only = has("--fake-only");
    apt::ensure(IMAGE_PACKAGES)?;
    if !fake_only {
        apt::ensure(PACKAGES)?;
    }
    let path = nextest()?;
    clients::ensure();
    let mut engines = if fake_only { Engines::default() } else { Engines::up(has("--rootless"))? };
    guest::build_fast(&[guest::GUEST, guest::WORKER])?;
    // Programs and tests in one build, so that features are resolved once: the tests' dependencies let the fake engine
    // start host programs, and the `coracle` that tests start has to be the one that can.
    sh("cargo", ["build", "--workspace", "--bins", "--tests"]).run()?;
    engines.drop_the_unreachable();
    Skips::clear();
    let profile = if var("CI").is_some() { "ci" } else { "default" };
    let rest = words.iter().map(String::as_str).filter(|it| !["--fake-only", "--rootless"].contains(it));
    let ran = sh("cargo", ["nextest", "run", "--workspace", "--profile", profile].into_iter().chain(rest))
        .env("PATH", path)
        .env("CORACLE_ENGINES", engines.named.join(","))
        .env("INSTA_UPDATE", "no")
        .run();
    let ran = ran.and_then(|()| sh("cargo", ["test", "--workspace", "--doc"]).run_last());
    for why in &engines.skipped {
        println!("skipped: {why}");
    }
    let skips = Skips::noted();
    skips.print();
    ran?;
    // Whoever leaves out engines or is not root knows that tests are skipped.
    let has_everything = var("CI").is_some() && apt::is_root() && !fake_only && !engines.all;
    if has_everything { skips.check() } else { Ok(()) }
}

/// Apple's engine, played by a program of the tests: nothing has to be brought up for it.
const CONTAINER: &str = "container";

/// The engines that tests run on.
#[derive(Debug, Default)]
struct Engines {
    named: Vec<String>,
    /// Those that nobody asked for by name and that cannot be had here, each with its reason: said at the end too.
    skipped: Vec<String>,
    /// They were named from outside, so that each has to be there.
    all: bool,
}

impl Engines {
    /// Without root Podman takes several times as long, and what is tried on it is nearly all tried with root, too: it is
    /// for whoever asks.
    fn up(with_rootless: bool) -> Result<Self> {
        if let Some(asked) = var("CORACLE_ENGINES") {
            let named: Vec<String> =
                asked.split(',').map(|it| it.trim().to_owned()).filter(|it| !it.is_empty()).collect();
            named.iter().filter(|it| *it != CONTAINER).try_for_each(|it| engines::up(Some(it)))?;
            return Ok(Self { named, all: true, ..Self::default() });
        }
        let mut engines = Self { named: ["docker", "podman"].map(str::to_owned).into(), ..Self::default() };
        engines.named.iter().try_for_each(|it| engines::up(Some(it)))?;
        if !with_rootless {
            engines.skip("`cargo xtask test --rootless` runs the tool's tests on it, too");
        } else if !apt::is_root() {
            engines.skip("it is what `podman` is for a person who is not root");
        } else if let Err(why) = engines::up(Some(rootless::NAME)) {
            engines.skip(&format!("{why:#}"));
        } else {
            engines.named.push(rootless::NAME.to_owned());
        }
        // It plays containers in namespaces, which root makes.
        if apt::is_root() && cfg!(target_os = "linux") {
            engines.named.push(CONTAINER.to_owned());
        }
        Ok(engines)
    }

    fn skip(&mut self, why: &str) {
        let why = format!("{}: {why}", rootless::NAME);
        println!("  skips {why}");
        self.skipped.push(why);
    }

    /// Another person runs these tests only where what was built lies open to others.
    fn drop_the_unreachable(&mut self) {
        if self.all || !self.named.iter().any(|it| it == rootless::NAME) {
            return;
        }
        if let Err(why) = rootless::reaches(&target().join("debug/coracle")) {
            self.named.retain(|it| it != rootless::NAME);
            self.skip(&format!("{why:#}"));
        }
    }
}

/// Makes sure of cargo-nextest and gives the search path on which cargo finds it.
fn nextest() -> Result<OsString> {
    let path = var("PATH").unwrap_or_default();
    if which("cargo-nextest").is_some() {
        return Ok(path.into());
    }
    let tools = target().join("tools");
    if !tools.join("bin/cargo-nextest").is_file() {
        sh(
            "cargo",
            ["install", "--locked", "--quiet", "cargo-nextest", "--root"]
                .map(OsString::from)
                .into_iter()
                .chain(once(tools.clone().into())),
        )
        .run()?;
    }
    Ok(join_paths(once(tools.join("bin")).chain(std::env::split_paths(&path)))?)
}
