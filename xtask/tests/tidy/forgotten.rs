//! No file that nothing compiles.

use std::collections::BTreeSet;

use serde_json::Value;

use super::project::{Source, metadata, root, rust_files, source};

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
    let roots = [".", "fuzz", "examples/embedder"].map(|it| roots(&metadata(it))).concat();
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
