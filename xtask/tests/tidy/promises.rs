//! Each test that the pages on security, and the list of tests for every engine, name exists: `module::function` of a file of the
//! project.

use super::project::{Source, files, rust_files, source};

const PAGES: [&str; 2] = ["docs/security.md", "docs/threat-model.md"];

const LIST: &str = "tests/engines/every_engine.txt";

/// The names `module::function` that a page has in backticks.
fn named_tests(page: &Source) -> Vec<(&str, &str)> {
    let spans = page.text.lines().flat_map(|line| line.split('`').skip(1).step_by(2));
    spans.filter_map(|span| span.split_once("::")).collect()
}

/// Whether a file of that module, or of a directory of its name, has a test of that name.
fn has_test(file: &Source, module: &str, function: &str) -> bool {
    let mut parts = file.path.trim_end_matches(".rs").split('/');
    let definition = format!("fn {function}(");
    parts.any(|part| part == module)
        && file.text.split_once(&definition).is_some_and(|(before, _)| {
            let attributes = before.rsplit("\n\n").next().unwrap_or_default();
            attributes.contains("#[test]") || attributes.contains("::test")
        })
}

fn missing_tests(page: &Source, code: &[Source]) -> Vec<String> {
    let mut missing = vec![];
    for (module, function) in named_tests(page) {
        if !code.iter().any(|file| has_test(file, module, function)) {
            missing.push(format!("{}: no test `{module}::{function}`", page.path));
        }
    }
    missing
}

#[test]
fn each_test_that_the_pages_on_security_name_exists() {
    let pages = files(&["md"]);
    let code = rust_files();
    for path in PAGES {
        let page = pages.iter().find(|page| page.path == path).expect("the page is there");
        assert!(!named_tests(page).is_empty(), "{path} names no test");
        assert_eq!(missing_tests(page, &code), Vec::<String>::new());
    }
}

#[test]
fn each_test_for_every_engine_exists() {
    let code = rust_files();
    let tests = files(&["txt"]).into_iter().find(|file| file.path == LIST).expect("the list is there");
    let is_missing = |test: &&str| {
        let (modules, function) = test.rsplit_once("::").unwrap_or_default();
        let module = modules.rsplit("::").next().unwrap_or_default();
        !code.iter().any(|file| file.path.starts_with("tests/") && has_test(file, module, function))
    };
    assert_eq!(tests.text.lines().filter(is_missing).collect::<Vec<_>>(), Vec::<&str>::new());
}

#[test]
fn a_name_without_a_test_is_found() {
    let code = [source("tests/tool/mounts.rs", "#[test]\nfn a_bind_stays() {}\n\nfn helper() {}\n")];
    let page = source("docs/security.md", "| a | `mounts::a_bind_stays`, `mounts::helper`, `copy::a_bind_stays` |");
    assert_eq!(missing_tests(&page, &code).len(), 2);
}
