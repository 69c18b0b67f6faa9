//! `cargo xtask generate`: the OpenAPI document of `coracle serve`, the references of the book, and the generated modules of
//! the client packages, which are not committed.
//!
//! The document is the program's word, which an end-to-end test compares; everything else here is a pure function of it
//! and of the sources.

mod configuration_tables;
mod document;
mod errors_page;
mod hints;
mod operations_page;
mod plots;

use std::fs;

use anyhow::{Context as _, Result};
use serde_json::Value;

use self::document::ClientDocument;
use crate::clients;
use crate::sh::{root, sh, target};

/// The document, as the program prints it.
const DOCUMENT: &str = "clients/openapi.json";

/// Prints the document by the program of the last build, and writes all files.
pub(crate) fn run(_: &[String]) -> Result<()> {
    let program = target().join("debug/coracle");
    // The document has the tools of the default configuration, and not the user's.
    let home = target().join("generate-home");
    fs::create_dir_all(&home)?;
    let words = ["serve", "--openapi", "--config", "none.toml"];
    let printed =
        sh(&program, words).dir(&home).env("HOME", &home).read().context("build the program first: `cargo build`")?;
    fs::write(root().join(DOCUMENT), format!("{printed}\n"))?;
    for file in files()? {
        fs::write(root().join(&file.path), file.text)?;
        println!("  {}", file.path);
    }
    clients::generate();
    Ok(())
}

/// A generated file, and what it has to hold.
#[derive(Debug)]
struct GeneratedFile {
    path: String,
    text: String,
}

/// All of them.
fn files() -> Result<Vec<GeneratedFile>> {
    let text = fs::read_to_string(root().join(DOCUMENT)).context(DOCUMENT)?;
    let value: Value = serde_json::from_str(&text)?;
    let document = ClientDocument::from_value(&value)?;
    let plots = plots::all()?.into_iter();
    let mut files: Vec<GeneratedFile> =
        plots.map(|(name, text)| GeneratedFile { path: format!("docs/plots/{name}"), text }).collect();
    files.extend([
        GeneratedFile { path: "docs/reference/operations.md".into(), text: operations_page::page(&document) },
        GeneratedFile { path: "docs/reference/errors.md".into(), text: errors_page::page(&value)? },
    ]);
    files.extend(configuration_tables::pages(&value)?);
    Ok(files)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::{GeneratedFile, files};
    use crate::sh::root;

    /// Files that are not what they have to be.
    fn outdated(files: Vec<GeneratedFile>) -> Vec<String> {
        let differs = |it: &GeneratedFile| fs::read_to_string(root().join(&it.path)).ok().as_ref() != Some(&it.text);
        files.into_iter().filter(differs).map(|it| it.path).collect()
    }

    #[test]
    fn generated_files_are_current() {
        let outdated = outdated(files().unwrap());
        assert!(outdated.is_empty(), "run `cargo build && cargo xtask generate`: {outdated:?}");
    }

    #[test]
    fn a_file_that_differs_is_found() {
        let file = |path: &str| GeneratedFile { path: path.to_owned(), text: String::new() };
        assert_eq!(outdated(vec![file("Cargo.toml"), file("nowhere")]), ["Cargo.toml", "nowhere"]);
    }
}
