//! `THIRD-PARTY.txt`: name, version and licence of everything in a release that others wrote, and their notices, which most
//! licences ask for with each copy.
//!
//! Its bytes depend on the crates and on what the program contains. Paths of the machine are not in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use serde_json::Value;

use super::components::Component;
use super::sbom::{Materials, licence, name_of};
use crate::archive::ArchiveFile;
use crate::sh::root;

/// The name in every package.
pub(super) const NAME: &str = "THIRD-PARTY.txt";

/// How the names of files with notices begin, in capitals.
const BEGINNINGS: [&str; 6] = ["COPYING", "COPYRIGHT", "LICENCE", "LICENSE", "NOTICE", "UNLICENSE"];

/// Ends of names of programs, which may begin like those of notices.
const NO_TEXTS: [&str; 4] = [".RS", ".PY", ".SH", ".YML"];

const RULE: &str = "--------------------------------------------------------------------------------";

const TITLE: &str = "Works of others in Coracle

Coracle itself is under MIT OR Apache-2.0. Its programs contain the works below,
or are built by them, each under its own licence. Their notices and the texts of
the licences follow.
";

/// What the licence of one work requires in every copy.
#[derive(Debug)]
struct Notice {
    /// Name and version.
    name: String,
    licence: String,
    remark: Option<String>,
    texts: Vec<String>,
}

/// Coracle's own licences, and the notices of others.
pub(super) fn files(materials: &Materials, components: &[Component]) -> Result<Vec<ArchiveFile>> {
    let mut files = vec![ArchiveFile::new(NAME, text(&crates(materials)?, &linked(components)?))];
    for name in ["LICENSE-APACHE", "LICENSE-MIT"] {
        files.push(ArchiveFile::new(name, fs::read(root().join(name)).with_context(|| format!("read {name}"))?));
    }
    Ok(files)
}

