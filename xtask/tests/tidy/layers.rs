//! Allowed dependencies between crates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::project::metadata;

/// Crates below the engines, which every crate from `runtime` upwards may know.
const FOUNDATION: &[&str] = &["protocol", "types", "host", "archive", "client"];

/// The first crate that may know all of [`FOUNDATION`]; those before it list theirs.
const FIRST_ABOVE_FOUNDATION: &str = "runtime";

/// Crate, and the crates of the project that it may know.
const LAYERS: &[(&str, &[&str])] = &[
    ("skips", &[]),
    ("protocol", &[]),
    ("guest", &["protocol"]),
    ("types", &["protocol"]),
    ("http", &[]),
    ("audit", &["types", "host"]),
    ("host", &["types"]),
    ("archive", &["types"]),
    ("client", &["protocol", "types"]),
    ("runtime", &["guest"]),
    ("engine-program", &["runtime"]),
    ("docker", &["runtime", "engine-program"]),
    ("apple", &["runtime", "engine-program"]),
    ("engine", &["runtime"]),
    ("kube", &["runtime"]),
    ("lifecycle", &["runtime"]),
    ("provision", &["runtime"]),
    ("images", &["runtime"]),
    ("devcontainer", &["http"]),
    ("compose", &["runtime"]),
    ("jobs", &["runtime"]),
    ("proxy", &["http"]),
    ("workspace", &["runtime", "lifecycle"]),
    ("worktrees", &["runtime", "lifecycle"]),
    ("sandbox", &["runtime", "devcontainer", "proxy", "lifecycle", "worktrees"]),
    ("worker", &["guest", "workspace", "sandbox"]),
    (
        "context",
        &[
            "runtime",
            "engine-program",
            "docker",
            "apple",
            "engine",
            "kube",
            "lifecycle",
            "provision",
            "audit",
            "images",
            "compose",
            "jobs",
            "proxy",
            "workspace",
            "sandbox",
            "worktrees",
        ],
    ),
    (
        "prepare",
        &[
            "runtime",
            "engine",
            "lifecycle",
            "provision",
            "images",
            "compose",
            "devcontainer",
            "proxy",
            "workspace",
            "worktrees",
            "sandbox",
            "context",
        ],
    ),
    (
        "tool",
        &[
            "runtime",
            "audit",
            "lifecycle",
            "provision",
            "images",
            "compose",
            "jobs",
            "proxy",
            "workspace",
            "devcontainer",
            "worktrees",
            "sandbox",
            "context",
            "prepare",
        ],
    ),
    ("transport", &["context", "prepare", "tool"]),
    ("telemetry", &["context", "tool", "transport"]),
    ("mcp", &["runtime", "workspace", "context", "prepare", "tool", "transport"]),
    ("serve", &["context", "prepare", "tool", "transport"]),
    ("e2b", &["context", "prepare", "tool", "transport"]),
    ("ui", &["lifecycle", "context", "prepare", "tool", "transport"]),
    ("ssh", &["context", "tool"]),
    // A cluster for tests, whose containers are those of an engine of ours.
    ("kube-api", &["runtime", "engine"]),
    // `coracle mcp` starts the server: an agent's configuration names one program.
    (
        "cli",
        &[
            "runtime",
            "lifecycle",
            "workspace",
            "sandbox",
            "worktrees",
            "context",
            "prepare",
            "tool",
            "transport",
            "telemetry",
            "mcp",
            "serve",
            "e2b",
            "ui",
            "ssh",
            "docker",
        ],
    ),
];

/// Packages at the end of every arrow: they may depend on all or none, and no other package depends on them.
const TESTS: &str = "coracle-tests";
const XTASK: &str = "xtask";

/// The crate that all may use in their tests.
const SKIPS: &str = "coracle-skips";

fn layer(package: &str) -> Option<&str> {
    if package == "coracle" { Some("tool") } else { package.strip_prefix("coracle-") }
}

/// The crates that a crate may know; `None` for a crate without a place.
fn allowed_for(layer: &str) -> Option<Vec<&'static str>> {
    let place = |name: &str| LAYERS.iter().position(|(crate_name, _)| *crate_name == name);
    let own = place(layer)?;
    let foundation = if place(FIRST_ABOVE_FOUNDATION) <= Some(own) { FOUNDATION } else { &[] };
    Some([LAYERS[own].1, foundation].concat())
}

fn wrong_arrows(metadata: &Value) -> Vec<String> {
    let packages = metadata["packages"].as_array().expect("cargo names the packages");
    let names: BTreeSet<&str> = packages.iter().filter_map(|it| it["name"].as_str()).collect();
    let mut faults = vec![];
    for package in packages {
        let name = package["name"].as_str().expect("a package has a name");
        let arrows = package["dependencies"].as_array().expect("a package lists its dependencies");
        let of_tests = |it: &&Value| it["kind"] == "dev" && it["name"] == SKIPS && name != XTASK;
        let arrows = arrows.iter().filter(|it| !of_tests(it)).filter_map(|it| it["name"].as_str());
        let known: Vec<&str> = arrows.filter(|it| names.contains(it)).collect();
        let allowed = match name {
            TESTS => continue,
            XTASK => Some(Vec::new()),
            _ => layer(name).and_then(allowed_for),
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
