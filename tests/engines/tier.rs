//! Selects the engines of a test among the named ones.
//!
//! The contract of the engines, the guest's tests and those of session containers run on all of them, with
//! `CORACLE_TEST_DAY` on Docker and on Podman one day in four each. The others are end-to-end tests: with `CORACLE_TEST_DAY`
//! they run one day on the fake and the next on the embedded engine, so a test that only real engines can do runs every
//! second day. On some days a test also runs on Docker, Podman or the embedded engine without root. The slow tests, a tenth
//! of all with half of the time, run one day in four. A hash of the test's name and the day choose. `cargo xtask test` sets
//! the day.
//!
//! A cluster keeps the contract in each run. Of the tool's tests those in [`ON_CLUSTER`] meet it on one day in a round; the
//! others need what a cluster lacks, or are the same code on every engine: they meet one that alone is named.

use coracle_runtime::EngineKind;
use sha2::{Digest, Sha256};

use super::kubernetes::KUBERNETES;
use super::person::{EMBEDDED_ROOTLESS, ROOTLESS};
use super::variable;

const EMBEDDED: &str = "embedded";

const FAKE: &str = "fake";

/// Modules whose tests run on each engine.
const ON_EACH: &[&str] = &["conformance", "engines", "fake", "guest", "isolation", "session_containers", "scripted"];

/// Modules about what is new with the embedded engine, with and without root: the others have their days.
const OF_THE_EMBEDDED: &[&str] = &["escapes"];

/// The engines that do what the embedded one may not, and that an end-to-end test meets in turn.
const IN_TURN: &[&str] = &["docker", "podman"];

/// Where tests meet the embedded engine each day, each of the others has its turn after so many days.
const ROUND: usize = 24;

/// Days after which an end-to-end test meets a cluster again.
const CLUSTER_ROUND: u64 = 12;

/// Modules of end-to-end tests that meet a cluster.
const ON_CLUSTER: &[&str] = &["tool::exec", "tool::jobs", "tool::copy", "tool::kubernetes"];

/// Tests that take long, the longest first: a run of `cargo xtask test --all-engines` that passes writes the file.
const SLOW: &str = include_str!("slow.txt");

/// Days after which such a test has its turn again.
const SLOW_ROUND: u64 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Runs on each engine; where the embedded one is, on Docker and Podman one day in four each.
    Contract,
    /// Runs on the embedded engine, also without root, and on the others in turn.
    Embedded,
    /// Runs on the fake and on the embedded engine by turns, and on the others and without root in turn.
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

/// The day that chooses, in days since 1970; without it a test runs on all engines that are named.
pub(super) fn day() -> Option<u64> {
    let day = variable("CORACLE_TEST_DAY").filter(|it| !it.is_empty())?;
    Some(day.parse().unwrap_or_else(|_| panic!("CORACLE_TEST_DAY is `{day}`, and not a number of days since 1970")))
}

