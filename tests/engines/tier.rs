//! Selects the engines of a test among the named ones.
//!
//! With `CORACLE_TEST_SUBSET`, which `cargo xtask test` sets, a test runs on a part of them that its name alone
//! decides, so that two runs of one commit do the same. The contract of the engines, the guest's tests and those of
//! session containers run on the fake and the embedded engine, and a quarter each on Docker and on Podman. An
//! end-to-end test runs on the fake or on the embedded engine, and one in 24 each also on Docker, Podman and the
//! embedded engine without root. A test that the fake cannot do runs on the embedded engine. Of the slow tests, a tenth
//! of all with half of the time, one in four runs. `cargo xtask test --all-engines` runs each test on all.
//!
//! A cluster keeps the contract in each run. Of the tool's tests a twelfth of those in [`ON_CLUSTER`] runs there; the
//! others need what a cluster lacks, or are the same code on every engine: they meet one that alone is named.

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

/// The engines that a part of the tests runs on.
const IN_PART: &[&str] = &["docker", "podman"];

/// One end-to-end test of this many runs on each of these engines.
const ONE_IN: usize = 24;

/// One end-to-end test in so many meets a cluster.
const CLUSTER_ONE_IN: usize = 12;

/// Modules of end-to-end tests that meet a cluster.
const ON_CLUSTER: &[&str] = &["tool::exec", "tool::jobs", "tool::copy", "tool::kubernetes"];

/// Tests that take long, the longest first: a run of `cargo xtask test --all-engines` that passes writes the file.
const SLOW: &str = include_str!("slow.txt");

/// One of so many of them runs.
const SLOW_ONE_IN: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Runs on the fake and the embedded engine, and a quarter each on Docker and Podman.
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

/// Whether a test runs on its part of the named engines, and not on all of them.
pub(super) fn is_subset() -> bool {
    variable("CORACLE_TEST_SUBSET").is_some_and(|value| !value.is_empty())
}

/// The engines of a test among those that are named, given the only real one that it is about, if there is one.
pub(super) fn engines_of(test: &str, named: Vec<String>, is_subset: bool, only: Option<EngineKind>) -> Vec<String> {
    let fits = |engine: &String| only.is_none_or(|kind| engine == FAKE || engine == kind.as_str());
    let named: Vec<String> = named.into_iter().filter(fits).collect();
    let has_embedded = named.iter().any(|engine| engine == EMBEDDED);
    if !is_subset || only.is_some() || !has_embedded {
        let is_alone = named.iter().all(|engine| engine == FAKE || engine == KUBERNETES);
        let meets_cluster = is_alone || only.is_some() || is_for_cluster(test);
        return named.into_iter().filter(|engine| engine != KUBERNETES || meets_cluster).collect();
    }
    let (tier, number) = (Tier::of(test), number_of(test));
    let in_part = [IN_PART[0], IN_PART[1], EMBEDDED_ROOTLESS].get(number % ONE_IN).copied();
    let on_embedded = number.is_multiple_of(2);
    let of_contract = [Some(IN_PART[0]), None, Some(IN_PART[1]), None][number % 4];
    let is_run = |engine: &str| match (tier, engine) {
        (_, KUBERNETES) => is_of_cluster(test),
        // The simulated `container` has to keep the contract. Podman without root runs only if it is named.
        (_, ROOTLESS) => true,
        (Tier::Contract, _) => !IN_PART.contains(&engine) || of_contract == Some(engine),
        (Tier::Embedded, FAKE | EMBEDDED | EMBEDDED_ROOTLESS) => true,
        (Tier::EndToEnd, FAKE) => !on_embedded,
        (Tier::EndToEnd, EMBEDDED) => on_embedded,
        _ => in_part == Some(engine),
    };
    named.into_iter().filter(|engine| is_run(engine)).collect()
}

/// Whether a test runs at all. Neighbours of the list take about as long.
pub(super) fn is_run(test: &str, is_subset: bool) -> bool {
    let place = SLOW.lines().position(|slow| slow == test);
    !is_subset || place.is_none_or(|place| place.is_multiple_of(SLOW_ONE_IN))
}

/// The number by which a test's engines are chosen.
fn number_of(test: &str) -> usize {
    usize::from(Sha256::digest(test)[0])
}

/// Whether a test that is about clusters alone runs.
pub(crate) fn meets_a_cluster(test: &str) -> bool {
    !is_subset() || is_of_cluster(test)
}

/// Whether a test of a subset meets a cluster.
fn is_of_cluster(test: &str) -> bool {
    is_contract(test) || (number_of(test).is_multiple_of(CLUSTER_ONE_IN) && is_for_cluster(test))
}

fn is_for_cluster(test: &str) -> bool {
    is_contract(test) || ON_CLUSTER.iter().any(|module| test.starts_with(module))
}

fn is_contract(test: &str) -> bool {
    test.starts_with("conformance::")
}

