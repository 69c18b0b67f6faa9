//! The rules that hold across files: layers, places for dangerous calls, nothing forgotten. Each is a pure function,
//! tried on the project and on a planted violation that it has to find.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

/// Crate, and the crates of the project that it may know.
const LAYERS: &[(&str, &[&str])] = &[
    ("guest", &[]),
    ("runtime", &["guest"]),
    ("lifecycle", &["runtime"]),
    ("provision", &["runtime"]),
    ("images", &["runtime"]),
    ("compose", &["runtime"]),
    ("jobs", &["runtime"]),
    ("workspace", &["runtime"]),
    ("sandbox", &["runtime"]),
    ("worker", &["guest", "runtime", "workspace", "sandbox"]),
    ("tool", &["runtime", "lifecycle", "provision", "images", "compose", "jobs", "workspace", "sandbox"]),
];

/// Packages at the end of every arrow: they may know all or none, and nobody knows them.
const TESTS: &str = "coracle-tests";
const XTASK: &str = "xtask";

/// Where programs are started, and where the environment is read and threads may wait.
const SPAWNING: &[&str] = &["crates/runtime/src/host/process.rs", "xtask/src/sh.rs"];
const ENVIRONMENT: &[&str] =
    &["crates/guest/src/main.rs", "crates/tool/src/host.rs", "crates/worker/src/main.rs", "xtask/src/sh.rs"];

/// Where the bytes of a secret are used, and how often in each file: keys of labels, and frames to a guest.
const REVEALING: &[(&str, usize)] = &[
    // Keys of HMAC.
    ("crates/runtime/src/labels.rs", 3),
    // What a guest is given.
    ("crates/runtime/src/link/session.rs", 3),
    ("crates/runtime/src/link/relay.rs", 1),
    // What a program is given on a descriptor, and how long that is.
    ("crates/runtime/src/link/command.rs", 2),
    // What the proxy knows a sandbox by.
    ("crates/worker/src/llm/http.rs", 1),
    // The proxy: keys and credentials on their way out, and looked for in what comes back.
    ("crates/sandbox/src/proxy/grants.rs", 1),
    ("crates/sandbox/src/proxy/model/mod.rs", 2),
    ("crates/sandbox/src/proxy/model/scrub.rs", 2),
    ("crates/sandbox/src/proxy/git/mod.rs", 4),
    // What files are searched for.
    ("crates/runtime/src/link/walk.rs", 1),
    // What is looked for in texts, to take it out.
    ("crates/runtime/src/redact/mod.rs", 1),
    // The environment of the person's own GitHub program.
    ("crates/runtime/src/host/gh.rs", 1),
    // What no variable can hold, what a profile says, and what may stand in a record.
    ("crates/provision/src/env/select.rs", 1),
    ("crates/provision/src/env/session.rs", 3),
    // The lines of a key, to look for them in files.
    ("crates/provision/src/ssh.rs", 1),
    // The search path, and the address of a proxy.
    ("crates/tool/src/ops/create/person.rs", 1),
    ("crates/tool/src/ops/create/bench.rs", 1),
    // What the person's own git is started with, and what is remembered of a token.
    ("crates/tool/src/sandbox/home.rs", 1),
    ("crates/tool/src/sandbox/devcontainer/record.rs", 1),
    ("crates/sandbox/src/container/mod.rs", 2),
    ("crates/sandbox/src/container/prepare.rs", 1),
];

/// A file of the project: its path from the root, and its text.
#[derive(Clone, Debug)]
struct Source {
    path: String,
    text: String,
}

fn source(path: &str, text: &str) -> Source {
    Source { path: path.to_owned(), text: text.to_owned() }
}

// --- layers ---

fn layer(package: &str) -> Option<&str> {
    if package == "coracle" { Some("tool") } else { package.strip_prefix("coracle-") }
}

