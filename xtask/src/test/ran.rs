//! The engines that tests ran on: they note it themselves (`tests/engines/ran.rs`).

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::sh::target;

/// The result of a test on one engine, and its duration in milliseconds, all its checks together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Run {
    failed: bool,
    /// Whether some of it was for this engine.
    tried: bool,
    millis: u64,
}

/// By tier, test and engine.
#[derive(Debug, Default)]
pub(crate) struct Runs(BTreeMap<String, BTreeMap<String, BTreeMap<String, Run>>>);

impl Runs {
    /// Forgets those of an earlier run.
    pub(super) fn clear() {
        let _ = fs::remove_file(file());
    }

    /// Runs that were noted since.
    pub(crate) fn noted() -> Self {
        Self::parse(&fs::read_to_string(file()).unwrap_or_default())
    }

    /// A line is a test, its tier, an engine, an outcome and milliseconds.
    fn parse(text: &str) -> Self {
        let mut runs = Self::default();
        for line in text.lines() {
            let [test, tier, engine, outcome, millis] = line.split('\t').collect::<Vec<_>>()[..] else { continue };
            let tests = runs.0.entry(tier.to_owned()).or_default();
            let run = tests.entry(test.to_owned()).or_default().entry(engine.to_owned()).or_default();
            run.failed |= outcome == "failed";
            run.tried |= outcome != "left-out";
            run.millis += millis.parse::<u64>().unwrap_or_default();
        }
        runs
    }

    /// Each test with the engines that tried it, and whether it passed there.
    pub(crate) fn outcomes(&self) -> impl Iterator<Item = (&str, &str, bool)> {
        let tests = self.0.values().flatten();
        tests.flat_map(|(test, engines)| {
            let tried = engines.iter().filter(|(_, run)| run.tried);
            tried.map(|(engine, run)| (test.as_str(), engine.as_str(), !run.failed))
        })
    }

    /// Prints the number of tests of each engine in each tier, and the seconds that they waited for it.
    pub(super) fn print(&self) {
        let engines: BTreeSet<&str> =
            self.0.values().flat_map(BTreeMap::values).flat_map(BTreeMap::keys).map(String::as_str).collect();
        if engines.is_empty() {
            return;
        }
        println!("\ntests with an engine, and the seconds that they took together:");
        for (tier, tests) in &self.0 {
            println!("  {tier:11} {:5} tests", tests.len());
            for engine in &engines {
                let ran: Vec<&Run> = tests.values().filter_map(|it| it.get(*engine)).filter(|it| it.tried).collect();
                let seconds = ran.iter().map(|it| it.millis).sum::<u64>() / 1000;
                println!("    {engine:15} {:5} tests {seconds:6} s", ran.len());
            }
        }
        println!("  each test with its engines: {}", file().display());
    }

    /// Fails when a test met no engine that it is for. One that met the fake alone meets others with `--all-engines`.
    pub(super) fn check(&self) -> Result<()> {
        let tests = self.0.values().flatten();
        let is_nowhere =
            |it: &BTreeMap<String, Run>| it.values().all(|it| !it.tried) && it.keys().any(|it| it != "fake");
        let nowhere: Vec<&str> = tests.filter(|(_, it)| is_nowhere(it)).map(|(test, _)| test.as_str()).collect();
        if nowhere.is_empty() {
            return Ok(());
        }
        bail!("tests that no engine was for:\n  {}", nowhere.join("\n  "))
    }
}

fn file() -> PathBuf {
    target().join("scenarios/engines.txt")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_no_engine_was_for_is_named() {
        let runs = Runs::parse(
            "a\tcontract\tfake\tleft-out\t1\na\tcontract\tdocker\tok\t20\na\tcontract\tdocker\tleft-out\t3\nnonsense\n",
        );
        assert_eq!(runs.outcomes().collect::<Vec<_>>(), [("a", "docker", true)]);
        assert_eq!(runs.0["contract"]["a"]["docker"], Run { failed: false, tried: true, millis: 23 });
        assert!(runs.check().is_ok());
        let runs = Runs::parse("a\tend-to-end\tpodman\tleft-out\t1\nb\tend-to-end\tfake\tfailed\t1\n");
        assert_eq!(runs.check().expect_err("it ran nowhere").to_string(), "tests that no engine was for:\n  a");
        assert!(Runs::parse("a\tend-to-end\tfake\tleft-out\t1\n").check().is_ok());
    }
}
