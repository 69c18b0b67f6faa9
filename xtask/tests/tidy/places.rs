//! Calls that only some files may hold. `clippy.toml` bans starting programs, reading the environment and blocking a thread
//! everywhere; where such a ban is lifted is checked here.

use structure::text::{code, has_word, without_unit_tests};

use super::project::{Source, rust_files, source};

/// Files that may start programs or read the environment.
const LIFTING: &[&str] = &[
    "crates/cli/build.rs",
    "crates/guest/src/main.rs",
    "crates/guest/src/os/main_program.rs",
    "crates/host/src/process.rs",
    "crates/skips/src/lib.rs",
    "crates/context/build.rs",
    "crates/context/src/host.rs",
    "crates/worker/src/main.rs",
    "xtask/src/sh.rs",
];

/// Processes of their own and threads for blocking calls, without a runtime that this could block.
const SLEEPING: &[&str] = &[
    "crates/engine/src/container/exec/tree.rs",
    "crates/guest/tests/pid_1.rs",
    "tests/programs/container/faults.rs",
    "xtask/src/sh.rs",
];

/// Directories whose files make system calls that no library has.
const UNSAFE: &[&str] = &["crates/engine/src/sys/", "crates/guest/"];

/// Banned code of a file; comments and texts may name it.
fn misplaced(source: &Source) -> Vec<String> {
    let code = code(&source.text);
    let outside_tests = without_unit_tests(&code);
    let path = source.path.as_str();
    let is_test = path.starts_with("tests/") || path.contains("/tests/");
    let mut faults = vec![];
    let mut forbid = |what: &str, found: bool, allowed: bool| {
        if found && !allowed {
            faults.push(format!("{path}: {what}"));
        }
    };
    let waived = outside_tests.contains("disallowed_methods");
    let may_sleep = SLEEPING.contains(&path);
    forbid("lifts a ban", waived, is_test || may_sleep || LIFTING.contains(&path));
    forbid("sleeps in a thread", code.contains("thread::sleep"), may_sleep);
    forbid("is unsafe", has_word(&code, "unsafe"), UNSAFE.iter().any(|it| path.starts_with(it)));
    forbid("ignores a test", code.contains("#[ignore"), false);
    forbid("silences a lint without a reason", code.contains("#[allow(") || code.contains("#![allow("), false);
    let names_nothing = |it: &str| ["utils", "util", "common", "helpers", "misc"].contains(&it.trim_end_matches(".rs"));
    forbid("has a name that names nothing", path.split('/').any(names_nothing), false);
    faults
}

#[test]
fn dangerous_calls_stay_in_their_places() {
    let faults: Vec<String> = rust_files().iter().flat_map(misplaced).collect();
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_misplaced_call_is_found() {
    for (path, text, fault) in [
        ("crates/cli/src/call.rs", "#[expect(clippy::disallowed_methods, reason = \"why\")]", "lifts a ban"),
        ("tests/crash.rs", "std::thread::sleep(second);", "sleeps in a thread"),
        ("crates/host/src/fs.rs", "unsafe { close(3) }", "is unsafe"),
        ("tests/crash.rs", "#[ignore = \"slow\"]\nfn it() {}", "ignores a test"),
        ("tests/crash.rs", "#![allow(dead_code)]", "silences a lint without a reason"),
        ("crates/jobs/src/utils.rs", "", "has a name that names nothing"),
        ("crates/jobs/src/common/page.rs", "", "has a name that names nothing"),
    ] {
        assert_eq!(misplaced(&source(path, text)), [format!("{path}: {fault}")]);
    }
}

#[test]
fn a_call_in_its_place_and_a_word_in_a_text_are_fine() {
    for (path, text) in [
        ("crates/host/src/process.rs", "#![expect(clippy::disallowed_methods, reason = \"why\")]"),
        ("crates/guest/src/start.rs", "unsafe { fork() }"),
        ("crates/jobs/src/read.rs", "// unsafe\nlet it = \"thread::sleep\"; let c = '\"'; // #[ignore]"),
        (
            "crates/jobs/src/quote.rs",
            "fn quote() {}\n#[cfg(test)]\nmod tests {\n    #![expect(clippy::disallowed_methods, reason = \"why\")]\n}",
        ),
    ] {
        assert_eq!(misplaced(&source(path, text)), Vec::<String>::new());
    }
}