fn wrong_arrows(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("cargo names the packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|it| it["name"].as_str()).collect();
    let mut faults = vec![];
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let arrows = package["dependencies"].as_array().expect("a package lists its dependencies");
        let known: Vec<&str> =
            arrows.iter().filter_map(|it| it["name"].as_str()).filter(|it| names.contains(it)).collect();
        let allowed = match name {
            TESTS => continue,
            XTASK => Some(&[][..]),
            _ => layer(name).and_then(|layer| LAYERS.iter().find(|(it, _)| *it == layer)).map(|(_, allowed)| *allowed),
        };
        let Some(allowed) = allowed else {
            faults.push(format!("{name}: has no place in LAYERS"));
            continue;
        };
        let bad = known.iter().filter(|it| **it != name && !layer(it).is_some_and(|it| allowed.contains(&it)));
        faults.extend(bad.map(|it| format!("{name} may not know {it}")));
    }
    faults
}

#[test]
fn crates_know_only_what_lies_below() {
    assert_eq!(wrong_arrows(&metadata(".")), Vec::<String>::new());
}

#[test]
fn a_wrong_arrow_is_found() {
    let package = |name: &str, knows: &[&str]| {
        let knows: Vec<Value> = knows.iter().map(|it| json!({ "name": it })).collect();
        json!({ "name": name, "dependencies": knows })
    };
    let packages = [
        package("coracle-runtime", &["serde", "coracle-tests"]),
        package("coracle-images", &["coracle-runtime", "coracle-lifecycle"]),
        package("coracle-lifecycle", &["coracle-runtime", "xtask"]),
        package("coracle", &["coracle-images", "coracle-lifecycle"]),
        package("coracle-common", &[]),
        package("coracle-tests", &["coracle", "coracle-runtime"]),
        package("xtask", &["coracle-runtime"]),
    ];
    assert_eq!(
        wrong_arrows(&json!({ "packages": packages })),
        [
            "coracle-runtime may not know coracle-tests",
            "coracle-images may not know coracle-lifecycle",
            "coracle-lifecycle may not know xtask",
            "coracle-common: has no place in LAYERS",
            "xtask may not know coracle-runtime",
        ]
    );
}

// --- places ---

/// What no file may hold, or only some; in code, not in remarks and texts.
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
    let imported = code.lines().any(|it| it.contains("process::{") && has_word(it, "Command"));
    let spawns =
        (outside_tests.contains("process::Command") && !outside_tests.contains("process::CommandExt")) || imported;
    forbid("starts programs", spawns, is_test || SPAWNING.contains(&path));
    let reads =
        ["env::var(", "env::var_os(", "env::vars(", "env::vars_os("].iter().any(|it| outside_tests.contains(it));
    forbid("reads the environment", reads, is_test || ENVIRONMENT.contains(&path));
    let waived = outside_tests.contains("disallowed_methods");
    forbid("lifts a ban", waived, is_test || SPAWNING.contains(&path) || ENVIRONMENT.contains(&path));
    // The played engine is a process of its own, without a runtime that this could block.
    let may_sleep = ["xtask/src/sh.rs", "tests/programs/container/faults.rs"].contains(&path);
    forbid("sleeps in a thread", code.contains("thread::sleep"), may_sleep);
    forbid("is unsafe", has_word(&code, "unsafe"), path.starts_with("crates/guest/"));
    forbid("ignores a test", code.contains("#[ignore"), false);
    forbid("silences a lint without a reason", code.contains("#[allow(") || code.contains("#![allow("), false);
    forbid("is not done", code.contains("todo!") || code.contains("unimplemented!"), false);
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
        ("crates/images/src/pull.rs", "let it = std::process::Command::new(\"docker\");", "starts programs"),
        ("crates/images/src/pull.rs", "use tokio::process::{Child, Command};", "starts programs"),
        ("crates/images/src/pull.rs", "let it = std::env::var(\"HOME\");", "reads the environment"),
        ("crates/tool/src/call.rs", "#[expect(clippy::disallowed_methods, reason = \"why\")]", "lifts a ban"),
        ("tests/crash.rs", "std::thread::sleep(second);", "sleeps in a thread"),
        ("crates/runtime/src/host/fs.rs", "unsafe { close(3) }", "is unsafe"),
        ("tests/crash.rs", "#[ignore = \"slow\"]\nfn it() {}", "ignores a test"),
        ("tests/crash.rs", "#![allow(dead_code)]", "silences a lint without a reason"),
        ("crates/jobs/src/read.rs", "fn read() { todo!() }", "is not done"),
        ("crates/jobs/src/utils.rs", "", "has a name that names nothing"),
        ("crates/jobs/src/common/page.rs", "", "has a name that names nothing"),
    ] {
        assert_eq!(misplaced(&source(path, text)), [format!("{path}: {fault}")]);
    }
}

