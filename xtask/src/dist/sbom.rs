//! The bill of materials: every crate that is compiled into the programs of a release or runs while they are built, and what
//! is linked that is no crate, as CycloneDX 1.5 without serial number and time.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::{Map, Value, json};

use super::components::Component;
use crate::sh::{root, sh};

/// The program of a release.
const PROGRAM: &str = "coracle-cli";

/// The programs that it carries for containers, on every platform, and the targets that those are built for.
const CARRIED: &[&str] = &["coracle-guest", "coracle-worker"];
const CARRIED_FOR: [&str; 2] = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"];

/// The crates of a release.
#[derive(Debug)]
pub(super) struct Materials {
    /// As `cargo metadata` writes it; it has other crates too.
    metadata: Value,
    sums: BTreeMap<String, String>,
    /// `name@version` of each crate.
    names: BTreeSet<String>,
}

impl Materials {
    /// Those for a target of the compiler.
    pub(super) fn new(target: &str) -> Result<Self> {
        let platforms = [target].into_iter().chain(CARRIED_FOR).flat_map(|it| ["--filter-platform", it]);
        let words = ["metadata", "--format-version", "1", "--locked"];
        let metadata = sh("cargo", words.into_iter().chain(platforms)).read()?;
        let metadata = serde_json::from_str(&metadata)?;
        let lock = fs::read_to_string(root().join("Cargo.lock")).context("read Cargo.lock")?;
        let mut names = crates(&[PROGRAM], target)?;
        for target in CARRIED_FOR {
            names.extend(crates(CARRIED, target)?);
        }
        Ok(Self { metadata, sums: checksums(&lock), names })
    }

    /// What `cargo metadata` says about each of them.
    pub(super) fn packages(&self) -> impl Iterator<Item = &Value> {
        let packages = self.metadata["packages"].as_array().into_iter().flatten();
        packages.filter(|it| name_of(it).is_some_and(|name| self.names.contains(&name)))
    }
}

/// The text for a version of the program.
pub(super) fn text(version: &str, materials: &Materials, components: &[Component]) -> String {
    format!("{:#}\n", bill(version, materials, components))
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

fn bill(version: &str, materials: &Materials, linked: &[Component]) -> Value {
    let listed: BTreeMap<&str, (String, &Value)> =
        materials.packages().filter_map(|it| Some((it["id"].as_str()?, (name_of(it)?, it)))).collect();
    let by_name: BTreeMap<&str, &Value> = listed.values().map(|it| (it.0.as_str(), it.1)).collect();
    let crates = by_name.iter().map(|(name, it)| component(name, it, materials.sums.get(*name)));
    let components: Vec<Value> = crates.chain(linked.iter().map(Component::entry)).collect();
    let leaf = |it: &Component| (it.purl(), json!({ "ref": it.purl(), "dependsOn": [] }));
    let mut edges: BTreeMap<String, Value> = linked.iter().map(leaf).collect();
    for node in materials.metadata["resolve"]["nodes"].as_array().into_iter().flatten() {
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

pub(super) fn name_of(package: &Value) -> Option<String> {
    Some(format!("{}@{}", package["name"].as_str()?, package["version"].as_str()?))
}

/// Its expression, which old manifests write with `/`.
pub(super) fn licence(package: &Value) -> Option<String> {
    package["license"].as_str().map(|it| it.replace('/', " OR "))
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
    if let Some(expression) = licence(package) {
        it.insert("licenses".into(), json!([{ "expression": expression }]));
    }
    if let Some(sum) = sum {
        it.insert("hashes".into(), json!([{ "alg": "SHA-256", "content": sum }]));
    }
    Value::Object(it)
}