/// The crates that are not ours.
fn crates(materials: &Materials) -> Result<Vec<Notice>> {
    let others = materials.packages().filter(|it| it["source"].is_string());
    let mut crates = others.map(of_crate).collect::<Result<Vec<_>>>()?;
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn of_crate(package: &Value) -> Result<Notice> {
    let name = name_of(package).context("a crate has no name")?.replace('@', " ");
    let manifest = package["manifest_path"].as_str().with_context(|| format!("{name} has no manifest"))?;
    let dir = Path::new(manifest).parent().with_context(|| format!("{manifest} is in no directory"))?;
    let texts = texts(dir).with_context(|| format!("read the licences of {name}"))?;
    let remark = texts.is_empty().then(|| without_file(package));
    Ok(Notice { name, licence: licence(package).unwrap_or_else(|| "no licence is named".to_owned()), remark, texts })
}

/// What the manifest says in place of a file.
fn without_file(package: &Value) -> String {
    let authors: Vec<&str> = package["authors"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let mut remark = "Its package has no file with a licence.".to_owned();
    if !authors.is_empty() {
        let _ = write!(remark, " Authors: {}.", authors.join(", ")); // a string takes everything
    }
    if let Some(address) = package["repository"].as_str() {
        let _ = write!(remark, " Source: {address}");
    }
    remark
}

/// The texts of a crate's files that are named for licences, also of works of others within it, and of all files in
/// directories with such a name.
fn texts(dir: &Path) -> Result<Vec<String>> {
    let mut texts = vec![];
    collect(dir, false, &mut texts)?;
    Ok(texts)
}

fn collect(dir: &Path, is_named: bool, texts: &mut Vec<String>) -> Result<()> {
    for path in sorted(dir)? {
        let name = path.file_name().unwrap_or_default().to_string_lossy().to_uppercase();
        let is_named = is_named || BEGINNINGS.iter().any(|it| name.starts_with(it));
        if path.is_dir() {
            if !name.starts_with('.') {
                collect(&path, is_named, texts)?;
            }
        } else if is_named && !NO_TEXTS.iter().any(|it| name.ends_with(it)) {
            texts.push(read(&path)?);
        }
    }
    Ok(())
}

fn sorted(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(dir)?.map(|it| Ok(it?.path())).collect::<Result<Vec<_>>>()?;
    paths.sort();
    Ok(paths)
}

/// Without what differs between systems and editors.
fn read(path: &Path) -> Result<String> {
    let content = fs::read(path)?;
    let text = String::from_utf8_lossy(&content);
    let lines: Vec<&str> = text.trim_start_matches('\u{feff}').lines().map(str::trim_end).collect();
    Ok(lines.join("\n").trim_matches('\n').to_owned())
}

/// What the linker adds, and the scripts of the page.
fn linked(components: &[Component]) -> Result<Vec<Notice>> {
    let notice = |it: &Component| {
        let work = it.work;
        let read = |file: &&str| read(&root().join(file)).with_context(|| format!("read {file}"));
        Ok(Notice {
            name: [work.name].into_iter().chain(it.version.as_deref()).collect::<Vec<_>>().join(" "),
            licence: work.licence.to_owned(),
            remark: Some(format!("{} {}", work.note, work.address)),
            texts: work.files.iter().map(read).collect::<Result<_>>()?,
        })
    };
    components.iter().map(notice).collect()
}

fn text(crates: &[Notice], linked: &[Notice]) -> String {
    let mut text = TITLE.to_owned();
    list(&mut text, "Libraries and scripts", linked);
    list(&mut text, "Crates", crates);
    for (names, notice) in grouped(linked.iter().chain(crates)) {
        let names = names.into_iter().collect::<Vec<_>>().join(", ");
        let _ = write!(text, "\n{RULE}\n{}\n{RULE}\n\n{notice}\n", wrapped(&names, ""));
    }
    text
}

fn list(text: &mut String, title: &str, notices: &[Notice]) {
    let _ = write!(text, "\n{title}:\n\n");
    for it in notices {
        let _ = writeln!(text, "{}: {}", it.name, it.licence);
        if let Some(remark) = &it.remark {
            let _ = writeln!(text, "{}", wrapped(remark, "    "));
        }
    }
}

/// Each text once, with the names of the works that have it, sorted by these. Most copies differ in line breaks alone.
fn grouped<'a>(notices: impl Iterator<Item = &'a Notice>) -> BTreeSet<(BTreeSet<&'a str>, &'a str)> {
    let mut groups: BTreeMap<String, (BTreeSet<&str>, &str)> = BTreeMap::new();
    for notice in notices {
        for text in &notice.texts {
            let words = text.split_whitespace().collect::<Vec<_>>().join(" ");
            let group = groups.entry(words).or_insert_with(|| (BTreeSet::new(), text));
            group.0.insert(&notice.name);
        }
    }
    groups.into_values().collect()
}

/// In lines as long as the rule.
fn wrapped(text: &str, indent: &str) -> String {
    let mut lines = vec![indent.to_owned()];
    for word in text.split(' ') {
        let line = lines.last_mut().expect("it begins with one");
        if line.len() > indent.len() && line.len() + 1 + word.len() > RULE.len() {
            lines.push(format!("{indent}{word}"));
        } else {
            line.push_str(if line.len() > indent.len() { " " } else { "" });
            line.push_str(word);
        }
    }
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn notice(name: &str, texts: &[&str]) -> Notice {
        let texts = texts.iter().map(|it| (*it).to_owned()).collect();
        Notice { name: name.into(), licence: "MIT".into(), remark: None, texts }
    }

    #[test]
    fn a_text_that_several_works_have_is_there_once() {
        let all =
            [notice("a 1", &["permission\nis granted", "own of a"]), notice("b 2", &["permission is\n\ngranted"])];
        let text = text(&all, &[]);
        assert_eq!(text.matches("permission").count(), 1, "{text}");
        assert!(text.contains(&format!("{RULE}\na 1, b 2\n{RULE}\n\npermission\nis granted\n")), "{text}");
        assert!(text.contains(&format!("{RULE}\na 1\n{RULE}\n\nown of a\n")), "{text}");
    }

    #[test]
    fn texts_are_sorted_by_the_works_that_have_them() {
        let all = [notice("a 1", &["z", "y"]), notice("b 2", &["x"]), notice("c 3", &["y"])];
        let text = text(&all, &[]);
        let at = |it: &str| text.find(it).unwrap();
        assert!(at("\n\nz\n") < at("\n\ny\n") && at("\n\ny\n") < at("\n\nx\n"), "{text}");
    }

    #[test]
    fn files_of_a_crate_are_found_by_their_names() {
        let dir = std::env::temp_dir().join(format!("coracle-dist-notices-{}", std::process::id()));
        fs::create_dir_all(dir.join("LICENSES")).unwrap();
        for (name, content) in [
            ("license-mit", "\u{feff}mit \r\nof it\r\n"),
            ("COPYING", "copying"),
            ("NOTICE.md", "notice"),
            ("UNLICENSE", "unlicense"),
            ("LICENSES/BSD.txt", "bsd"),
            ("README.md", "readme"),
        ] {
            fs::write(dir.join(name), content).unwrap();
        }
        let texts = texts(&dir);
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(texts.unwrap(), ["copying", "bsd", "notice", "unlicense", "mit\nof it"]);
    }

    #[test]
    fn a_crate_without_a_file_is_listed_with_its_authors_and_source() {
        let dir = std::env::temp_dir().join(format!("coracle-dist-no-notices-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let notice = of_crate(&json!({
            "name": "bare", "version": "1.0.0", "license": "MIT/Apache-2.0", "manifest_path": dir.join("Cargo.toml"),
            "authors": ["A. Uthor"], "repository": "https://example.org/bare",
        }));
        fs::remove_dir_all(&dir).unwrap();
        let text = text(&[notice.unwrap()], &[]);
        assert!(
            text.contains("\nbare 1.0.0: MIT OR Apache-2.0\n    Its package has no file with a licence."),
            "{text}"
        );
        assert!(text.contains("Authors: A. Uthor.") && text.contains("https://example.org/bare\n"), "{text}");
        assert!(!text.contains(RULE), "{text}");
    }

    #[test]
    fn long_lists_are_in_several_lines() {
        let names = ["a-long-name 1.0.0"; 9].join(", ");
        let lines = wrapped(&names, "  ");
        assert!(lines.lines().count() > 1 && lines.lines().all(|it| it.starts_with("  ") && it.len() <= RULE.len()));
        assert_eq!(lines.split_whitespace().collect::<Vec<_>>().join(" "), names);
    }
}