#[test]
fn a_call_in_its_place_and_a_word_in_a_text_are_fine() {
    for (path, text) in [
        ("crates/runtime/src/host/process.rs", "tokio::process::Command::new(program)"),
        ("crates/tool/src/host.rs", "std::env::vars_os()"),
        ("crates/tool/src/cli.rs", "use std::process::ExitCode;\nclap::Command::new(\"coracle\")"),
        ("crates/guest/src/start.rs", "unsafe { fork() }"),
        ("crates/jobs/src/read.rs", "// todo!() and unsafe\nlet it = \"std::env::var(\"; let c = '\"'; // #[ignore]"),
        ("crates/jobs/src/quote.rs", "fn quote() {}\n#[cfg(test)]\nmod tests {\n    use std::process::Command;\n}"),
    ] {
        assert_eq!(misplaced(&source(path, text)), Vec::<String>::new());
    }
}

/// Files outside tests that call `reveal` otherwise than [`REVEALING`] says.
fn revealing(files: &[Source]) -> Vec<String> {
    let shipped = files.iter().filter(|it| it.path.starts_with("crates/") && !it.path.contains("/tests/"));
    let counted = shipped.map(|it| (&it.path, without_unit_tests(&code(&it.text)).matches(".reveal()").count()));
    let allowed = |path: &str| REVEALING.iter().find(|it| it.0 == path).map_or(0, |it| it.1);
    let wrong = counted.filter(|(path, count)| *count != allowed(path));
    wrong.map(|(path, count)| format!("{path}: reveals {count} times, not {}", allowed(path))).collect()
}

#[test]
fn secrets_are_revealed_only_where_their_bytes_are_used() {
    assert_eq!(revealing(&rust_files()), Vec::<String>::new());
}

#[test]
fn a_secret_that_is_revealed_elsewhere_is_found() {
    let files = [
        source("crates/jobs/src/read.rs", "let it = secret.reveal(); // not .reveal()"),
        source("crates/jobs/src/wait.rs", "#[cfg(test)]\nmod tests { fn it() { secret.reveal() } }"),
        source("crates/runtime/src/labels.rs", ""),
    ];
    let expected =
        ["crates/jobs/src/read.rs: reveals 1 times, not 0", "crates/runtime/src/labels.rs: reveals 0 times, not 3"];
    assert_eq!(revealing(&files), expected);
}

// --- nothing forgotten ---

/// Rust files of one package that no `mod` reaches from its roots.
fn forgotten(files: &[Source], roots: &[String]) -> Vec<String> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<String> = roots.to_vec();
    while let Some(path) = next.pop() {
        let Some(file) = files.iter().find(|it| it.path == path) else { continue };
        if reached.insert(path.clone()) {
            next.extend(modules(file, roots.contains(&path)));
        }
    }
    files
        .iter()
        .filter(|it| !reached.contains(&it.path))
        .map(|it| format!("{}: no `mod` leads here", it.path))
        .collect()
}

