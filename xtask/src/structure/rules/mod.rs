//! Rules that hold the structure, one a file, each with a planted violation beside it. `xtask/tests/tidy` holds the project
//! to them.
//!
//! What broke a rule when that was made stands in a list, `xtask/tests/tidy/known_*.txt`. A list is a ratchet: what is not on
//! it fails, and so does what is on it and gone, so that it cannot come back. `cargo xtask ratchet` takes from the lists what
//! is gone; it adds nothing. After a merge that conflicts in a list, take either side and run it.

mod counts;
mod cycles;
mod shared_names;
mod sizes;
mod tuples;
mod words;

pub use self::sizes::{CODE_LIMIT, CRATE_LIMIT};
use crate::load::Crate;

#[derive(Debug)]
pub struct Rule {
    /// The list of what is known, below [`LISTS`].
    pub list: &'static str,
    pub check: fn(&[Crate], &str) -> Outcome,
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
    Rule { list: "known_cycles.txt", check: cycles::check_modules },
    Rule { list: "known_file_cycles.txt", check: cycles::check_files },
    Rule { list: "known_sizes.txt", check: sizes::check },
    Rule { list: "known_words.txt", check: words::check },
    Rule { list: "known_shared_names.txt", check: shared_names::check },
    Rule { list: "known_tuples.txt", check: tuples::check },
];

/// The comment at the head of a list.
fn head(list: &str) -> String {
    list.lines().take_while(|it| it.starts_with('#') || it.is_empty()).map(|it| format!("{it}\n")).collect()
}

/// The lines of a list below its head.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.lines().map(str::trim_end).filter(|it| !it.is_empty() && !it.starts_with('#'))
}

/// A crate of these files below `src`.
#[cfg(test)]
fn planted(name: &str, files: &[(&str, &str)]) -> Crate {
    let read = |path: &str| files.iter().find(|it| path.strip_prefix("src/") == Some(it.0)).map(|it| it.1.to_owned());
    crate::load::load(name, "src/lib.rs", &read).expect("the planted crate can be read")
}
