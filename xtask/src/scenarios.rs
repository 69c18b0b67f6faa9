//! `cargo xtask scenarios`: which numbered scenarios of the specification have a test, and on which engines it ran.
//!
//! A test belongs to the scenarios that its name begins with: `s17_…`, `x28_x29_…`, and in later families `w…`, `r…`, `x…`.
//! When it has run on an engine, the tests' harness adds a line `<id> <engine> <ok>` to `scenarios/ran.txt` in the target
//! directory; `<ok>` is `ok` or `failed`, and of several lines for one engine the last counts. Tests that ended otherwise
//! are known from the last run of `cargo xtask test`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use serde_json::{Value, json};

use crate::sh::{root, target};
use crate::test::{Runs, all_engines};

#[derive(Debug, Default)]
struct Scenario {
    tests: Vec<String>,
    /// Engine, and whether the last run on it went well.
    engines: BTreeMap<String, bool>,
}

/// By family and number, so that `s9` sorts before `s17`.
type Scenarios = BTreeMap<(char, u32), Scenario>;

pub(crate) fn run(words: &[String]) -> Result<()> {
    let as_json = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => false,
        ["--json"] => true,
        _ => bail!("usage: cargo xtask scenarios [--json]"),
    };
    let mut scenarios = Scenarios::new();
    for file in sources(root())? {
        tests_of(&fs::read_to_string(file)?, &mut scenarios);
    }
    runs_of(&fs::read_to_string(target().join("scenarios/ran.txt")).unwrap_or_default(), &mut scenarios);
    for (test, engine, passed) in Runs::noted().outcomes() {
        last_run_of(test, engine, passed, &mut scenarios);
    }
    let all = all_engines::last();
    if as_json {
        let mut json = to_json(&scenarios);
        json["all_engines"] = all.unwrap_or_default();
        println!("{json:#}");
    } else {
        print(&scenarios);
        println!("{}", all_engines::summary(all.as_ref()));
    }
    Ok(())
}

/// The Rust files of the tests and of the crates.
pub(crate) fn sources(root: &Path) -> Result<Vec<PathBuf>> {
    let (mut files, mut folders) = (vec![], vec![root.join("tests"), root.join("crates")]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs") {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

fn tests_of(text: &str, scenarios: &mut Scenarios) {
    for line in text.lines() {
        let declared = line.trim_start().trim_start_matches("pub ").trim_start_matches("async ");
        let Some(name) = declared.strip_prefix("fn ").and_then(|it| it.split(['(', '<']).next()) else { continue };
        for id in ids(name) {
            scenarios.entry(id).or_default().tests.push(name.to_owned());
        }
    }
}

fn runs_of(text: &str, scenarios: &mut Scenarios) {
    for line in text.lines() {
        let [id, engine, ok] = line.split_whitespace().collect::<Vec<_>>()[..] else { continue };
        if let Some(id) = parse(id) {
            scenarios.entry(id).or_default().engines.insert(engine.to_owned(), ok == "ok");
        }
    }
}

/// A test of several modules, which begins with its numbers.
fn last_run_of(test: &str, engine: &str, passed: bool, scenarios: &mut Scenarios) {
    for id in ids(test.rsplit("::").next().unwrap_or_default()) {
        scenarios.entry(id).or_default().engines.insert(engine.to_owned(), passed);
    }
}

/// The scenarios at the beginning of a name; the rest is the name of the test.
fn ids(name: &str) -> Vec<(char, u32)> {
    let Some((first, _)) = name.rsplit_once('_') else { return Vec::new() };
    first.split('_').map_while(parse).collect()
}

/// `s17`: a letter and at least two digits.
fn parse(id: &str) -> Option<(char, u32)> {
    let family = id.chars().next().map(|it| it.to_ascii_lowercase()).filter(|it| "swrx".contains(*it))?;
    let digits = &id[1..];
    let all = digits.len() >= 2 && digits.bytes().all(|it| it.is_ascii_digit());
    if all { Some((family, digits.parse().ok()?)) } else { None }
}

fn print(scenarios: &Scenarios) {
    println!("{:5} {:72} ran on", "id", "test");
    for ((family, number), scenario) in scenarios {
        let ran: Vec<String> = scenario
            .engines
            .iter()
            .map(|(engine, ok)| if *ok { engine.clone() } else { format!("{engine} (failed)") })
            .collect();
        let id = format!("{}{number}", family.to_ascii_uppercase());
        let first = scenario.tests.first().map_or("no such test any more", String::as_str);
        println!("{id:5} {first:72} {}", if ran.is_empty() { "-".to_owned() } else { ran.join(", ") });
        for other in scenario.tests.iter().skip(1) {
            println!("{:5} {other}", "");
        }
    }
    let tested = scenarios.values().filter(|it| !it.tests.is_empty()).count();
    let ran = scenarios.values().filter(|it| it.engines.values().any(|ok| *ok)).count();
    let failed = scenarios.values().filter(|it| it.engines.values().any(|ok| !ok)).count();
    println!("{tested} scenarios have a test; {ran} passed on an engine, {failed} failed on one");
}

fn to_json(scenarios: &Scenarios) -> Value {
    let all = scenarios.iter().map(|((family, number), scenario)| {
        let id = format!("{}{number}", family.to_ascii_uppercase());
        json!({ "id": id, "tests": scenario.tests, "engines": scenario.engines })
    });
    json!({ "scenarios": all.collect::<Vec<_>>() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_and_runs_meet_at_the_number() {
        let mut found = Scenarios::new();
        tests_of(
            "    async fn s07_names(cx: &Cx) {}\nfn s17_twice() {}\nfn setup_all() {}\nfn s1_short() {}\nfn x28_x29_both() {}\nfn x30_as_x31_says() {}",
            &mut found,
        );
        runs_of("s07 docker failed\ns07 docker ok\ns07 podman failed\nnonsense\n", &mut found);
        last_run_of("tool::one::x28_x29_both", "docker", false, &mut found);
        runs_of("X30 podman ok\n", &mut found);
        assert_eq!(to_json(&found)["scenarios"][3]["engines"], json!({ "docker": false }));
        assert_eq!(to_json(&found)["scenarios"][4]["engines"], json!({ "podman": true }));
        assert_eq!(found.keys().collect::<Vec<_>>(), [&('s', 7), &('s', 17), &('x', 28), &('x', 29), &('x', 30)]);
        assert_eq!(
            to_json(&found)["scenarios"][0],
            json!({ "id": "S7", "tests": ["s07_names"], "engines": { "docker": true, "podman": false } })
        );
    }
}
