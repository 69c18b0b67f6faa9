//! The engines of a run.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Result, bail};

use crate::engines::{self, apt, embedded, rootless};
use crate::sh::{sh, target, var};

/// Apple's engine, played by a program of the tests: nothing has to be brought up for it.
const CONTAINER: &str = "container";

/// A cluster, played by a server of the tests on the embedded engine.
const KUBERNETES: &str = "kubernetes";

/// What a run of the tests covers, beside the fake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Coverage {
    /// Nothing: `--fake-only`.
    Fake,
    /// The embedded engine, of the account that runs it. Needs no root and installs nothing.
    Usual,
    /// The same as root; the contract, and the tests of `tests/engines/every_engine.txt`, also on Docker, Podman and the embedded
    /// engine without root.
    Ci,
    /// Docker and Podman too, each test on both: `--engines`.
    Engines,
    /// Every test on every engine: `--all-engines`.
    All,
    /// Every test on engines that `CORACLE_ENGINES` names.
    Named(Vec<String>),
}

impl Coverage {
    /// From the words after `cargo xtask test`, and the words that are left for cargo-nextest.
    pub(super) fn of(words: &[String], named: Option<&str>) -> Result<(Self, Vec<String>)> {
        let options = [("--fake-only", Self::Fake), ("--engines", Self::Engines), ("--all-engines", Self::All)];
        let is_option = |word: &&String| options.iter().any(|it| it.0 == *word);
        let (chosen, rest): (Vec<&String>, Vec<&String>) = words.iter().partition(is_option);
        let option = |word: &String| options.iter().find(|it| it.0 == word).map(|it| it.1.clone());
        let of = match (&chosen[..], named) {
            ([], None) => Self::Usual,
            ([], Some(list)) => {
                let engines = list.split(',').map(str::trim).filter(|engine| !["", "fake"].contains(engine));
                Self::Named(engines.map(str::to_owned).collect())
            }
            ([word], None) => option(word).unwrap_or(Self::Usual),
            ([word], Some(_)) => bail!("{word} and CORACLE_ENGINES both name engines: leave out one of them"),
            ([first, second, ..], _) => bail!("{first} or {second}, not both"),
        };
        Ok((of, rest.into_iter().cloned().collect()))
    }

    /// Whether packages and daemons that are missing are set up.
    pub(super) fn sets_up(&self) -> bool {
        !matches!(self, Self::Fake | Self::Usual)
    }

    /// Whether tests may build images from packages that they download, which takes minutes.
    pub(super) fn downloads(&self) -> bool {
        !matches!(self, Self::Fake | Self::Usual | Self::Ci)
    }

    /// `CORACLE_TEST_PART` of `tests/engines/tier.rs`.
    fn part(&self) -> &'static str {
        match self {
            Self::Usual | Self::Ci => "usual",
            Self::Engines => "engines",
            Self::Fake | Self::All | Self::Named(_) => "",
        }
    }

    fn explanation(&self) -> &'static str {
        match self {
            Self::Usual => {
                "each test on the fake or the embedded engine, the contract of engines on both; \
                 --engines adds Docker and Podman, --all-engines runs every test on each engine"
            }
            Self::Ci => {
                "each test on the fake or the embedded engine; the contract, and a list of tests, on Docker and Podman too"
            }
            Self::Engines => "each test on the fake or the embedded engine, on Docker and on Podman",
            Self::Fake => "each test on the fake",
            Self::All | Self::Named(_) => "each test on each engine",
        }
    }
}

#[derive(Debug)]
pub(super) struct Matrix {
    pub(super) coverage: Coverage,
    /// Beside the fake.
    pub(super) engines: Vec<String>,
    /// A name for this run, so that its tests share what they find.
    pub(super) run: String,
    /// Unavailable engines, each with its reason, which is repeated at the end.
    skipped: Vec<String>,
}

impl Matrix {
    pub(super) fn up(coverage: Coverage) -> Result<Self> {
        let named: &[&str] = match &coverage {
            Coverage::Fake | Coverage::Named(_) => &[],
            // Its programs come after the build, which tells what it can do here.
            Coverage::Usual => &[embedded::NAME],
            Coverage::Ci | Coverage::Engines | Coverage::All => &["docker", "podman", embedded::NAME],
        };
        let mut engines: Vec<String> = named.iter().copied().map(str::to_owned).collect();
        if let Coverage::Named(list) = &coverage {
            engines.clone_from(list);
        }
        let mut it = Self { coverage, engines, run: this_run(), skipped: vec![] };
        if it.coverage.sets_up() {
            let real = it.engines.iter().filter(|it| ![CONTAINER, KUBERNETES].contains(&it.as_str()));
            real.into_iter().try_for_each(|it| engines::up(Some(it)))?;
        }
        if matches!(it.coverage, Coverage::Ci | Coverage::All) {
            it.add_those_of_root();
        }
        Ok(it)
    }

