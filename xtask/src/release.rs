//! `cargo xtask release check [TAG]` and `cargo xtask release bump VERSION`: what has to agree before a version is tagged, and
//! how it comes to agree.

mod interfaces;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use crate::sh::{root, sh, target};
use crate::tools;

/// Files that name the version, and how; `@` stands for it.
const PLACES: &[(&str, &str)] = &[
    ("Cargo.toml", "[workspace.package]\nversion = \"@\"\n"),
    ("Cargo.toml", "\", version = \"@\""), // of the crates of this workspace, behind their paths
    ("clients/openapi.json", "\n    \"version\": \"@\""),
    ("clients/python/coracle/__init__.py", "\n__version__ = \"@\"\n"),
    ("clients/typescript/package.json", "\"version\": \"@\""),
    (".devcontainer/Dockerfile", "FROM coracle-sandbox:@"),
    ("docs/devcontainer.md", "FROM coracle-sandbox:@"),
    ("docs/install.md", "checked   coracle-@-"),
    ("docs/install.md", "installed coracle @:"),
];

/// Crates of tests alone, and this one: they are not packages for others.
const NOT_PUBLIC: &[&str] = &["coracle-kube-api", "coracle-skips", "coracle-tests", "xtask"];

/// The line that keeps crates from being published by mistake.
const FORBIDDEN: &str = "publish = false";

pub(crate) fn run(words: &[String]) -> Result<()> {
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["check"] => check(env!("CARGO_PKG_VERSION")),
        ["check", tag] => {
            check_tag(tag, env!("CARGO_PKG_VERSION"))?;
            check(env!("CARGO_PKG_VERSION"))
        }
        ["bump", version] => bump(env!("CARGO_PKG_VERSION"), version),
        _ => bail!("usage: cargo xtask release check [TAG] | bump VERSION"),
    }
}

/// A release is published under its tag, with the files of the version.
fn check_tag(tag: &str, version: &str) -> Result<()> {
    ensure!(
        tag == format!("v{version}"),
        "the tag {tag} is not of {version}: tag v{version}, or bump the version first"
    );
    Ok(())
}

fn check(version: &str) -> Result<()> {
    let faults: Vec<String> =
        PLACES.iter().filter_map(|it| disagreement(it.0, it.1, version).transpose()).collect::<Result<_>>()?;
    ensure!(faults.is_empty(), "not every place names {version}:\n  {}", faults.join("\n  "));
    let changelog = fs::read_to_string(root().join("CHANGELOG.md"))?;
    ensure!(
        has_entry(&changelog, version),
        "CHANGELOG.md has no entry for {version}; `cargo xtask release bump {version}` makes one of what is unreleased"
    );
    tools::check_advisories()?;
    let dir = target().join("release-check");
    let source = publishable_copy("HEAD", &dir)?;
    package_crates(&source)?;
    interfaces::check(&source, &dir)?;
    fs::remove_dir_all(&dir).map_err(Into::into)
}

/// The workspace as a commit has it, but that publishing is not forbidden: cargo does not find a crate that is never
/// published, when it packages or compares one that depends on it.
fn publishable_copy(commit: &str, dir: &Path) -> Result<PathBuf> {
    let copy = dir.join(commit);
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    let archive = copy.join("source.tar");
    let words = ["archive", "--format=tar", "--output"].map(PathBuf::from);
    sh("git", words.into_iter().chain([archive.clone(), commit.into()])).read()?;
    sh("tar", [Path::new("-xf"), &archive]).dir(&copy).read()?;
    let manifest = copy.join("Cargo.toml");
    let text = fs::read_to_string(&manifest)?;
    ensure!(text.contains(FORBIDDEN), "Cargo.toml has no line `{FORBIDDEN}` any more: use the sources themselves");
    fs::write(&manifest, text.replace(FORBIDDEN, "publish = true"))?;
    Ok(copy)
}

/// Words that leave out the crates that are not public.
fn public_crates() -> impl Iterator<Item = &'static str> {
    ["--workspace"].into_iter().chain(NOT_PUBLIC.iter().flat_map(|it| ["--exclude", it]))
}

/// Packages each public crate, without building it.
fn package_crates(source: &Path) -> Result<()> {
    let words = ["package", "--locked", "--no-verify", "--quiet"].into_iter().chain(public_crates());
    sh("cargo", words).dir(source).env("CARGO_TARGET_DIR", source.join("target")).run()?;
    let crates = fs::read_dir(source.join("target/package"))?
        .flatten()
        .filter(|it| it.path().extension().is_some_and(|it| it == "crate"));
    println!("  {} crates are packages", crates.count());
    Ok(())
}