/// The engines of a test among those that are named, given the only real one that it is about, if there is one.
pub(super) fn engines_of(test: &str, named: Vec<String>, day: Option<u64>, only: Option<EngineKind>) -> Vec<String> {
    let fits = |it: &String| only.is_none_or(|kind| it == FAKE || it == kind.as_str());
    let named: Vec<String> = named.into_iter().filter(fits).collect();
    let tier = Tier::of(test);
    let (Some(day), None) = (day, only) else {
        let is_alone = named.iter().all(|it| it == FAKE || it == KUBERNETES);
        let meets_cluster = is_alone || only.is_some() || is_for_cluster(test);
        return named.into_iter().filter(|it| it != KUBERNETES || meets_cluster).collect();
    };
    let has_embedded = named.iter().any(|it| it == EMBEDDED);
    let turn = turn_of(test, day);
    let meets_cluster = is_of_cluster(test, turn);
    let named: Vec<String> = named.into_iter().filter(|it| it != KUBERNETES || meets_cluster).collect();
    if tier == Tier::Contract {
        let today = [Some(IN_TURN[0]), None, Some(IN_TURN[1]), None][usize::try_from(turn % 4).unwrap_or(0)];
        let has_all = has_embedded && IN_TURN.iter().all(|engine| named.iter().any(|it| it == engine));
        let has_turn = |it: &str| !has_all || today == Some(it) || !IN_TURN.contains(&it);
        return named.into_iter().filter(|it| has_turn(it)).collect();
    }
    let is_in_turn = |it: &&String| IN_TURN.contains(&it.as_str()) || (has_embedded && *it == EMBEDDED_ROOTLESS);
    let in_turn: Vec<&String> = named.iter().filter(is_in_turn).collect();
    let round = if has_embedded { ROUND } else { in_turn.len() };
    let chosen = usize::try_from(turn).ok().and_then(|it| in_turn.get(it.checked_rem(round)?)).copied();
    // The simulated `container` has to keep the contract. Podman without root runs only if it is named.
    let daily = [KUBERNETES, ROOTLESS];
    let has_fake = named.iter().any(|it| it == FAKE);
    let runs_embedded = tier == Tier::Embedded || turn.is_multiple_of(2) || !has_fake;
    let runs_fake = tier == Tier::Embedded || !has_embedded || !runs_embedded;
    let runs_without_root = tier == Tier::Embedded || !has_embedded;
    let is_run = |it: &&String| {
        daily.contains(&it.as_str())
            || Some(*it) == chosen
            || (runs_fake && *it == FAKE)
            || (runs_embedded && *it == EMBEDDED)
            || (runs_without_root && *it == EMBEDDED_ROOTLESS)
    };
    named.iter().filter(is_run).cloned().collect()
}

/// Whether a test runs on that day at all.
pub(super) fn has_turn(test: &str, day: Option<u64>) -> bool {
    let place = place_of_slow(test).zip(day);
    place.is_none_or(|(place, day)| (place + day).is_multiple_of(SLOW_ROUND))
}

/// The place of a test among those that take long. Neighbours take about as long, so that days that take every fourth one
/// cost the same.
fn place_of_slow(test: &str) -> Option<u64> {
    SLOW.lines().zip(0..).find(|(it, _)| *it == test).map(|(_, place)| place)
}

/// The number by which a test's engines are chosen on that day: one more for each of its days, so that it meets them all.
fn turn_of(test: &str, day: u64) -> u64 {
    let round = place_of_slow(test).map_or(day, |place| (place + day) / SLOW_ROUND);
    u64::from(Sha256::digest(test)[0]) + round
}

/// Whether a test that is about clusters alone runs today.
pub(crate) fn meets_a_cluster(test: &str) -> bool {
    day().is_none_or(|day| is_of_cluster(test, turn_of(test, day)))
}

/// Whether a test meets a cluster on the day of that turn.
fn is_of_cluster(test: &str, turn: u64) -> bool {
    is_contract(test) || (turn.is_multiple_of(CLUSTER_ROUND) && is_for_cluster(test))
}

fn is_for_cluster(test: &str) -> bool {
    is_contract(test) || ON_CLUSTER.iter().any(|it| test.starts_with(it))
}

fn is_contract(test: &str) -> bool {
    test.starts_with("conformance::")
}

/// Whether what the fake does not do waits for the next day: that is the embedded engine's. What takes long has waited.
pub(super) fn waits_for_the_next_day(test: &str, named: &[String], day: Option<u64>) -> bool {
    let has_both = [FAKE, EMBEDDED].iter().all(|engine| named.iter().any(|it| it == engine));
    let is_of_the_fake = |day| !turn_of(test, day).is_multiple_of(2);
    has_both && Tier::of(test) == Tier::EndToEnd && place_of_slow(test).is_none() && day.is_some_and(is_of_the_fake)
}

