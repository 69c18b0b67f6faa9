//! The tables of configuration keys in pages. Each is between two comments, of which the first names its keys.

use std::collections::BTreeMap;
use std::fs;

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::GeneratedFile;
use crate::sh::root;

const PAGES: [&str; 2] = ["docs/configuration.md", "docs/kubernetes.md"];
const BEGIN: &str = "<!-- keys: ";
const END: &str = "<!-- end of keys, written by `cargo xtask generate` -->";

/// The pages, with a row for every key of the program.
pub(super) fn pages(document: &Value) -> Result<Vec<GeneratedFile>> {
    let mut pages = Vec::new();
    for page in PAGES {
        let text = fs::read_to_string(root().join(page)).context(page)?;
        pages.push(GeneratedFile { path: page.to_owned(), text });
    }
    let all: String = pages.iter().map(|it| it.text.as_str()).collect();
    let rows = rows(document, &all)?;
    for page in &mut pages {
        page.text = render(&page.text, &rows).with_context(|| format!("{}: `{BEGIN}` without its end", page.path))?;
    }
    Ok(pages)
}

/// The rows for each word of the comments: a key, a table without the keys that other comments name, or `top` for keys
/// in no table.
fn rows<'a>(document: &Value, pages: &'a str) -> Result<BTreeMap<&'a str, String>> {
    let comments = pages.split(BEGIN).skip(1);
    let words: Vec<&str> = comments.flat_map(|it| it.split(" -->").next().unwrap_or_default().split(' ')).collect();
    let mut rows = BTreeMap::<&str, String>::new();
    for key in document["x-configuration"].as_array().context("the document has no keys")? {
        let [name, default, meaning] = ["name", "default", "meaning"].map(|it| key[it].as_str().unwrap_or_default());
        let has = |word: &&&str| match name.strip_prefix(**word) {
            Some(rest) => rest.is_empty() || rest.starts_with('.'),
            None => **word == "top" && !name.contains('.'),
        };
        let word =
            words.iter().filter(has).max_by_key(|it| it.len()).with_context(|| format!("no page has `{name}`"))?;
        *rows.entry(word).or_default() += &format!("| `{name}` | {default} | {meaning} |\n");
    }
    Ok(rows)
}

fn render(page: &str, rows: &BTreeMap<&str, String>) -> Option<String> {
    let mut parts = page.split(BEGIN);
    let mut text = parts.next()?.to_owned();
    for part in parts {
        let (words, rest) = part.split_once(" -->")?;
        let (_, rest) = rest.split_once(END)?;
        let rows: String = words.split(' ').filter_map(|it| rows.get(it)).map(String::as_str).collect();
        text += &format!("{BEGIN}{words} -->\n\n| key | default | meaning |\n|---|---|---|\n{rows}\n{END}{rest}");
    }
    Some(text)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{END, render, rows};

    #[test]
    fn each_key_has_one_row_at_the_comment_that_is_closest() {
        let key = |name: &str| json!({ "name": name, "default": "1", "meaning": "x" });
        let document = json!({ "x-configuration": [key("a"), key("b.a"), key("b.c")] });
        let page = format!("# A\n\n<!-- keys: b.c top -->\nold\n{END}\n\nB\n\n<!-- keys: b -->{END}\n");
        let page = render(&page, &rows(&document, &page).unwrap()).unwrap();
        let names: Vec<_> = page.lines().filter_map(|it| it.strip_prefix("| `")?.split('`').next()).collect();
        assert_eq!(names, ["b.c", "a", "b.a"]);
        assert!(page.starts_with("# A\n\n<!-- keys: b.c top -->\n\n| key |") && page.contains("-->\n\nB\n"), "{page}");
        let unknown = rows(&document, "<!-- keys: top b.a -->").unwrap_err();
        assert_eq!(unknown.to_string(), "no page has `b.c`");
    }
}
