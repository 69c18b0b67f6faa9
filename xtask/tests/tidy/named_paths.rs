//! Each path of the project that the pages for contributors name exists.

use super::project::{Source, files, root, source};

/// Directories at the root whose paths the pages name.
const DIRECTORIES: [&str; 8] = ["clients", "crates", "docs", "examples", "fuzz", "packaging", "tests", "xtask"];

/// A placeholder for the name of a new file: only its directory exists.
const PLACEHOLDER: &str = "NAME";

fn is_for_contributors(page: &Source) -> bool {
    page.path == "CONTRIBUTING.md" || page.path == "docs/architecture.md" || page.path.starts_with("docs/architecture/")
}

/// Returns the paths in backticks: those below a directory of the project, and those of Rust files, since other paths may
/// be those of a user's machine.
fn named_paths(page: &Source) -> Vec<&str> {
    let spans = page.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    let is_path = |span: &&str| {
        let Some((first, _)) = span.split_once('/') else { return false };
        !span.contains([' ', '*', '<']) && (DIRECTORIES.contains(&first) || span.ends_with(".rs"))
    };
    spans.filter(is_path).collect()
}

fn missing_paths(page: &Source, exists: impl Fn(&str) -> bool) -> Vec<String> {
    let mut missing = vec![];
    for path in named_paths(page) {
        let required = path.split_once(PLACEHOLDER).map_or(path, |(directory, _)| directory);
        if !exists(required) {
            missing.push(format!("{}: there is no `{path}`", page.path));
        }
    }
    missing
}

#[test]
fn each_path_that_the_pages_for_contributors_name_exists() {
    let pages: Vec<Source> = files(&["md"]).into_iter().filter(is_for_contributors).collect();
    assert!(pages.iter().any(|page| named_paths(page).len() > 50), "the pages name many paths");
    let missing: Vec<String> =
        pages.iter().flat_map(|page| missing_paths(page, |path| root().join(path).exists())).collect();
    assert_eq!(missing, Vec::<String>::new());
}

#[test]
fn a_path_that_is_gone_is_found() {
    let exists = |path: &str| ["crates/jobs/src/", "crates/jobs/src/lib.rs"].contains(&path);
    let text = "| `crates/jobs/src/lib.rs`, `crates/jobs/src/gone.rs` | `crates/gone/` |\n\
                `crates/jobs/src/NAME.rs`, `os/gone.rs`; `target/a.md`, `containers/<name>/a.json`, `cargo xtask ci`\n";
    let page = source("CONTRIBUTING.md", text);
    let gone = ["crates/jobs/src/gone.rs", "crates/gone/", "os/gone.rs"];
    assert_eq!(missing_paths(&page, exists), gone.map(|path| format!("CONTRIBUTING.md: there is no `{path}`")));
}
