//! Rules that hold the structure, one a file, each with a planted violation beside it. `xtask/tests/tidy` holds the project
//! to them.
//!
//! What broke a rule when that was made stands in a list, `xtask/tests/tidy/known_*.txt`. A list is a ratchet: what is not on
//! it fails, and so does what is on it and gone, so that it cannot come back. `cargo xtask ratchet` takes from the lists what
//! is gone; it adds nothing. After a merge that conflicts in a list, take either side and run it.

mod cycles;
mod dialect;
mod sizes;

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

pub use self::sizes::{CODE_LIMIT, CRATE_LIMIT};
use crate::load::{Crate, workspace};
use crate::sources::{Source, sources};

/// What the rules are about.
#[derive(Debug)]
pub struct Project {
    pub crates: Vec<Crate>,
    /// Files with code or prose.
    pub sources: Vec<Source>,
}

impl Project {
    pub fn read(root: &Path) -> Result<Self> {
        let endings = ["css", "html", "jinja", "js", "md", "mjs", "mts", "py", "rs", "sh", "toml", "ts"];
        Ok(Self { crates: workspace(root)?, sources: sources(root, &endings)? })
    }
}

#[derive(Debug)]
pub struct Rule {
    /// The list of what is known, below [`LISTS`].
    pub list: &'static str,
    pub check: fn(&Project, &str) -> Outcome,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Why the project breaks the rule, and what to do.
    pub faults: Vec<String>,
    /// The list as it should be: without what is gone.
    pub list: String,
}

/// The directory of the lists, from the project's root.
pub const LISTS: &str = "xtask/tests/tidy";

pub const ALL: &[Rule] = &[
    Rule { list: "known_cycles.txt", check: |project, list| cycles::check_modules(&project.crates, list) },
    Rule { list: "known_file_cycles.txt", check: |project, list| cycles::check_files(&project.crates, list) },
    Rule { list: "known_sizes.txt", check: |project, list| sizes::check(&project.crates, list) },
    Rule { list: "known_dialect.txt", check: dialect::check },
];

/// The comment at the head of a list.
fn head(list: &str) -> String {
    list.lines().take_while(|it| it.starts_with('#') || it.is_empty()).map(|it| format!("{it}\n")).collect()
}

/// The lines of a list below its head.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim_end).filter(|it| !it.is_empty() && !it.starts_with('#'))
}

/// The entries that are a key and a number.
fn numbers(list: &str) -> BTreeMap<&str, usize> {
    let pairs = entries(list).filter_map(|line| line.rsplit_once(' '));
    pairs.filter_map(|(key, number)| Some((key, number.parse().ok()?))).collect()
}

/// A crate of these files below `src`.
#[cfg(test)]
fn planted(name: &str, files: &[(&str, &str)]) -> Crate {
    let read = |path: &str| files.iter().find(|it| path.strip_prefix("src/") == Some(it.0)).map(|it| it.1.to_owned());
    crate::load::load(name, "src/lib.rs", &read).expect("the planted crate can be read")
}