/// What is wrong with a place.
fn disagreement(file: &str, place: &str, version: &str) -> Result<Option<String>> {
    let text = fs::read_to_string(root().join(file)).with_context(|| format!("read {file}"))?;
    let named = text.matches(&place.replace('@', version)).count();
    let (start, _) = place.split_once('@').context("a place has a version")?;
    let all = text.matches(start).count();
    Ok((named == 0 || named != all).then(|| format!("{file}: {named} of {all} times, as `{}`", place.trim())))
}

/// Whether a changelog has a dated section for a version, with something in it.
fn has_entry(changelog: &str, version: &str) -> bool {
    let start = format!("## [{version}] - ");
    let section =
        changelog.lines().skip_while(|it| !it.starts_with(&start)).skip(1).take_while(|it| !it.starts_with("## "));
    section.into_iter().any(|it| it.starts_with("- "))
}

fn bump(old: &str, new: &str) -> Result<()> {
    let numbers = new.split('.').map(str::parse::<u32>).collect::<Result<Vec<_>, _>>();
    ensure!(numbers.is_ok_and(|it| it.len() == 3), "{new} is no version such as 1.2.3");
    for (file, place) in PLACES {
        let path = root().join(file);
        let text = fs::read_to_string(&path).with_context(|| format!("read {file}"))?;
        fs::write(&path, text.replace(&place.replace('@', old), &place.replace('@', new)))?;
    }
    let path = root().join("CHANGELOG.md");
    let date = sh("date", ["--utc", "+%F"]).read()?;
    fs::write(&path, release_entry(&fs::read_to_string(&path)?, new, &date)?)?;
    for manifest in ["Cargo.toml", "fuzz/Cargo.toml", "examples/embedder/Cargo.toml"] {
        sh("cargo", ["update", "--workspace", "--manifest-path", manifest]).run()?;
    }
    Ok(())
}

/// What is unreleased becomes the entry of a version.
fn release_entry(changelog: &str, version: &str, date: &str) -> Result<String> {
    const UNRELEASED: &str = "## [Unreleased]\n";
    ensure!(!has_entry(changelog, version), "CHANGELOG.md has an entry for {version} already");
    ensure!(changelog.contains(UNRELEASED), "CHANGELOG.md has no section `[Unreleased]`");
    Ok(changelog.replacen(UNRELEASED, &format!("{UNRELEASED}\n## [{version}] - {date}\n"), 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_names_the_version() {
        for (file, place) in PLACES {
            assert_eq!(disagreement(file, place, env!("CARGO_PKG_VERSION")).unwrap(), None);
            assert!(disagreement(file, place, "7.7.7").unwrap().is_some());
        }
    }

    #[test]
    fn every_file_on_the_image_of_this_version_is_a_place() {
        let image = concat!("FROM coracle-sandbox:", env!("CARGO_PKG_VERSION"));
        let files = sh("git", ["grep", "--files-with-matches", "--fixed-strings", image]).read().unwrap();
        for file in files.lines() {
            assert!(PLACES.iter().any(|it| it.0 == file), "`release bump` leaves out {file}");
        }
    }

    #[test]
    fn a_tag_is_that_of_the_version() {
        check_tag("v1.2.3", "1.2.3").unwrap();
        for tag in ["v1.2.4", "1.2.3", "v1.2.3-rc1", "vnext"] {
            assert!(check_tag(tag, "1.2.3").is_err(), "{tag}");
        }
    }

    #[test]
    fn a_version_has_an_entry_once_it_is_dated_and_says_something() {
        let changelog = "# Changelog\n\n## [Unreleased]\n\n- It works.\n";
        assert!(!has_entry(changelog, "1.2.3"));
        let dated = release_entry(changelog, "1.2.3", "2026-01-02").unwrap();
        assert_eq!(dated, "# Changelog\n\n## [Unreleased]\n\n## [1.2.3] - 2026-01-02\n\n- It works.\n");
        assert!(has_entry(&dated, "1.2.3") && !has_entry(&dated, "1.2"));
        assert!(release_entry(&dated, "1.2.3", "2026-01-03").is_err());
        let empty = release_entry(&dated, "1.2.4", "2026-01-03").unwrap();
        assert!(!has_entry(&empty, "1.2.4"));
    }
}
