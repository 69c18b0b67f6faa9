//! Selects the engines of a test among the named ones.
//!
//! With `CORACLE_TEST_PART`, which `cargo xtask test` sets, a test runs on a part of them that its name alone decides, so
//! that all runs of one commit do the same. The contract of the engines runs on each named engine; the guest's tests and those
//! of session containers on the fake and the embedded engine, with and without root. An end-to-end test runs on the fake or on the embedded engine, and on the embedded engine if
//! the fake cannot do it. On the others it runs if it is one of those in `every_engine.txt`, or, with
//! `cargo xtask test --engines`, in any case. `cargo xtask test --all-engines` runs each test on all.
//!
//! Of the tests above the contract, a cluster meets a twelfth of those in [`ON_CLUSTER`]: the others need what a cluster lacks,
//! or are the same code on every engine. They meet a cluster that alone is named.

use coracle_types::EngineKind;
use sha2::{Digest, Sha256};

use super::kubernetes::KUBERNETES;
use super::person::{EMBEDDED_ROOTLESS, ROOTLESS};
use super::variable;

const EMBEDDED: &str = "embedded";

const FAKE: &str = "fake";

/// Modules whose tests run on all engines.
const ON_EACH: &[&str] = &["conformance", "engines", "fake", "guest", "isolation", "session_containers", "scripted"];

/// Modules about features of the embedded engine, with and without root.
const OF_THE_EMBEDDED: &[&str] = &["escapes"];

/// Engines that run most tests only where all of them are to be run.
const OTHERS: &[&str] = &["docker", "podman", EMBEDDED_ROOTLESS];

/// One end-to-end test in so many meets a cluster.
const CLUSTER_ONE_IN: usize = 12;

/// Modules of end-to-end tests that meet a cluster.
const ON_CLUSTER: &[&str] = &["tool::exec", "tool::jobs", "tool::copy", "tool::kubernetes"];

/// End-to-end tests that run on every engine before each change: the main tasks, and what has failed on one engine alone.
const EVERY_ENGINE: &str = include_str!("every_engine.txt");

/// A part of the named engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// The contract runs on each engine; end-to-end tests on the fake or the embedded engine, and those of the list on the others.
    Usual,
    /// The same, and each on Docker and on Podman.
    Engines,
}

impl Part {
    /// That of this run; `None` where a test runs on all engines that are named.
    pub(super) fn of_run() -> Option<Self> {
        match variable("CORACLE_TEST_PART").unwrap_or_default().as_str() {
            "" => None,
            "engines" => Some(Self::Engines),
            _ => Some(Self::Usual),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Runs on each engine, but the guest's tests not on Docker and Podman.
    Contract,
    /// Runs on the embedded engine, also without root, and a part on the others.
    Embedded,
    /// Runs on the fake or on the embedded engine, and a part on the others and without root.
    EndToEnd,
}

impl Tier {
    /// The tier of a test, by its module.
    pub(super) fn of(test: &str) -> Self {
        let module = test.split("::").next().unwrap_or_default();
        match module {
            _ if ON_EACH.contains(&module) => Self::Contract,
            _ if OF_THE_EMBEDDED.contains(&module) => Self::Embedded,
            _ => Self::EndToEnd,
        }
    }

    /// Its name in notes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Contract => "contract",
            Self::Embedded => "embedded",
            Self::EndToEnd => "end-to-end",
        }
    }
}

/// The engines of a test among those that are named, given the only real one that it is about, if there is one.
pub(super) fn engines_of(test: &str, named: Vec<String>, part: Option<Part>, only: Option<EngineKind>) -> Vec<String> {
    let fits = |engine: &String| only.is_none_or(|kind| engine == FAKE || engine == kind.as_str());
    let named: Vec<String> = named.into_iter().filter(fits).collect();
    let has_embedded = named.iter().any(|engine| engine == EMBEDDED);
    let Some(part) = part.filter(|_| only.is_none() && has_embedded) else {
        let is_alone = named.iter().all(|engine| engine == FAKE || engine == KUBERNETES);
        let meets_cluster = is_alone || only.is_some() || is_for_cluster(test);
        return named.into_iter().filter(|engine| engine != KUBERNETES || meets_cluster).collect();
    };
    let (tier, on_embedded) = (Tier::of(test), number_of(test).is_multiple_of(2));
    let on_others = || part == Part::Engines || EVERY_ENGINE.lines().any(|listed| listed == test);
    let is_run = |engine: &str| match (tier, engine) {
        (_, KUBERNETES) => is_of_cluster(test),
        // What the guest does is the same on each engine that it runs on.
        (Tier::Contract, "docker" | "podman") => is_contract(test) || on_others(),
        // The simulated `container` has to keep the contract. Podman without root runs only if it is named.
        (Tier::Contract, _) | (_, ROOTLESS) => true,
        (Tier::Embedded, FAKE | EMBEDDED | EMBEDDED_ROOTLESS) => true,
        (Tier::EndToEnd, FAKE) => !on_embedded,
        (Tier::EndToEnd, EMBEDDED) => on_embedded,
        (_, other) => OTHERS.contains(&other) && on_others(),
    };
    named.into_iter().filter(|engine| is_run(engine)).collect()
}

/// The number by which a test's engines are chosen.
fn number_of(test: &str) -> usize {
    usize::from(Sha256::digest(test)[0])
}

