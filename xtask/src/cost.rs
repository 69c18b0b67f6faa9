//! `cargo xtask cost [demo|release|test]`: what a build costs from nothing, in CPU seconds by package.
//!
//! Cargo starts a copy of this program in place of the compiler (`RUSTC_WRAPPER`). The copy starts the compiler and writes
//! down the time that it took. What cargo starts besides, such as build scripts, is the rest of the sum.

mod chain;
mod record;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result, bail, ensure};

pub(crate) use self::record::measure;
use self::record::{Compilation, children_seconds};
use crate::compiler::{self, Compiler};
use crate::sh::{root, sh, target};

/// The page that has a section for each build.
const PAGE: &str = "docs/compile-time.md";

/// Packages that the page lists.
const LISTED: usize = 20;

/// CPU seconds that the build of the demo may take, on the machine that the page names. A larger figure needs a reason, in
/// the commit that writes it.
const DEMO_BUDGET: f64 = 400.0;

/// A build whose cost is measured.
struct Build {
    name: &'static str,
    compiler: Compiler,
    words: &'static [&'static [&'static str]],
}

const BUILDS: &[Build] = &[
    Build { name: "demo", compiler: Compiler::Static, words: &[crate::demo::BUILD] },
    Build {
        name: "release",
        compiler: Compiler::Plain,
        words: &[
            &[
                "build",
                "--release",
                "--package",
                "coracle-guest",
                "--package",
                "coracle-worker",
                "--package",
                "coracle-cli",
                "--bin",
                "coracle-guest",
                "--bin",
                "coracle-worker",
            ],
            &["build", "--release", "--package", "coracle-cli"],
        ],
    },
    Build { name: "test", compiler: Compiler::Plain, words: &[&["build", "--workspace", "--bins", "--tests"]] },
];

pub(crate) fn run(words: &[String]) -> Result<()> {
    let name = match words {
        [] => "demo",
        [name] => name.as_str(),
        _ => bail!("usage: cargo xtask cost [demo|release|test]"),
    };
    let build = BUILDS.iter().find(|it| it.name == name).with_context(|| format!("no build `{name}`"))?;
    let cost = build.measure()?;
    let text = cost.text(build)?;
    println!("\n{text}");
    write_section(name, &text)?;
    let total = cost.total;
    ensure!(
        name != "demo" || total <= DEMO_BUDGET,
        "the demo's build takes {total:.0} CPU seconds, of {DEMO_BUDGET:.0}"
    );
    Ok(())
}

impl Build {
    /// Builds it in an empty directory.
    fn measure(&self) -> Result<Cost> {
        let dir = target().join("cost");
        let records = target().join("cost.tsv");
        let _ = (fs::remove_dir_all(&dir), fs::remove_file(&records)); // either may be missing
        let wrapper = compiler::copy(record::WRAPPER)?;
        let before = children_seconds()?;
        for words in self.words {
            let cargo = self.compiler.cargo(words)?.env("RUSTC_WRAPPER", &wrapper).env(record::FILE, &records);
            cargo.env("CARGO_TARGET_DIR", &dir).env("CARGO_INCREMENTAL", "0").run()?;
        }
        let total = children_seconds()? - before;
        fs::remove_dir_all(&dir)?;
        Ok(Cost { compilations: record::read(&records)?, total })
    }
}

/// What was measured.
struct Cost {
    compilations: Vec<Compilation>,
    /// CPU seconds of everything that cargo started.
    total: f64,
}

impl Cost {
    fn text(&self, build: &Build) -> Result<String> {
        let by_package = self.by_package();
        let compiled: f64 = by_package.values().sum();
        let own: f64 = by_package.iter().filter(|(name, _)| is_own(name)).map(|(_, cpu)| cpu).sum();
        let mut text = String::new();
        let commands: Vec<String> = build.words.iter().map(|it| format!("`cargo {}`", it.join(" "))).collect();
        writeln!(text, "{}: {:.0} CPU seconds.\n", commands.join(", "), self.total)?;
        writeln!(text, "| part | CPU seconds |\n|---|---|")?;
        writeln!(text, "| our packages | {own:.0} |")?;
        writeln!(text, "| other packages | {:.0} |", compiled - own)?;
        writeln!(text, "| build scripts and cargo | {:.0} |", self.total - compiled)?;
        let chain = chain::longest(&self.compilations);
        let seconds: f64 = chain.iter().map(|it| it.cpu).sum();
        let names: Vec<&str> = chain.iter().map(|it| it.package.as_str()).collect();
        writeln!(text, "\nLongest chain, {seconds:.0} CPU seconds: {}.\n", names.join(" → "))?;
        let mut packages: Vec<(&str, f64)> = by_package.into_iter().collect();
        packages.sort_by(|a, b| b.1.total_cmp(&a.1));
        writeln!(text, "| package | CPU seconds |\n|---|---|")?;
        for (name, cpu) in packages.iter().take(LISTED) {
            writeln!(text, "| `{name}` | {cpu:.1} |")?;
        }
        if build.name == "release" {
            self.features(&mut text)?;
        }
        Ok(text)
    }