/// The engines that a test meets one after the other until one does what it is about, where those of its day do not: the
/// fake and the embedded one, then another of those in turn every second day.
pub(super) fn stand_ins(test: &str, named: &[String], day: Option<u64>) -> Vec<String> {
    let Some(day) = day else { return Vec::new() };
    let first = named.iter().filter(|it| [FAKE, EMBEDDED].contains(&it.as_str()));
    let in_turn: Vec<&String> = named.iter().filter(|it| IN_TURN.contains(&it.as_str())).collect();
    // A test that waits every second day has every second turn alone.
    let turn = usize::try_from(turn_of(test, day) / 2).ok();
    let chosen = turn.and_then(|it| in_turn.get(it.checked_rem(in_turn.len())?).copied());
    first.chain(chosen).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEST: &str = "tool::create::s18_one";

    fn of(test: &str, named: &[&str], day: Option<u64>) -> String {
        let named = named.iter().copied().map(str::to_owned).collect();
        engines_of(test, named, day, None).join(" ")
    }

    #[test]
    fn an_end_to_end_test_meets_the_fake_each_day_and_each_engine_every_second_day() {
        let all = ["fake", "docker", "podman", "container"];
        let days = [20_000, 20_001, 20_002].map(|day| of(TEST, &all, Some(day)));
        assert_eq!(days, ["fake podman", "fake docker", "fake podman"].map(str::to_owned));
        let docker = (0..1000).filter(|it| of(&format!("tool::t{it}"), &all, Some(20_000)).contains("docker")).count();
        assert!((400..600).contains(&docker), "{docker} of 1000 on docker");
    }

    #[test]
    fn with_the_embedded_engine_each_day_the_others_have_one_in_a_round() {
        let all = ["fake", "docker", "podman", "embedded", "container"];
        let days: Vec<_> = (20_000..20_024).map(|day| of(TEST, &all, Some(day))).collect();
        assert!(days.iter().all(|it| it.starts_with("fake") != it.ends_with("embedded")), "{days:?}");
        assert!(days.windows(2).all(|it| it[0].ends_with("embedded") != it[1].ends_with("embedded")), "{days:?}");
        for engine in IN_TURN {
            assert_eq!(days.iter().filter(|it| it.contains(engine)).count(), 1, "{days:?}");
        }
        let on =
            |engine| (0..1000).filter(|it| of(&format!("tool::t{it}"), &all, Some(20_000)).contains(engine)).count();
        assert!((25..60).contains(&on("docker")) && (25..60).contains(&on("podman")));
    }

    #[test]
    fn with_the_embedded_engine_the_contract_meets_docker_and_podman_one_day_in_four() {
        let all = ["fake", "docker", "podman", "embedded", "container"];
        let days = [1, 2, 3, 4].map(|day| of("conformance::exec::one", &all, Some(day)));
        for engine in IN_TURN {
            assert_eq!(days.iter().filter(|it| it.contains(engine)).count(), 1, "{days:?}");
        }
        for day in days {
            assert!(!day.contains("docker podman"), "{day}");
            assert!(day.starts_with("fake ") && day.ends_with("embedded container"), "{day}");
        }
    }

    #[test]
    fn a_cluster_keeps_the_contract_each_day_and_meets_a_few_others_in_a_round() {
        let all = ["fake", "embedded", "kubernetes"];
        assert_eq!(of("conformance::exec::one", &all, Some(1)), all.join(" "));
        for other in ["guest::ending::one", "session_containers::one", TEST] {
            assert!((1..=24).all(|day| !of(other, &all, Some(day)).contains("kubernetes")), "{other}");
            assert_eq!(of(other, &all, None), "fake embedded");
            assert_eq!(of(other, &["fake", "kubernetes"], None), "fake kubernetes");
        }
        assert_eq!(of("tool::exec::one", &all, None), all.join(" "));
        let days = (1..=24).filter(|day| of("tool::exec::one", &all, Some(*day)).ends_with("kubernetes")).count();
        assert_eq!(days, 2);
    }

    #[test]
    fn a_test_that_takes_long_has_one_day_in_four_and_meets_the_engines_by_turns() {
        let slow = SLOW.lines().find(|it| Tier::of(it) == Tier::EndToEnd).expect("some take long");
        let days = |test: &str| (1..=24).filter(|day| has_turn(test, Some(*day))).collect::<Vec<_>>();
        assert_eq!((days(slow).len(), days(TEST).len()), (6, 24));
        assert!(has_turn(slow, None));
        let on: Vec<_> = days(slow).into_iter().map(|day| of(slow, &["fake", "embedded"], Some(day))).collect();
        assert!(on.windows(2).all(|it| it[0] != it[1]), "{on:?}");
        let each_day = (1..=4).map(|day| SLOW.lines().filter(|it| has_turn(it, Some(day))).count());
        assert!(each_day.clone().max().unwrap() <= each_day.min().unwrap() + 1);
    }

    #[test]
    fn what_only_real_engines_do_waits_for_the_embedded_one() {
        let all = ["fake", "docker", "embedded"].map(str::to_owned);
        let waits = |test, day| waits_for_the_next_day(test, &all, Some(day));
        for day in 1..=4 {
            assert_eq!(waits(TEST, day), of(TEST, &["fake", "embedded"], Some(day)) == "fake");
            assert!(!waits("conformance::exec::one", day) && !waits("escapes::one", day));
            assert!(!waits_for_the_next_day(TEST, &all[..2], Some(day)));
        }
        assert!(!waits_for_the_next_day(TEST, &all, None));
    }

    #[test]
    fn where_the_engines_of_a_day_do_not_do_it_another_is_there() {
        let all = ["fake", "docker", "podman", "embedded"].map(str::to_owned);
        let days = (20_000..20_004).filter(|day| !waits_for_the_next_day(TEST, &all, Some(*day)));
        let on: Vec<_> = days.map(|day| stand_ins(TEST, &all, Some(day))).collect();
        assert_eq!(on.len(), 2);
        assert!(on.iter().all(|it| it[..2] == ["fake", "embedded"] && IN_TURN.contains(&it[2].as_str())), "{on:?}");
        assert_ne!(on[0], on[1]);
        assert_eq!(stand_ins(TEST, &all, None), [""; 0]);
        assert_eq!(stand_ins(TEST, &all[3..], Some(1)), ["embedded"]);
    }

    #[test]
    fn the_contract_without_a_day_or_one_engine_leaves_nothing_to_choose() {
        let all = ["fake", "docker", "podman", "container"];
        assert_eq!(of("conformance::exec::one", &all, Some(1)), all.join(" "));
        assert_eq!(of(TEST, &all, None), all.join(" "));
        let without_root = ["fake", "embedded", "embedded-rootless"];
        assert_eq!(of("conformance::exec::one", &without_root, Some(1)), without_root.join(" "));
        assert_eq!(of("escapes::copies::one", &without_root, Some(1)), without_root.join(" "));
        let days: Vec<_> = (1..=24).map(|day| of(TEST, &without_root, Some(day))).collect();
        assert_eq!(days.iter().filter(|it| it.ends_with("embedded-rootless")).count(), 1, "{days:?}");
        assert_eq!(days.iter().filter(|it| it.contains("embedded")).count(), 12, "{days:?}");
        for day in [1, 2] {
            assert_eq!(of(TEST, &["fake", "embedded-rootless"], Some(day)), "fake embedded-rootless");
            assert_eq!(of(TEST, &["fake", "podman"], Some(day)), "fake podman");
            assert_eq!(of(TEST, &["fake"], Some(day)), "fake");
            let only = engines_of(TEST, all.map(str::to_owned).into(), Some(day), Some(EngineKind::Docker));
            assert_eq!(only, ["fake", "docker"]);
        }
    }
}
