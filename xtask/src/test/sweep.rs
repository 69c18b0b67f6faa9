//! Removes leftovers of tests from the engines, all of one kind by one program.
//!
//! A test removes what it made. One that was ended from outside could not, so a run begins and ends with this. What
//! another run uses stays: the label's value begins with the process that made it, and that has to be gone. What our own
//! tests shared begins with ours.

use std::env::temp_dir;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use crate::engines::embedded;
use crate::engines::rootless::Person;
use crate::sh::{sh, target};

/// The label of tests (`tests/engines/mod.rs`).
const LABEL: &str = "coracle-test.run";

/// Programs of engines, which are for root as well as for its tests. A person without root has containers of their own.
const SWEPT: &[&str] = &["docker", "podman"];

/// Kinds of leftovers, in the order of removal, and the commands that list and remove them.
const KINDS: &[(&[&str], &[&str])] = &[
    (&["container", "ls", "--all"], &["container", "rm", "--force", "--volumes"]),
    (&["network", "ls"], &["network", "rm"]),
    (&["volume", "ls"], &["volume", "rm"]),
    (&["image", "ls", "--all"], &["image", "rm", "--force"]),
];

/// What data directories of the embedded engine begin with (`tests/engines/embedded.rs`); a run's name follows.
const ENGINE_DATA: &str = "coracle-test-engine-";

/// What their control groups begin with.
const ENGINE_GROUP: &str = "coracle-";

/// `run` names ours, whose tests have a directory in common (`tests/engines/pool.rs`).
pub(super) fn run(engines: &[String], run: &str) {
    let _ = fs::remove_dir_all(temp_dir().join(format!("coracle-test-pool-{run}")));
    for engine in engines.iter().filter(|it| SWEPT.contains(&it.as_str())) {
        for (list, remove) in KINDS {
            let left = left(engine, list);
            if left.is_empty() {
                continue;
            }
            println!("  {engine} had {} left by tests: `{engine} {}`", left.len(), remove.join(" "));
            let words = remove.iter().copied().map(str::to_owned).chain(left);
            if let Err(error) = sh(engine, words).read() {
                println!("  {error:#}");
            }
        }
    }
}

/// Removes data directories of the embedded engine whose runs are over, with all that is in them. Done by the user whose they
/// are, since files of other users of a container are that user's to remove.
pub(super) fn run_embedded(engines: &[String]) {
    if engines.iter().any(|it| it == embedded::NAME) {
        sweep_data(&temp_dir(), None);
    }
    sweep_groups(Path::new("/sys/fs/cgroup"));
    if let Some(person) = Person::find().filter(|_| engines.iter().any(|it| it == embedded::ROOTLESS)) {
        sweep_data(&person.temp_dir(), Some(&person));
    }
}

/// Removes the control groups that engines share their containers' groups under: one for each data directory, and a test's is
/// gone. One with containers in it is busy, and an engine makes its own again.
fn sweep_groups(mounts: &Path) {
    let entries = |dir: &Path| fs::read_dir(dir).into_iter().flatten().flatten().map(|it| it.path());
    // Version 2 alone has its groups at the top.
    for hierarchy in entries(mounts).chain([mounts.to_owned()]) {
        let is_ours = |it: &PathBuf| it.file_name().is_some_and(|it| it.to_string_lossy().starts_with(ENGINE_GROUP));
        for group in entries(&hierarchy).filter(is_ours) {
            let _ = fs::remove_dir(group);
        }
    }
}

fn sweep_data(temp: &Path, person: Option<&Person>) {
    for dir in ended_data(temp) {
        let (program, word) = (target().join("debug/embedded-engine"), dir.to_string_lossy().into_owned());
        let swept = match person {
            Some(person) => person.runs(&program.to_string_lossy(), &[&word, "sweep"]),
            None => sh(&program, [&*word, "sweep"]),
        };
        let swept = swept.read().and_then(|it| Ok(fs::remove_dir_all(&dir).map(|()| it)?));
        match swept {
            Ok(report) if report.is_empty() => {}
            Ok(report) => println!("{report}"),
            Err(error) => println!("  {}: {error:#}", dir.display()),
        }
    }
}