/// The engines that a test of a subset meets one after the other until one does what it is about, where its own do not: the
/// fake and the embedded one, then Docker or Podman.
pub(super) fn stand_ins(test: &str, named: &[String], is_subset: bool) -> Vec<String> {
    if !is_subset {
        return Vec::new();
    }
    let first = named.iter().filter(|engine| [FAKE, EMBEDDED].contains(&engine.as_str()));
    let in_part: Vec<&String> = named.iter().filter(|engine| IN_PART.contains(&engine.as_str())).collect();
    let chosen = (number_of(test) / 2).checked_rem(in_part.len()).map(|at| in_part[at]);
    first.chain(chosen).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(test: &str, named: &[&str], is_subset: bool) -> String {
        let named = named.iter().copied().map(str::to_owned).collect();
        engines_of(test, named, is_subset, None).join(" ")
    }

    /// Of a thousand tests of a module, how many run on each of the named engines.
    fn counts(module: &str, named: &[&str]) -> Vec<usize> {
        let runs: Vec<String> = (0..1000).map(|at| of(&format!("{module}::t{at}"), named, true)).collect();
        let count = |engine: &&str| runs.iter().filter(|run| run.split(' ').any(|name| name == *engine)).count();
        named.iter().map(count).collect()
    }

    #[test]
    fn an_end_to_end_test_runs_on_the_fake_or_the_embedded_engine_and_a_few_on_the_others() {
        let [fake, docker, podman, embedded, container, rootless] =
            counts("tool", &["fake", "docker", "podman", "embedded", "container", "embedded-rootless"])[..]
        else {
            panic!("six engines")
        };
        assert_eq!((fake + embedded, container), (1000, 0));
        assert!((400..600).contains(&fake), "{fake}");
        assert!(
            [docker, podman, rootless].iter().all(|count| (25..60).contains(count)),
            "{docker} {podman} {rootless}"
        );
    }

    #[test]
    fn the_contract_meets_docker_and_podman_in_a_quarter_of_its_tests_each() {
        let [fake, docker, podman, embedded, container] =
            counts("conformance", &["fake", "docker", "podman", "embedded", "container"])[..]
        else {
            panic!("five engines")
        };
        assert_eq!([fake, embedded, container], [1000; 3]);
        assert!([docker, podman].iter().all(|count| (200..300).contains(count)), "{docker} {podman}");
    }

    #[test]
    fn a_cluster_keeps_the_contract_and_meets_a_few_others() {
        let all = ["fake", "embedded", "kubernetes"];
        assert_eq!(of("conformance::exec::one", &all, true), all.join(" "));
        for other in ["guest::ending", "session_containers", "tool::create"] {
            assert_eq!(counts(other, &all)[2], 0, "{other}");
            assert_eq!(of(&format!("{other}::one"), &all, false), "fake embedded");
            assert_eq!(of(&format!("{other}::one"), &["fake", "kubernetes"], false), "fake kubernetes");
        }
        assert_eq!(of("tool::exec::one", &all, false), all.join(" "));
        assert!((50..120).contains(&counts("tool::exec", &all)[2]));
    }

    #[test]
    fn one_slow_test_in_four_runs() {
        let all = SLOW.lines().count();
        assert_eq!(SLOW.lines().filter(|test| is_run(test, true)).count(), all.div_ceil(SLOW_ONE_IN));
        assert_eq!(SLOW.lines().filter(|test| is_run(test, false)).count(), all);
        assert!(is_run("tool::create::s18_one", true));
    }

    #[test]
    fn where_the_engines_of_a_test_do_not_do_it_another_is_there() {
        let all = ["fake", "docker", "podman", "embedded"].map(str::to_owned);
        let found = stand_ins("tool::create::s18_one", &all, true);
        assert_eq!(found[..2], ["fake", "embedded"]);
        assert!(IN_PART.contains(&found[2].as_str()), "{found:?}");
        assert_eq!(stand_ins("tool::create::s18_one", &all, false), [""; 0]);
        assert_eq!(stand_ins("tool::create::s18_one", &all[3..], true), ["embedded"]);
    }

    #[test]
    fn without_a_subset_or_with_one_engine_nothing_is_left_out() {
        let all = ["fake", "docker", "podman", "embedded", "container"];
        for test in ["conformance::exec::one", "escapes::copies::one", "tool::create::s18_one"] {
            assert_eq!(of(test, &all, false), all.join(" "));
            let only = engines_of(test, all.map(str::to_owned).into(), true, Some(EngineKind::Docker));
            assert_eq!(only, ["fake", "docker"]);
        }
        for named in [&["fake", "podman"][..], &["fake"], &["embedded-rootless"]] {
            assert_eq!(of("tool::create::s18_one", named, true), named.join(" "));
        }
        let without_root = ["fake", "embedded", "embedded-rootless"];
        assert_eq!(of("escapes::copies::one", &without_root, true), without_root.join(" "));
    }
}
