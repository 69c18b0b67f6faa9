//! `cargo xtask book`: the pages in `docs` as one book, by mdBook.
//!
//! What can be wrong without mdBook is a test here, and so a part of the step `rules` of `cargo xtask ci`.

mod check;
mod markdown;

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail, ensure};

use self::check::Pages;
use crate::sh::{root, sh, target};

/// The page of the repository that the book has, too; the book's files are its neighbours there.
const CONTRIBUTING: &str = "CONTRIBUTING.md";

/// Checks the pages, then builds the book into `target/book/html`.
pub(crate) fn run(words: &[String]) -> Result<()> {
    let program = match words {
        [] => "mdbook",
        [flag, program] if flag == "--mdbook" => program,
        _ => bail!("usage: cargo xtask book [--mdbook PROGRAM]"),
    };
    let faults = pages()?.faults();
    ensure!(faults.is_empty(), "{} faults:\n  {}", faults.len(), faults.join("\n  "));
    ensure!(
        sh(program, ["--version"]).succeeds(),
        "no `{program}` to build the book with; its releases have it prebuilt, Debian 13 as the package `mdbook`, and \
         `--mdbook PROGRAM` names it"
    );
    let book = target().join("book");
    copy_sources(&book)?;
    sh(program, ["build"]).dir(&book).run()?;
    println!("{}", book.join("html/index.html").display());
    Ok(())
}

/// Every file of the project, from its root.
fn project_files() -> Result<Vec<String>> {
    let listed = sh("git", ["ls-files", "--cached", "--others", "--exclude-standard"]).read()?;
    Ok(listed.lines().map(str::to_owned).collect())
}

fn pages() -> Result<Pages> {
    let mut pages = Pages::default();
    for path in project_files()? {
        let is_page = path.ends_with(".md") && (path.starts_with("docs/") || !path.contains('/'));
        // A file that is removed is listed until that is committed.
        if let Some(text) = fs::read_to_string(root().join(&path)).ok().filter(|_| is_page) {
            pages.texts.insert(path.clone(), text);
        }
        pages.files.insert(path);
    }
    Ok(pages)
}

/// The book has all its pages below one directory, which the repository has not.
fn copy_sources(book: &Path) -> Result<()> {
    if book.exists() {
        fs::remove_dir_all(book).with_context(|| format!("remove {}", book.display()))?;
    }
    let copy = |path: &str, to: PathBuf| -> Result<()> {
        fs::create_dir_all(to.parent().context("a file lies in a directory")?)?;
        let text = fs::read_to_string(root().join(path)).with_context(|| path.to_owned())?;
        let text = match path {
            CONTRIBUTING => text.replace("](docs/", "]("),
            _ => text.replace(&format!("](../{CONTRIBUTING}"), &format!("]({CONTRIBUTING}")),
        };
        fs::write(to, text)?;
        Ok(())
    };
    for path in project_files()? {
        match path.strip_prefix("docs/") {
            Some("book.toml") => copy(&path, book.join("book.toml"))?,
            Some(page) => copy(&path, book.join("src").join(page))?,
            None if path == CONTRIBUTING => copy(&path, book.join("src").join(&path))?,
            None => {}
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::pages;

    #[test]
    fn every_link_leads_somewhere_and_every_page_is_near() {
        assert_eq!(pages().unwrap().faults(), Vec::<String>::new());
    }
}
