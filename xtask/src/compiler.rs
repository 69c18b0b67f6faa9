//! The compiler of our own crates, where cargo starts a copy of this program in its place (`RUSTC_WORKSPACE_WRAPPER`, or
//! `RUSTC_WRAPPER`).
//!
//! It links guest and worker without a loader, and compiles no dependency of theirs a second time: flags in a variable would
//! be for all crates, procedural macros among them, which cannot be static. For `ci` it also finds lints and writes the
//! documentation, where builds of their own would read every dependency once more.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context as _, Result};

use crate::sh::{Sh, as_ours, sh, target, var};

/// Tells a copy of this program what it is.
const VARIABLE: &str = "XTASK_COMPILER";

/// Compiled into guest and worker, so that cargo links them again when it changes.
const STATIC_VARIABLE: &str = "CORACLE_STATIC_PROGRAM";

/// Programs that containers get, which may lack a loader.
const STATIC_PROGRAMS: &[&str] = &["coracle_guest", "coracle_worker"];

/// Of the programs, those that no library has the name of.
const DOCUMENTED_PROGRAMS: &[&str] = &["container", "xtask"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compiler {
    /// As cargo starts it.
    Plain,
    /// Links guest and worker without a loader.
    Static,
    /// Does the same, and shares the crates that it compiles with `Plain`. Only programs that read
    /// `CORACLE_STATIC_PROGRAM` are linked again after a build by the other.
    StaticShared,
    /// Does the same, refuses what has a lint, and writes documentation.
    Checking,
}

impl Compiler {
    /// Cargo with this compiler. What each builds of our crates is apart from what the others build, but for `StaticShared`.
    pub(crate) fn cargo(self, words: &[&str]) -> Result<Sh> {
        let cargo = sh("cargo", words);
        let Some(name) = self.name() else { return Ok(cargo) };
        let cargo = cargo.env(VARIABLE, name);
        Ok(match self {
            // Unlike a wrapper for the workspace, it has no part in the hashes by which cargo finds what is compiled.
            Self::StaticShared => cargo.env("RUSTC_WRAPPER", copy(name)?).env(STATIC_VARIABLE, "1"),
            _ => cargo.env("RUSTC_WORKSPACE_WRAPPER", copy(name)?),
        })
    }

    /// The one for guest and worker, beside what this one compiles.
    pub(crate) fn of_guests(self) -> Self {
        if self == Self::Plain { Self::Static } else { self }
    }

    fn name(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Static | Self::StaticShared => Some("static"),
            Self::Checking => Some("checking"),
        }
    }
}

/// A copy of this program, which a build may replace while it runs. One that is right stays: it may be running.
pub(crate) fn copy(name: &str) -> Result<PathBuf> {
    let (dir, running) = (target().join("tools"), PathBuf::from("/proc/self/exe"));
    let own = if running.exists() { running } else { std::env::current_exe()? };
    let copy = dir.join(name);
    if fs::read(&copy).ok() != Some(fs::read(&own)?) {
        fs::create_dir_all(&dir)?;
        let unfinished = dir.join(format!(".{name}-{}", std::process::id()));
        fs::copy(own, &unfinished)?;
        fs::rename(&unfinished, &copy).with_context(|| copy.display().to_string())?;
    }
    Ok(copy)
}

/// Does what the compiler would do, for a copy: `words` are the compiler and its own words.
pub(crate) fn compile(words: &[String]) -> Option<ExitCode> {
    let name = var(VARIABLE)?;
    let (compiler, words) = words.split_first()?;
    if Path::new(compiler).file_stem()? != "rustc" {
        return None;
    }
    let words = [words, &words_of_a_static_program(words)].concat();
    if Compiler::Checking.name() != Some(&name) {
        return Some(code(as_ours(compiler, words.iter().map(String::as_str))));
    }
    let linted = words.iter().map(String::as_str).chain(["--deny", "warnings"]);
    let is_right = as_ours("clippy-driver", [compiler.as_str()].into_iter().chain(linted));
    if is_right && is_documented(&words) {
        let documented = document(&words, &target().join("doc").to_string_lossy());
        return Some(code(as_ours("rustdoc", documented.iter().map(String::as_str))));
    }
    Some(code(is_right))
}

fn code(is_right: bool) -> ExitCode {
    if is_right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn value<'a>(words: &'a [String], option: &str) -> Option<&'a str> {
    let at = words.iter().position(|it| it == option)?;
    words.get(at + 1).map(String::as_str)
}

fn is_test(words: &[String]) -> bool {
    words.iter().any(|it| it == "--test")
}

fn words_of_a_static_program(words: &[String]) -> Vec<String> {
    let is_named = value(words, "--crate-name").is_some_and(|it| STATIC_PROGRAMS.contains(&it));
    let is_program = is_named && value(words, "--crate-type") == Some("bin") && !is_test(words);
    let own: &[&str] = if is_program { &["-Ctarget-feature=+crt-static", "-Cstrip=symbols"] } else { &[] };
    own.iter().map(|it| (*it).to_owned()).collect()
}

fn is_documented(words: &[String]) -> bool {
    let is_program = value(words, "--crate-name").is_some_and(|it| DOCUMENTED_PROGRAMS.contains(&it));
    let is_kind = |kind: &str| value(words, "--crate-type") == Some(kind);
    !is_test(words) && (is_kind("lib") || is_kind("bin") && is_program)
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
    fn guest_and_worker_alone_are_static() {
        let is_static = |line: &str| !words_of_a_static_program(&words(line)).is_empty();
        assert!(is_static("--crate-name coracle_guest --crate-type bin"));
        assert!(is_static("--crate-name coracle_worker --crate-type bin"));
        assert!(!is_static("--crate-name coracle_guest --crate-type lib"));
        assert!(!is_static("--crate-name coracle_guest --crate-type bin --test"));
        assert!(!is_static("--crate-name coracle --crate-type bin"));
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