    /// Without root Podman takes several times as long, and nearly all tests on it run with root, too: it is run only
    /// with `--all-engines`. The embedded engine without root keeps the contract of engines in CI.
    fn add_those_of_root(&mut self) {
        if !apt::is_root() {
            return self.skip(rootless::NAME, "it is what `podman` is for a person who is not root");
        }
        let of_person: &[&str] =
            if self.coverage == Coverage::All { &[embedded::ROOTLESS, rootless::NAME] } else { &[embedded::ROOTLESS] };
        for engine in of_person {
            match engines::up(Some(engine)) {
                Ok(()) => self.engines.push((*engine).to_owned()),
                Err(why) => self.skip(engine, &format!("{why:#}")),
            }
        }
        // They play containers in namespaces, which root makes.
        if cfg!(target_os = "linux") && self.coverage == Coverage::All {
            self.engines.extend([CONTAINER, KUBERNETES].map(str::to_owned));
        }
    }

    fn skip(&mut self, engine: &str, why: &str) {
        let why = format!("{engine}: {why}");
        println!("  skips {why}");
        self.engines.retain(|it| it != engine);
        self.skipped.push(why);
    }

    /// After the build: what the machine cannot run is left out, and another person runs these tests only where what was
    /// built lies open to others.
    pub(super) fn drop_the_unusable(&mut self) {
        if matches!(self.coverage, Coverage::Named(_)) {
            return; // a failure tells it
        }
        let is_there = |engine: &str| self.engines.iter().any(|it| it == engine);
        let usual = is_there(embedded::NAME).then(|| (embedded::NAME, is_ready()));
        let of_person = [rootless::NAME, embedded::ROOTLESS].into_iter().filter(|it| is_there(it));
        let of_person = of_person.map(|it| (it, rootless::reaches(&target().join("debug/coracle"))));
        let checked: Vec<_> = usual.into_iter().chain(of_person).collect();
        for (engine, ready) in checked {
            if let Err(why) = ready {
                self.skip(engine, &format!("{why:#}"));
            }
        }
    }

    /// Whether every test finds here what it needs.
    pub(super) fn has_everything(&self) -> bool {
        apt::is_root() && matches!(self.coverage, Coverage::Ci | Coverage::All)
    }

    /// `CORACLE_TEST_PART`.
    pub(super) fn part(&self) -> &'static str {
        self.coverage.part()
    }

    pub(super) fn print(&self) {
        let engines = if self.engines.is_empty() { "none" } else { &self.engines.join(", ") };
        println!("beside the fake: {engines}; {}", self.coverage.explanation());
        for why in &self.skipped {
            println!("skipped: {why}");
        }
    }
}

/// Why tests cannot run on the embedded engine here.
fn is_ready() -> Result<()> {
    let program = target().join("debug/embedded-engine");
    match sh(&program, [std::env::temp_dir().as_path(), Path::new("ready")]).read() {
        Ok(_) => Ok(()),
        Err(why) => bail!("{}", format!("{why:#}").lines().last().unwrap_or_default().trim()),
    }
}

fn this_run() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{}-{}", std::process::id(), now.as_secs())
}

/// The engines that are named from outside.
pub(super) fn named() -> Option<String> {
    var("CORACLE_ENGINES")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(words: &[&str], named: Option<&str>) -> Result<(Coverage, Vec<String>)> {
        Coverage::of(&words.iter().copied().map(str::to_owned).collect::<Vec<_>>(), named)
    }

    #[test]
    fn one_word_or_a_variable_says_what_a_run_covers() {
        let filter = ["-E", "test(one)"];
        let (usual, rest) = of(&filter, None).expect("no option");
        assert_eq!((usual, &rest[..]), (Coverage::Usual, &filter.map(str::to_owned)[..]));
        assert_eq!(of(&["--engines", "-v"], None).expect("an option").0, Coverage::Engines);
        let named = Coverage::Named(vec!["podman".into(), "embedded".into()]);
        assert_eq!(of(&[], Some("fake, podman,embedded")).expect("a list").0, named);
        for (words, named) in [(&["--engines", "--fake-only"][..], None), (&["--all-engines"], Some("docker"))] {
            assert!(of(words, named).is_err(), "{words:?}");
        }
    }

    #[test]
    fn what_needs_no_root_sets_nothing_up() {
        let sets_up = |words: &[&str]| of(words, None).expect("valid").0.sets_up();
        assert!(!sets_up(&[]) && !sets_up(&["--fake-only"]));
        assert!(sets_up(&["--engines"]) && sets_up(&["--all-engines"]));
    }
}