/// The paths where the modules that a file declares may lie.
fn modules(file: &Source, is_root: bool) -> Vec<String> {
    let (folder, name) = file.path.rsplit_once('/').unwrap_or(("", &file.path));
    let beside = is_root || name == "mod.rs";
    let own = if beside { folder.to_owned() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) };
    let mut found = vec![];
    let mut given: Option<&str> = None;
    for line in file.text.lines().map(str::trim) {
        if let Some(path) = line.strip_prefix("#[path = \"").and_then(|it| it.strip_suffix("\"]")) {
            given = Some(path);
        } else if let Some(name) = declared_module(line) {
            match given.take() {
                Some(path) => found.push(format!("{folder}/{path}")),
                None => found.extend([format!("{own}/{name}.rs"), format!("{own}/{name}/mod.rs")]),
            }
        }
    }
    found
}

fn declared_module(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("mod ")
        .or_else(|| line.strip_prefix("pub").and_then(|it| it.split_once("mod ")).map(|it| it.1));
    let name = rest?.split_once(';')?.0.trim();
    name.chars().all(|it| it.is_alphanumeric() || it == '_').then_some(name)
}

/// The roots that cargo compiles, of all packages.
fn roots(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("cargo names the packages");
    let targets = packages.iter().flat_map(|it| it["targets"].as_array().expect("a package lists its targets"));
    let base = format!("{}/", root().display());
    let path = |it: &Value| it["src_path"].as_str().and_then(|it| it.strip_prefix(&base)).map(str::to_owned);
    targets.filter_map(path).collect()
}

#[test]
fn every_file_is_compiled() {
    let roots = [roots(&metadata(".")), roots(&metadata("fuzz"))].concat();
    assert_eq!(forgotten(&rust_files(), &roots), Vec::<String>::new());
}

#[test]
fn a_forgotten_file_is_found() {
    let files = [
        source("tests/main.rs", "mod conformance;\npub(crate) mod cli;\n#[path = \"odd/place.rs\"]\nmod odd;"),
        source("tests/cli.rs", "mod deep;"),
        source("tests/cli/deep.rs", ""),
        source("tests/conformance/mod.rs", "mod names;"),
        source("tests/conformance/names.rs", ""),
        source("tests/conformance/limits.rs", ""),
        source("tests/odd/place.rs", ""),
        source("tests/mcp.rs", ""),
    ];
    let faults = forgotten(&files, &["tests/main.rs".to_owned()]);
    assert_eq!(faults, ["tests/conformance/limits.rs: no `mod` leads here", "tests/mcp.rs: no `mod` leads here"]);
}

/// Pages of the book that neither the book's table nor the README links.
fn unlinked(pages: &[Source], readme: &str) -> Vec<String> {
    let tables: Vec<&Source> = pages.iter().filter(|it| it.path.ends_with("/README.md")).collect();
    let linked = |page: &Source| {
        let in_table = |table: &&Source| {
            let folder = table.path.trim_end_matches("README.md");
            page.path.strip_prefix(folder).is_some_and(|it| table.text.contains(&format!("({it}")))
        };
        readme.contains(&format!("({}", page.path)) || tables.iter().any(in_table)
    };
    pages.iter().filter(|it| !linked(it)).map(|it| format!("{}: nothing links it", it.path)).collect()
}

#[test]
fn every_page_is_linked() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    let pages: Vec<Source> = files(&["md"]).into_iter().filter(|it| it.path.starts_with("docs/")).collect();
    assert_eq!(unlinked(&pages, &readme), Vec::<String>::new());
}

#[test]
fn an_unlinked_page_is_found() {
    let pages = [
        source("docs/README.md", "[one](architecture.md), [two](decisions/0001-guest.md)"),
        source("docs/architecture.md", ""),
        source("docs/decisions/0001-guest.md", ""),
        source("docs/engines.md", ""),
    ];
    assert_eq!(unlinked(&pages, "[the book](docs/README.md)"), ["docs/engines.md: nothing links it"]);
}

// --- nothing of the place where it was written ---