/// Those whose run is over. One that no run made stays for the next test, as the images of other engines are.
fn ended_data(temp: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(temp).into_iter().flatten().flatten();
    let ended = |it: &fs::DirEntry| {
        let name = it.file_name().to_string_lossy().into_owned();
        let run = name.strip_prefix(ENGINE_DATA)?;
        let begins_with_process = run.split('-').next()?.parse::<u32>().is_ok();
        (begins_with_process && !is_running(run)).then(|| it.path())
    };
    entries.filter_map(|it| ended(&it)).collect()
}

/// The ids of a kind that tests left.
fn left(engine: &str, list: &[&str]) -> Vec<String> {
    let filter = format!("--filter=label={LABEL}");
    let listed = sh(engine, list.iter().copied().chain(["--quiet", &filter])).read().unwrap_or_default();
    let ids: Vec<&str> = listed.split_whitespace().collect();
    if ids.is_empty() {
        return vec![];
    }
    let inspected = sh(engine, [list[0], "inspect"].into_iter().chain(ids)).output();
    let inspected = inspected.map(|it| it.stdout).unwrap_or_default();
    let Ok(all) = serde_json::from_slice::<Vec<Value>>(&inspected) else { return vec![] };
    all.iter().filter(|it| run_of(it).is_some_and(|it| !is_running(it))).filter_map(id_of).collect()
}

/// The value of the tests' label: each engine has labels, and ids, elsewhere and spelt otherwise.
fn run_of(it: &Value) -> Option<&str> {
    [&it["Config"]["Labels"], &it["Labels"], &it["labels"]].into_iter().find_map(|it| it[LABEL].as_str())
}

fn id_of(it: &Value) -> Option<String> {
    ["Id", "ID", "id", "Name"].into_iter().find_map(|key| it[key].as_str()).map(str::to_owned)
}

/// Whether a running process still uses that value.
fn is_running(run: &str) -> bool {
    let process = run.split('-').next().unwrap_or_default();
    process != std::process::id().to_string() && Path::new("/proc").join(process).exists()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn data_of_a_run_that_is_over_is_found() {
        let temp = std::env::temp_dir().join(format!("xtask-sweep-{}", std::process::id()));
        for name in ["coracle-test-engine-0-17", "coracle-test-engine-1-17", "coracle-test-engine-of-0", "other"] {
            fs::create_dir_all(temp.join(name)).expect("a directory");
        }
        let found = ended_data(&temp);
        fs::remove_dir_all(&temp).expect("it can be removed");
        assert_eq!(found, [temp.join("coracle-test-engine-0-17")]);
    }

    #[test]
    fn empty_groups_of_engines_are_removed_in_each_hierarchy() {
        let mounts = std::env::temp_dir().join(format!("xtask-groups-{}", std::process::id()));
        let all = ["memory/coracle-a", "memory/coracle-b/c", "memory/other", "coracle-d"];
        all.iter().for_each(|it| fs::create_dir_all(mounts.join(it)).expect("a directory"));
        sweep_groups(&mounts);
        let left = all.map(|it| mounts.join(it).exists());
        fs::remove_dir_all(&mounts).expect("it can be removed");
        assert_eq!(left, [false, true, true, false]);
    }

    #[test]
    fn labels_and_ids_are_found_as_each_engine_spells_them() {
        let ours = format!("{}-00", std::process::id());
        let all = [
            json!({ "Id": "a", "Config": { "Labels": { LABEL: "1-00" } } }),
            json!({ "id": "b", "labels": { LABEL: "0-00" } }),
            json!({ "Name": "c", "Labels": { LABEL: ours } }),
            json!({ "Id": "d", "Config": { "Labels": null }, "Labels": null }),
        ];
        let found = all.each_ref().map(|it| (id_of(it), run_of(it).map(is_running)));
        let id = |it: &str| Some(it.to_owned());
        assert_eq!(found, [(id("a"), Some(true)), (id("b"), Some(false)), (id("c"), Some(false)), (id("d"), None)]);
    }
}
