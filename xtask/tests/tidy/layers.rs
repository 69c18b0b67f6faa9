//! Allowed dependencies between crates.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::project::metadata;

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
    ("runtime", &["protocol", "guest", "types", "archive", "host", "client"]),
    ("engine-program", &["protocol", "types", "host", "archive", "client", "runtime"]),
    ("docker", &["protocol", "types", "host", "archive", "client", "runtime", "engine-program"]),
    ("apple", &["protocol", "types", "host", "archive", "client", "runtime", "engine-program"]),
    ("engine", &["protocol", "types", "host", "client", "runtime"]),
    ("kube", &["protocol", "types", "host", "client", "runtime"]),
    ("lifecycle", &["runtime"]),
    ("provision", &["runtime"]),
    ("images", &["runtime"]),
    ("devcontainer", &["types", "http", "client"]),
    ("compose", &["runtime"]),
    ("jobs", &["runtime"]),
    ("proxy", &["protocol", "types", "host", "http", "client"]),
    ("workspace", &["runtime", "lifecycle"]),
    ("worktrees", &["types", "host", "runtime", "lifecycle"]),
    ("sandbox", &["types", "host", "runtime", "devcontainer", "proxy", "lifecycle", "worktrees"]),
    ("worker", &["protocol", "guest", "runtime", "workspace", "sandbox"]),
    (
        "context",
        &[
            "types",
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
            "devcontainer",
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
            "types",
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
            "types",
            "runtime",
            "audit",
            "lifecycle",
            "provision",
            "images",
            "compose",
            "jobs",
            "workspace",
            "devcontainer",
            "worktrees",
            "sandbox",
            "context",
            "prepare",
        ],
    ),
    ("transport", &["runtime", "context", "prepare", "tool"]),
    ("telemetry", &["context", "tool", "transport"]),
    ("mcp", &["runtime", "workspace", "context", "prepare", "tool", "transport"]),
    ("serve", &["context", "prepare", "tool", "transport"]),
    ("ui", &["runtime", "lifecycle", "context", "prepare", "tool", "transport"]),
    ("ssh", &["runtime", "context", "tool"]),
    // A cluster for tests, whose containers are those of an engine of ours.
    ("kube-api", &["runtime", "engine"]),
    // `coracle mcp` starts the server: an agent's configuration names one program.
    (
        "cli",
        &[
            "types",
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
            "ui",
            "ssh",
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
