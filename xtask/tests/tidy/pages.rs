//! No page that nothing links.

use std::fs;

use super::project::{Source, files, root, source};

/// Pages of the book that neither the book's table nor the README links.
fn unlinked(pages: &[Source], readme: &str) -> Vec<String> {
    let tables: Vec<&Source> = pages.iter().filter(|it| it.path.ends_with("/README.md")).collect();
    let linked = |page: &Source| {
        let in_table = |table: &&Source| {
            let folder = table.path.trim_end_matches("README.md");
            page.path.strip_prefix(folder).is_some_and(|it| table.text.contains(&format!("({it}")))
        };
        readme.contains(&format!("({}", page.path)) || tables.iter().any(in_table)
    };
    pages.iter().filter(|it| !linked(it)).map(|it| format!("{}: nothing links it", it.path)).collect()
}

#[test]
fn every_page_is_linked() {
    let readme = fs::read_to_string(root().join("README.md")).unwrap_or_default();
    let pages: Vec<Source> = files(&["md"]).into_iter().filter(|it| it.path.starts_with("docs/")).collect();
    assert_eq!(unlinked(&pages, &readme), Vec::<String>::new());
}

#[test]
fn an_unlinked_page_is_found() {
    let pages = [
        source("docs/README.md", "[one](architecture.md), [two](decisions/0001-guest.md)"),
        source("docs/architecture.md", ""),
        source("docs/decisions/0001-guest.md", ""),
        source("docs/engines.md", ""),
    ];
    assert_eq!(unlinked(&pages, "[the book](docs/README.md)"), ["docs/engines.md: nothing links it"]);
}
