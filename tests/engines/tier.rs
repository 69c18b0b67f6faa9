//! Selects the engines of a test among the named ones.
//!
//! The contract of the engines, the guest's tests and those of session containers run on all of them. What is above is
//! tried end to end: with `CORACLE_TEST_DAY` on the fake and on one of the others, which a hash of the test's name and
//! the day choose, so that each has its turn on the next day. `cargo xtask test` sets the day.

use coracle_runtime::EngineKind;
use sha2::{Digest, Sha256};

use super::person::ROOTLESS;
use super::variable;

/// Modules whose tests run on each engine every time.
const ON_EACH: &[&str] = &["conformance", "engines", "fake", "guest", "session_containers", "scripted"];

/// The engines of which an end-to-end test meets one a day.
const IN_TURN: &[&str] = &["docker", "podman"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tier {
    /// Runs on each engine.
    Contract,
    /// Runs on the fake, and on one engine a day.
    EndToEnd,
}

impl Tier {
    /// The tier of a test, by its module.
    pub(super) fn of(test: &str) -> Self {
        let module = test.split("::").next().unwrap_or_default();
        if ON_EACH.contains(&module) { Self::Contract } else { Self::EndToEnd }
    }

    /// Its name in notes.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Contract => "contract",
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
    let fits = |it: &String| only.is_none_or(|kind| it == "fake" || it == kind.as_str());
    let named: Vec<String> = named.into_iter().filter(fits).collect();
    let (Some(day), Tier::EndToEnd) = (day, Tier::of(test)) else { return named };
    let in_turn: Vec<&String> = named.iter().filter(|it| IN_TURN.contains(&it.as_str())).collect();
    let turn = u64::from(Sha256::digest(test)[0]) + day;
    let chosen = usize::try_from(turn).ok().and_then(|it| in_turn.get(it.checked_rem(in_turn.len())?)).copied();
    // Podman without root runs only if it is named; the simulated `container` has to keep the contract.
    named.iter().filter(|it| *it == "fake" || *it == ROOTLESS || Some(*it) == chosen).cloned().collect()
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
    fn the_contract_without_a_day_or_one_engine_leaves_nothing_to_choose() {
        let all = ["fake", "docker", "podman", "container"];
        assert_eq!(of("conformance::exec::one", &all, Some(1)), all.join(" "));
        assert_eq!(of(TEST, &all, None), all.join(" "));
        for day in [1, 2] {
            assert_eq!(of(TEST, &["fake", "podman"], Some(day)), "fake podman");
            assert_eq!(of(TEST, &["fake"], Some(day)), "fake");
            let only = engines_of(TEST, all.map(str::to_owned).into(), Some(day), Some(EngineKind::Docker));
            assert_eq!(only, ["fake", "docker"]);
        }
    }
}