    fn by_package(&self) -> BTreeMap<&str, f64> {
        let mut by_package = BTreeMap::new();
        for it in &self.compilations {
            *by_package.entry(it.package.as_str()).or_default() += it.cpu;
        }
        by_package
    }

    /// What each default feature adds: the packages that are compiled for it alone.
    fn features(&self, text: &mut String) -> Result<()> {
        let (by_package, without) = (self.by_package(), packages_with("")?);
        writeln!(text, "\n| feature | packages that it alone needs | CPU seconds |\n|---|---|---|")?;
        for feature in ["apple", "schemas", "serve", "ssh"] {
            let added: Vec<String> = packages_with(feature)?.difference(&without).cloned().collect();
            let cpu: f64 = added.iter().filter_map(|it| by_package.get(it.as_str())).sum();
            writeln!(text, "| `{feature}` | {} | {cpu:.0} |", added.len())?;
        }
        Ok(())
    }
}

fn is_own(package: &str) -> bool {
    package == "coracle" || package.starts_with("coracle-") || package == "xtask"
}

/// The packages of the program with that feature and no other.
fn packages_with(feature: &str) -> Result<BTreeSet<String>> {
    let words = ["tree", "--package", "coracle-cli", "--no-default-features", "--features", feature];
    let tree = sh("cargo", words).words(["--edges", "normal,build", "--prefix", "none", "--format", "{p}"]).read()?;
    Ok(tree.lines().filter_map(|it| it.split(' ').next()).map(str::to_owned).collect())
}

/// What the page records of a build.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct BuildCost {
    /// CPU seconds of the whole build.
    pub(crate) total: f64,
    /// CPU seconds of crates that wait for each other.
    pub(crate) longest_chain: f64,
}

/// Reads the cost of a build from the page.
pub(crate) fn recorded(name: &str) -> Result<BuildCost> {
    let page = fs::read_to_string(root().join(PAGE)).context(PAGE)?;
    parse(&page, name).with_context(|| format!("{PAGE} has no figures of the build `{name}`"))
}

fn parse(page: &str, name: &str) -> Option<BuildCost> {
    let section = page.split("\n## ").find_map(|it| it.strip_prefix(name)?.strip_prefix('\n'))?;
    let figure = |before: &str| section.split_once(before)?.1.split_once(" CPU seconds")?.0.parse().ok();
    Some(BuildCost { total: figure("`: ")?, longest_chain: figure("Longest chain, ")? })
}

/// Replaces the section of that build.
fn write_section(name: &str, text: &str) -> Result<()> {
    let path = root().join(PAGE);
    let page = fs::read_to_string(&path).context(PAGE)?;
    let heading = format!("\n## {name}\n");
    let (before, rest) = page.split_once(&heading).with_context(|| format!("{PAGE} has no section `{name}`"))?;
    let after = rest.find("\n## ").map_or("", |at| &rest[at..]);
    fs::write(&path, format!("{before}{heading}\n{text}{after}"))?;
    println!("written to {PAGE}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_has_the_figures_of_the_demo() {
        let page = "# Page\n\n## demo\n\n`cargo build`: 719 CPU seconds.\n\nLongest chain, 320 CPU seconds: a → b.\n\n## test\n";
        assert_eq!(parse(page, "demo"), Some(BuildCost { total: 719.0, longest_chain: 320.0 }));
        assert_eq!(parse(page, "test"), None);
        recorded("demo").expect("figures");
    }
}