/// Whether a test that is about clusters alone runs.
pub(crate) fn meets_a_cluster(test: &str) -> bool {
    Part::of_run().is_none() || is_of_cluster(test)
}

/// Whether a test of a part meets a cluster.
fn is_of_cluster(test: &str) -> bool {
    is_contract(test) || (number_of(test).is_multiple_of(CLUSTER_ONE_IN) && is_for_cluster(test))
}

fn is_for_cluster(test: &str) -> bool {
    is_contract(test) || ON_CLUSTER.iter().any(|module| test.starts_with(module))
}

fn is_contract(test: &str) -> bool {
    test.starts_with("conformance::")
}

/// The engines that a test of a part meets one after the other until one does what it is about, where its own do not: the
/// fake and the embedded one, then Docker or Podman.
pub(super) fn stand_ins(test: &str, named: &[String], part: Option<Part>) -> Vec<String> {
    if part.is_none() {
        return Vec::new();
    }
    let first = named.iter().filter(|engine| [FAKE, EMBEDDED].contains(&engine.as_str()));
    let others: Vec<&String> = named.iter().filter(|engine| ["docker", "podman"].contains(&engine.as_str())).collect();
    let chosen = (number_of(test) / 2).checked_rem(others.len()).map(|at| others[at]);
    first.chain(chosen).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(test: &str, named: &[&str], part: Option<Part>) -> String {
        let named = named.iter().copied().map(str::to_owned).collect();
        engines_of(test, named, part, None).join(" ")
    }

    /// Of a thousand tests of a module, how many run on each of the named engines.
    fn counts(module: &str, named: &[&str], part: Part) -> Vec<usize> {
        let runs: Vec<String> = (0..1000).map(|at| of(&format!("{module}::t{at}"), named, Some(part))).collect();
        let count = |engine: &&str| runs.iter().filter(|run| run.split(' ').any(|name| name == *engine)).count();
        named.iter().map(count).collect()
    }

    const ALL: [&str; 6] = ["fake", "docker", "podman", "embedded", "container", "embedded-rootless"];

    #[test]
    fn an_end_to_end_test_runs_on_the_fake_or_the_embedded_engine() {
        let [fake, docker, podman, embedded, container, rootless] = counts("tool", &ALL, Part::Usual)[..] else {
            panic!("six engines")
        };
        assert_eq!([fake + embedded, docker, podman, container, rootless], [1000, 0, 0, 0, 0]);
        assert!((400..600).contains(&fake), "{fake}");
        assert_eq!(counts("tool", &ALL, Part::Engines)[1..3], [1000, 1000]);
    }

    #[test]
    fn a_test_of_the_list_and_the_contract_run_on_every_engine() {
        let listed = EVERY_ENGINE.lines().next().unwrap();
        assert!(of(listed, &ALL, Some(Part::Usual)).contains("docker podman"), "{listed}");
        assert_eq!(counts("conformance", &ALL, Part::Usual), [1000; 6]);
        assert_eq!(counts("guest", &ALL, Part::Usual), [1000, 0, 0, 1000, 1000, 1000]);
        assert_eq!(counts("guest", &ALL, Part::Engines), [1000; 6]);
    }

    #[test]
    fn a_cluster_keeps_the_contract_and_meets_a_few_others() {
        let all = ["fake", "embedded", "kubernetes"];
        assert_eq!(of("conformance::exec::one", &all, Some(Part::Usual)), all.join(" "));
        for other in ["guest::ending", "session_containers", "tool::create"] {
            assert_eq!(counts(other, &all, Part::Usual)[2], 0, "{other}");
            assert_eq!(of(&format!("{other}::one"), &all, None), "fake embedded");
            assert_eq!(of(&format!("{other}::one"), &["fake", "kubernetes"], None), "fake kubernetes");
        }
        assert_eq!(of("tool::exec::one", &all, None), all.join(" "));
        assert!((50..120).contains(&counts("tool::exec", &all, Part::Usual)[2]));
    }

    #[test]
    fn where_the_engines_of_a_test_do_not_do_it_another_is_there() {
        let all = ["fake", "docker", "podman", "embedded"].map(str::to_owned);
        let found = stand_ins("tool::create::s18_one", &all, Some(Part::Usual));
        assert_eq!(found[..2], ["fake", "embedded"]);
        assert!(["docker", "podman"].contains(&found[2].as_str()), "{found:?}");
        assert_eq!(stand_ins("tool::create::s18_one", &all, None), [""; 0]);
        assert_eq!(stand_ins("tool::create::s18_one", &all[3..], Some(Part::Usual)), ["embedded"]);
    }

    #[test]
    fn without_a_part_or_with_one_engine_nothing_is_left_out() {
        let all = ["fake", "docker", "podman", "embedded", "container"];
        for test in ["conformance::exec::one", "escapes::copies::one", "tool::create::s18_one"] {
            assert_eq!(of(test, &all, None), all.join(" "));
            let only = engines_of(test, all.map(str::to_owned).into(), Some(Part::Usual), Some(EngineKind::Docker));
            assert_eq!(only, ["fake", "docker"]);
        }
        for named in [&["fake", "podman"][..], &["fake"], &["embedded-rootless"]] {
            assert_eq!(of("tool::create::s18_one", named, Some(Part::Usual)), named.join(" "));
        }
        let without_root = ["fake", "embedded", "embedded-rootless"];
        assert_eq!(of("escapes::copies::one", &without_root, Some(Part::Usual)), without_root.join(" "));
    }
}
