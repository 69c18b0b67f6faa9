//! The bill of materials: every crate that is compiled into the programs of a release or runs while they are built, as
//! CycloneDX 1.5 without serial number and time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use crate::sh::{root, sh};

/// The program of a release.
const PROGRAM: &str = "coracle-cli";

/// The programs that it carries for containers, on every platform, and the targets that those are built for.
const CARRIED: &[&str] = &["coracle-guest", "coracle-worker"];
const CARRIED_FOR: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The text for a target of the compiler.
pub(super) fn text(version: &str, target: &str) -> Result<String> {
    let platforms = [target].into_iter().chain(CARRIED_FOR).flat_map(|it| ["--filter-platform", it]);
    let words = ["metadata", "--format-version", "1", "--locked"];
    let metadata = sh("cargo", words.into_iter().chain(platforms)).read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let lock = fs::read_to_string(root().join("Cargo.lock")).context("read Cargo.lock")?;
    let mut names = crates(&[PROGRAM], target)?;
    for target in CARRIED_FOR {
        names.extend(crates(CARRIED, target)?);
    }
    let bill = bill(version, &Sources { metadata: &metadata, sums: checksums(&lock), names });
    Ok(format!("{bill:#}\n"))
}

/// What a bill is written from.
struct Sources<'a> {
    metadata: &'a Value,
    sums: BTreeMap<String, String>,
    /// `name@version` of each crate.
    names: BTreeSet<String>,
}

/// `name@version` of what programs for a target depend on, with the features that they are built with.
fn crates(programs: &[&str], target: &str) -> Result<BTreeSet<String>> {
    let words =
        ["tree", "--locked", "--edges", "normal,build", "--prefix", "none", "--format", "{p}", "--target", target];
    let packages = programs.iter().flat_map(|it| ["--package", *it]);
    let tree = sh("cargo", words.into_iter().chain(packages)).read()?;
    Ok(tree.lines().filter_map(crate_name).collect())
}

/// `name@version` of a line such as `name v1.2.3 (proc-macro) (*)`.
fn crate_name(line: &str) -> Option<String> {
    let (name, rest) = line.split_once(" v")?;
    Some(format!("{name}@{}", rest.split(' ').next()?))
}

/// The checksums of the registry's crates, by `name@version`.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let field = |block: &str, name: &str| {
        let line = block.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix(" = "))?;
        Some(line.trim_matches('"').to_owned())
    };
    let blocks = lock.split("[[package]]");
    let sum = |it: &str| Some((format!("{}@{}", field(it, "name")?, field(it, "version")?), field(it, "checksum")?));
    blocks.filter_map(sum).collect()
}

fn bill(version: &str, sources: &Sources<'_>) -> Value {
    let packages = sources.metadata["packages"].as_array().map(Vec::as_slice).unwrap_or_default();
    let listed: BTreeMap<&str, (String, &Value)> = packages
        .iter()
        .filter_map(|it| Some((it["id"].as_str()?, (name_of(it)?, it))))
        .filter(|it| sources.names.contains(&it.1.0))
        .collect();
    let by_name: BTreeMap<&str, &Value> = listed.values().map(|it| (it.0.as_str(), it.1)).collect();
    let components: Vec<Value> =
        by_name.iter().map(|(name, it)| component(name, it, sources.sums.get(*name))).collect();
    let mut edges = BTreeMap::new();
    for node in sources.metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
        let known = |it: &Value| listed.get(it.as_str()?).map(|it| purl(&it.0));
        let Some(from) = known(&node["id"]) else { continue };
        let to: BTreeSet<String> =
            node["deps"].as_array().into_iter().flatten().filter_map(|it| known(&it["pkg"])).collect();
        edges.insert(from.clone(), json!({ "ref": from, "dependsOn": to }));
    }
    let program = json!({
        "type": "application", "bom-ref": "coracle", "name": "coracle", "version": version,
        "licenses": [{ "expression": "MIT OR Apache-2.0" }],
    });
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
        "metadata": { "component": program },
        "components": components,
        "dependencies": edges.into_values().collect::<Vec<_>>(),
    })
}

fn name_of(package: &Value) -> Option<String> {
    Some(format!("{}@{}", package["name"].as_str()?, package["version"].as_str()?))
}

/// A `+` of a version would be read as a space.
fn purl(name: &str) -> String {
    format!("pkg:cargo/{}", name.replace('+', "%2B"))
}

fn component(name: &str, package: &Value, sum: Option<&String>) -> Value {
    let purl = purl(name);
    let mut it = Map::new();
    it.insert("type".into(), "library".into());
    it.insert("bom-ref".into(), purl.clone().into());
    it.insert("name".into(), package["name"].clone());
    it.insert("version".into(), package["version"].clone());
    it.insert("purl".into(), purl.into());
    if let Some(licence) = package["license"].as_str() {
        let expression = licence.replace('/', " OR "); // an old way to write it
        it.insert("licenses".into(), json!([{ "expression": expression }]));
    }
    if let Some(sum) = sum {
        it.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": sum }]));
    }
    Value::Object(it)
}