fn homely(source: &Source) -> Vec<String> {
    // Put together here, so that this file does not find itself.
    let words =
        [["/work", "/main"], ["/work", "/shared"], ["/work", "/.library"], [".lib", "rary/"]].map(|it| it.concat());
    let found = words.iter().filter(|it| source.text.contains(*it));
    found.map(|it| format!("{}: names `{it}`, a place on one machine", source.path)).collect()
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    let all = files(&["rs", "md", "toml", "py", "sh", "json", "yml", "yaml", "snap", "txt", ""]);
    let faults: Vec<String> = all.iter().flat_map(homely).collect();
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_place_on_one_machine_is_found() {
    assert_eq!(homely(&source("README.md", &["see /work", "/main/README"].concat())).len(), 1);
}

// --- reading ---

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("xtask lies in the project's root")
}

#[expect(clippy::disallowed_methods, reason = "cargo alone knows the packages, and nothing else is started here")]
/// What cargo knows of the workspace in a directory.
fn metadata(workspace: &str) -> Value {
    let words = ["metadata", "--no-deps", "--offline", "--format-version", "1"];
    let output = std::process::Command::new(env!("CARGO"))
        .args(words)
        .current_dir(root().join(workspace))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo answers in JSON")
}

fn rust_files() -> Vec<Source> {
    let files = files(&["rs"]);
    assert!(files.iter().any(|it| it.path == "xtask/src/main.rs"), "the search finds this project");
    files
}

/// The project's files with one of those endings; what is built or fetched is not the project's.
fn files(endings: &[&str]) -> Vec<Source> {
    let (mut found, mut folders) = (vec![], vec![root().to_path_buf()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).expect("a folder can be read").flatten().map(|it| it.path()) {
            let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_symlink() || [".git", "target", "node_modules"].contains(&name.as_str()) {
                continue;
            }
            if path.is_dir() {
                folders.push(path);
            } else if endings.contains(&path.extension().unwrap_or_default().to_string_lossy().as_ref()) {
                found.extend(fs::read_to_string(&path).map(|text| Source { path: relative(&path), text }));
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    found
}

fn relative(path: &Path) -> String {
    let path: PathBuf = path.strip_prefix(root()).expect("a file of the project").to_path_buf();
    path.to_string_lossy().into_owned()
}

fn has_word(text: &str, word: &str) -> bool {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|it| it == word)
}

/// Up to the unit tests, which stand last in a file.
fn without_unit_tests(code: &str) -> &str {
    code.split("#[cfg(test)]\nmod ").next().unwrap_or_default()
}

/// The text without remarks and without what stands in quotes.
fn code(text: &str) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |it| it + 2)
        } else if c == '"' {
            quoted(rest)
        } else if c == 'r' && !kept.ends_with(|it: char| it.is_alphanumeric() || it == '_') {
            raw(rest)
        } else if c == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped == 0 {
            kept.push(c);
            rest = &rest[c.len_utf8()..];
        } else {
            rest = &rest[skipped..];
        }
    }
    kept
}

/// The length of a text in quotes.
fn quoted(rest: &str) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of `r"…"` or `r#"…"#`; 0 for a name that begins with `r`.
fn raw(rest: &str) -> usize {
    let hashes = rest[1..].bytes().take_while(|it| *it == b'#').count();
    let Some(inside) = rest[1 + hashes..].strip_prefix('"') else { return 0 };
    let end = format!("\"{}", "#".repeat(hashes));
    inside.find(&end).map_or(rest.len(), |it| 2 + hashes + it + end.len())
}

/// The length of a character in quotes; 0 for a lifetime.
fn character(rest: &str) -> usize {
    let inside = &rest[1..];
    if let Some(escaped) = inside.strip_prefix('\\') {
        return escaped.char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(0, |(at, _)| at + 3);
    }
    let first = inside.chars().next().map_or(0, char::len_utf8);
    if inside[first..].starts_with('\'') { first + 2 } else { 0 }
}

#[test]
fn code_is_told_from_remarks_and_texts() {
    let text = "a /* b */ c // d\n'\"' '\\'' '\\u{1f600}' &'a str \"e \\\" f\" r#\"g \" h\"# r\"i\" var\"j\" k";
    assert_eq!(code(text), "a  c \n   &'a str    var k");
}
