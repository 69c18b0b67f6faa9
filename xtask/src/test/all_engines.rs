//! The last run of everything on every engine, for `cargo xtask scenarios`.
//!
//! It is a file of the target directory: a run belongs to one machine, and a commit cannot name itself.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use super::ran::Runs;
use crate::sh::{sh, target};

pub(super) fn note(engines: &[String], runs: &Runs, passed: bool, took: Duration) -> Result<()> {
    let commit = sh("git", ["rev-parse", "HEAD"]).read().unwrap_or_default();
    let is_changed = sh("git", ["status", "--porcelain"]).read().is_ok_and(|it| !it.is_empty());
    let date = sh("date", ["--utc", "+%FT%RZ"]).read().unwrap_or_default();
    let failed = runs.outcomes().filter(|(_, _, passed)| !passed).count();
    let note = json!({
        "date": date,
        "commit": commit,
        "is_changed": is_changed,
        "engines": engines,
        "passed": passed,
        "tests_on_engines": runs.outcomes().count(),
        "failed_on_engines": failed,
        "seconds": took.as_secs(),
    });
    fs::create_dir_all(target().join("scenarios"))?;
    fs::write(file(), format!("{note:#}\n"))?;
    Ok(())
}

/// The note of the last one.
pub(crate) fn last() -> Option<Value> {
    serde_json::from_str(&fs::read_to_string(file()).ok()?).ok()
}

/// One line for a person.
pub(crate) fn summary(note: Option<&Value>) -> String {
    let Some(note) = note else {
        return "`cargo xtask test --all-engines` was not run here".to_owned();
    };
    let text = |key: &str| note[key].as_str().unwrap_or("?").to_owned();
    let passed = if note["passed"] == true { "passed" } else { "failed" };
    let changed = if note["is_changed"] == true { " with changes" } else { "" };
    let commit: String = text("commit").chars().take(12).collect();
    let engines: Vec<&str> = note["engines"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    format!(
        "`cargo xtask test --all-engines` last {passed}: {}, commit {commit}{changed}, {} s, on fake, {}",
        text("date"),
        note["seconds"],
        engines.join(", ")
    )
}

fn file() -> PathBuf {
    target().join("scenarios/all-engines.json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_run_is_one_line() {
        let note = json!({ "date": "2026-01-02T03:04Z", "commit": "0123456789abcdef", "is_changed": true,
            "engines": ["docker", "podman"], "passed": true, "seconds": 1800 });
        assert_eq!(
            summary(Some(&note)),
            "`cargo xtask test --all-engines` last passed: 2026-01-02T03:04Z, commit 0123456789ab with changes, 1800 s, \
             on fake, docker, podman"
        );
        assert!(summary(None).contains("was not run here"));
    }
}
