//! Lints and documentation of our own crates, in the build that the tests need anyway: as builds of their own, both would
//! read every dependency once more.
//!
//! Cargo starts a copy of this program in place of the compiler of our crates (`RUSTC_WORKSPACE_WRAPPER`).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::sh::{Sh, as_ours, sh, target, var};
use crate::test;

/// The directory for documentation. It also tells the copy what it is.
const DOCUMENTATION: &str = "XTASK_DOCUMENTATION";

/// Of the programs, those that no library has the name of.
const DOCUMENTED_PROGRAMS: &[&str] = &["container", "xtask"];

pub(super) fn build() -> Result<()> {
    let copy = copy();
    fs::create_dir_all(target().join("tools"))?;
    // The build replaces the file that we were started from.
    fs::copy(std::env::current_exe()?, &copy).with_context(|| copy.display().to_string())?;
    test::beside_the_clients(|| cargo(&["build", "--workspace", "--all-targets", "--locked"]).run())
}

/// Cargo with the copy in place of the compiler. What it builds is apart from what cargo builds alone.
pub(super) fn cargo(words: &[&str]) -> Sh {
    sh("cargo", words).env("RUSTC_WORKSPACE_WRAPPER", copy()).env(DOCUMENTATION, target().join("doc"))
}

fn copy() -> PathBuf {
    target().join("tools/lint")
}

/// Does what the compiler would do, for the copy: `words` are the compiler and its own words.
pub(crate) fn compile(words: &[String]) -> Option<ExitCode> {
    let documentation = var(DOCUMENTATION)?;
    let (compiler, words) = words.split_first()?;
    if Path::new(compiler).file_stem()? != "rustc" {
        return None;
    }
    let linted = words.iter().map(String::as_str).chain(["--deny", "warnings"]);
    let is_right = as_ours("clippy-driver", [compiler.as_str()].into_iter().chain(linted));
    if is_right && is_documented(words) {
        let documented = document(words, &documentation);
        return Some(code(as_ours("rustdoc", documented.iter().map(String::as_str))));
    }
    Some(code(is_right))
}

fn code(is_right: bool) -> ExitCode {
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn is_documented(words: &[String]) -> bool {
    let value = |option: &str| {
        let at = words.iter().position(|it| it == option)?;
        words.get(at + 1).map(String::as_str)
    };
    let is_program = value("--crate-name").is_some_and(|it| DOCUMENTED_PROGRAMS.contains(&it));
    let is_kind = |kind: &str| value("--crate-type") == Some(kind);
    !words.iter().any(|it| it == "--test") && (is_kind("lib") || is_kind("bin") && is_program)
}

/// The words of the documentation's compiler for the same crate.
fn document(words: &[String], dir: &str) -> Vec<String> {
    let mut own = vec![];
    let mut words = words.iter().filter(|it| !it.starts_with("--emit="));
    while let Some(word) = words.next() {
        own.push(word.clone());
        if word == "--out-dir" {
            words.next();
            own.push(dir.to_owned());
        }
    }
    own.extend(["--deny", "warnings"].map(str::to_owned));
    own
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn libraries_and_some_programs_are_documented() {
        assert!(is_documented(&words("--crate-name coracle_ui --crate-type lib --emit=link")));
        assert!(is_documented(&words("--crate-name xtask --crate-type bin")));
        assert!(!is_documented(&words("--crate-name coracle --crate-type bin")));
        assert!(!is_documented(&words("--crate-name coracle_ui --crate-type lib --test")));
        assert!(!is_documented(&words("- --crate-name ___ --print=file-names --crate-type bin --crate-type rlib")));
        let documented = document(&words("--crate-name x --emit=dep-info,link --out-dir /deps -L /deps"), "/doc");
        assert_eq!(documented.join(" "), "--crate-name x --out-dir /doc -L /deps --deny warnings");
    }
}
