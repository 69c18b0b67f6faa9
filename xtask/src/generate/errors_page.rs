//! The reference of error codes: each with the first sentence of its comment, and with the hints of the sources.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;
use syn::{Expr, Item, ItemEnum, Lit, Meta};

use super::hints::{self, Hints};
use crate::sh::root;

/// Where the codes are.
const CODES: &str = "crates/types/src/failure.rs";

const HEAD: &str = "\
<!-- Written by `cargo xtask generate` from crates/types/src/failure.rs and the hints of the code. -->

# Errors

This page lists every error code, with its meaning and the hints that come with it. A failed answer has `code`, `message`,
`hint`, `retryable` and `details`: [JSON calls](../calls.md#a-failed-answer). By symptom: [Troubleshooting](../troubleshooting.md).

In a hint, `…` stands for a value. The class is that of the exception in the [client libraries](../clients.md#errors), where the codes of
`coracle serve` itself are, too.
";

/// A code of an answer.
#[derive(Debug)]
struct ErrorCodeRow {
    variant: String,
    meaning: String,
}

/// The text of the page.
pub(super) fn page(document: &Value) -> Result<String> {
    let text = fs::read_to_string(root().join(CODES)).context(CODES)?;
    let mut all = Hints::new();
    for file in sources()? {
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        hints::read(&text, &mut all).with_context(|| file.display().to_string())?;
    }
    render(&text, &classes(document), &all)
}

/// The class of each code in the client packages.
fn classes(document: &Value) -> BTreeMap<&str, &str> {
    let classes = document["components"]["schemas"]["Failure"]["x-classes"].as_array().into_iter().flatten();
    let pairs = classes.flat_map(|class| {
        let codes = class["codes"].as_array().into_iter().flatten().filter_map(Value::as_str);
        codes.map(|code| (code, class["name"].as_str().unwrap_or_default()))
    });
    pairs.collect()
}

/// The sources of the crates, without their tests.
fn sources() -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(root().join("crates"))? {
        walk(&entry?.path().join("src"), &mut files)?;
    }
    files.sort();
    Ok(files)
}

fn walk(dir: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in fs::read_dir(dir).with_context(|| dir.display().to_string())? {
        let path = entry?.path();
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match name.starts_with("test") {
            true => {}
            false if path.is_dir() => walk(&path, files)?,
            false if path.extension().is_some_and(|it| it == "rs") => files.push(path),
            false => {}
        }
    }
    Ok(())
}

fn render(codes: &str, classes: &BTreeMap<&str, &str>, hints: &Hints) -> Result<String> {
    let file = syn::parse_file(codes)?;
    let is_codes = |it: &&ItemEnum| it.ident == "Code";
    let items = file.items.iter().filter_map(|it| if let Item::Enum(it) = it { Some(it) } else { None });
    let mut rows = rows(items.into_iter().find(is_codes).context("there is no `Code`")?)?;
    rows.sort_by(|a, b| a.variant.cmp(&b.variant));
    let retryable = codes.split("fn is_retryable").nth(1).and_then(|it| it.split("\n    }").next()).unwrap_or_default();
    let mut page = HEAD.to_owned();
    for ErrorCodeRow { variant, meaning } in rows {
        let again = retryable.split(|it: char| !it.is_alphanumeric()).any(|it| it == variant);
        let word = word(&variant);
        let class = classes.get(word.as_str()).with_context(|| format!("`{word}` is in no class of error_class.rs"))?;
        page += &format!("\n## `{word}`\n\n{meaning}");
        page += if again { " The same call may succeed later." } else { "" };
        page += &format!(" Class: `{class}`.\n");
        let lines: Vec<String> =
            hints.get(&variant).into_iter().flatten().map(|it| format!("- {}\n", line(it))).collect();
        if !lines.is_empty() {
            page += &format!("\n{}", lines.concat());
        }
    }
    Ok(page)
}

/// In one line, with nothing that Markdown acts on.
fn line(hint: &str) -> String {
    let words: Vec<&str> = hint.split_whitespace().collect();
    words.join(" ").replace('<', "&lt;").replace('[', "\\[").replace('*', "\\*")
}

fn rows(item: &ItemEnum) -> Result<Vec<ErrorCodeRow>> {
    let row = |it: &syn::Variant| -> Result<ErrorCodeRow> {
        let lines = it.attrs.iter().filter_map(|it| if let Meta::NameValue(it) = &it.meta { Some(it) } else { None });
        let texts = lines.filter_map(|it| match &it.value {
            Expr::Lit(lit) if it.path.is_ident("doc") => match &lit.lit {
                Lit::Str(text) => Some(text.value().trim().to_owned()),
                _ => None,
            },
            _ => None,
        });
        let meaning = texts.collect::<Vec<_>>().join(" ");
        anyhow::ensure!(!meaning.is_empty(), "`{}` has no comment", it.ident);
        Ok(ErrorCodeRow { variant: it.ident.to_string(), meaning })
    };
    item.variants.iter().map(row).collect()
}

/// `not_found` of `NotFound`.
fn word(variant: &str) -> String {
    let mut word = String::new();
    for it in variant.chars() {
        if it.is_uppercase() && !word.is_empty() {
            word.push('_');
        }
        word.extend(it.to_lowercase());
    }
    word
}

#[cfg(test)]
mod tests {
    use super::super::hints::Hints;
    use super::render;

    #[test]
    fn each_code_has_its_meaning_and_its_hints() {
        let codes = "pub enum Code {\n    /// It is stopped.\n    NotRunning,\n    /// Too many.\n    Busy,\n}\n\
                     impl Code {\n    fn is_retryable(self) {\n        matches!(self, Self::Busy)\n    }\n}\n";
        let hints: Hints = [("NotRunning".to_owned(), ["start *it*".to_owned()].into())].into();
        let classes = [("busy", "Busy"), ("not_running", "Conflict")].into();
        let without = render(codes, &[("busy", "Busy")].into(), &hints).unwrap_err().to_string();
        assert!(without.contains("`not_running` is in no class"), "{without}");
        let page = render(codes, &classes, &hints).unwrap();
        let (_, codes) = page.split_once("\n## ").unwrap();
        assert_eq!(
            codes,
            "`busy`\n\nToo many. The same call may succeed later. Class: `Busy`.\n\n## `not_running`\n\nIt is stopped. Class: `Conflict`.\n\n- start \\*it\\*\n"
        );
        assert!(render("pub enum Code { A }", &classes, &Hints::new()).is_err());
    }
}
