//! Licences, bans and sources of everything that goes into the build, from `cargo metadata` and `deny.toml`.
//!
//! `cargo deny` reads the same file and knows more, but takes minutes to build: too long for every run on a bare machine.

use std::fs;

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::sh::{root, sh};

pub(super) fn check() -> Result<()> {
    let rules = Rules::read(&fs::read_to_string(root().join("deny.toml")).context("read deny.toml")?);
    let metadata = sh("cargo", ["metadata", "--format-version", "1", "--all-features", "--locked"]).read()?;
    let metadata: Value = serde_json::from_str(&metadata)?;
    let packages = metadata["packages"].as_array().context("`cargo metadata` names no packages")?;
    let faults: Vec<String> = packages.iter().flat_map(|it| rules.faults(it)).collect();
    if !faults.is_empty() {
        bail!("against deny.toml:\n  {}", faults.join("\n  "));
    }
    println!(
        "  {} packages, {} licences allowed, {} crates banned",
        packages.len(),
        rules.licences.len(),
        rules.banned.len()
    );
    Ok(())
}

/// The part of `deny.toml` that is held here.
#[derive(Debug)]
struct Rules {
    licences: Vec<String>,
    banned: Vec<String>,
    registries: Vec<String>,
}

impl Rules {
    fn read(text: &str) -> Self {
        Self {
            licences: list(text, "licenses", "allow"),
            banned: list(text, "bans", "deny"),
            registries: list(text, "sources", "allow-registry"),
        }
    }

    fn faults(&self, package: &Value) -> Vec<String> {
        let name = package["name"].as_str().unwrap_or("?");
        let mut faults = vec![];
        match package["license"].as_str() {
            Some(licence) if satisfied(licence, &self.licences) => {}
            Some(licence) => faults.push(format!("{name}: licence `{licence}` is not on the list")),
            None => faults.push(format!("{name}: names no licence")),
        }
        if self.banned.iter().any(|it| it == name) {
            faults.push(format!("{name}: banned"));
        }
        if let Some(source) = package["source"].as_str() // a path has none
            && !self.registries.iter().any(|it| source.strip_prefix("registry+") == Some(it))
        {
            faults.push(format!("{name}: comes from {source}"));
        }
        faults
    }
}

/// The quoted words of `key = [ … ]` in `[table]`; of inline tables the first, which is the crate's name.
fn list(text: &str, table: &str, key: &str) -> Vec<String> {
    let start = format!("[{table}]");
    let lines = text.lines().map(str::trim).skip_while(|it| *it != start).skip(1).take_while(|it| !it.starts_with('['));
    let lines = lines.map(|it| it.split('#').next().unwrap_or_default().trim());
    let opens = |line: &str| line.strip_prefix(key).is_some_and(|it| it.trim_start().starts_with('='));
    let mut words = vec![];
    for line in lines.skip_while(|it| !opens(it)) {
        if line.contains('{') {
            words.extend(line.split('"').nth(1).map(str::to_owned));
        } else {
            words.extend(line.split('"').skip(1).step_by(2).map(str::to_owned));
        }
        if line.ends_with(']') {
            break;
        }
    }
    words
}

/// Whether an SPDX expression can be fulfilled with allowed licences alone. `/` is an old way to write OR.
fn satisfied(expression: &str, allowed: &[String]) -> bool {
    let spaced = expression.replace('(', " ( ").replace(')', " ) ").replace('/', " OR ");
    let mut words = spaced.split_whitespace().peekable();
    let ok = any(&mut words, allowed);
    ok && words.next().is_none()
}

type Words<'a> = std::iter::Peekable<std::str::SplitWhitespace<'a>>;

fn any(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut ok = all(words, allowed);
    while words.next_if_eq(&"OR").is_some() {
        ok |= all(words, allowed);
    }
    ok
}

fn all(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let mut ok = one(words, allowed);
    while words.next_if_eq(&"AND").is_some() {
        ok &= one(words, allowed);
    }
    ok
}

fn one(words: &mut Words<'_>, allowed: &[String]) -> bool {
    let Some(word) = words.next() else { return false };
    if word == "(" {
        let ok = any(words, allowed);
        return ok & words.next_if_eq(&")").is_some();
    }
    let mut licence = word.to_owned();
    if words.next_if_eq(&"WITH").is_some() {
        licence = format!("{licence} WITH {}", words.next().unwrap_or_default());
    }
    allowed.contains(&licence)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DENY: &str = r#"
[licenses]
allow = [
  "MIT", # a remark
  "Apache-2.0 WITH LLVM-exception", "Unicode-3.0",
]

[bans]
deny = [
  { crate = "left-pad", reason = "too \"small\"" },
]

[sources]
allow-registry = ["https://example.org/index"]
"#;

    #[test]
    fn expressions_are_weighed() {
        let rules = Rules::read(DENY);
        for (expression, ok) in [
            ("MIT", true),
            ("GPL-3.0-only", false),
            ("GPL-3.0-only OR MIT", true),
            ("GPL-3.0-only/MIT", true),
            ("MIT AND GPL-3.0-only", false),
            ("(GPL-3.0-only OR MIT) AND Unicode-3.0", true),
            ("GPL-3.0-only OR MIT AND Zlib", false),
            ("Apache-2.0 WITH LLVM-exception", true),
            ("Apache-2.0", false),
            ("MIT)", false),
            ("", false),
        ] {
            assert_eq!(satisfied(expression, &rules.licences), ok, "{expression}");
        }
    }

    #[test]
    fn a_package_is_held_to_licence_ban_and_source() {
        let rules = Rules::read(DENY);
        let fine = json!({ "name": "good", "license": "MIT", "source": "registry+https://example.org/index" });
        assert_eq!(rules.faults(&fine), Vec::<String>::new());
        let bad = json!({ "name": "left-pad", "license": null, "source": "git+https://example.org/left-pad" });
        assert_eq!(rules.faults(&bad).len(), 3, "{:?}", rules.faults(&bad));
    }
}
