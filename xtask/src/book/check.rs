//! What is wrong with the pages: links that lead nowhere, and pages that a reader does not find.

use std::collections::{BTreeMap, BTreeSet};

use super::markdown::{anchors, links};

/// The first page of the book, and that of the repository.
const STARTS: [&str; 2] = ["docs/README.md", "README.md"];

/// The book's table of contents.
pub(super) const SUMMARY: &str = "docs/SUMMARY.md";

/// How many links lead to each page of the book at most.
const CLICKS: usize = 2;

/// The pages of the project by their paths from its root, and the paths of all other files.
#[derive(Debug, Default)]
pub(super) struct Pages {
    pub(super) texts: BTreeMap<String, String>,
    pub(super) files: BTreeSet<String>,
}

impl Pages {
    /// All faults, one sentence each.
    pub(super) fn faults(&self) -> Vec<String> {
        let mut faults = self.broken_links();
        faults.extend(self.missing_in_summary());
        faults.extend(STARTS.iter().flat_map(|it| self.too_far_from(it)));
        faults
    }

    fn broken_links(&self) -> Vec<String> {
        let anchors: BTreeMap<&String, Vec<String>> =
            self.texts.iter().map(|(path, text)| (path, anchors(text))).collect();
        let mut faults = Vec::new();
        for (path, text) in &self.texts {
            for link in links(text) {
                let Some((target, anchor)) = local(path, &link.target) else { continue };
                let has_anchor = |it: &Vec<String>| anchor.is_none_or(|anchor| it.iter().any(|it| it == anchor));
                let why = match (anchors.get(&target), self.is_file(&target)) {
                    (Some(anchors), _) if has_anchor(anchors) => continue,
                    (Some(_), _) => "the page has no such heading",
                    (None, true) => continue,
                    (None, false) => "there is no such file",
                };
                faults.push(format!("{path}:{}: `{}`: {why}", link.line, link.target));
            }
        }
        faults
    }

    /// A file, or a directory that has one.
    fn is_file(&self, path: &str) -> bool {
        let dir = format!("{}/", path.trim_end_matches('/'));
        self.files.contains(path) || self.files.iter().any(|it| it.starts_with(&dir))
    }

    /// The pages that one page links.
    fn linked(&self, path: &str) -> BTreeSet<String> {
        let links = self.texts.get(path).map(|it| links(it)).unwrap_or_default();
        let targets = links.iter().filter_map(|it| local(path, &it.target)).map(|it| it.0);
        targets.filter(|it| self.texts.contains_key(it)).collect()
    }

    /// Pages of the book itself.
    fn book(&self) -> impl Iterator<Item = &String> {
        self.texts.keys().filter(|it| it.starts_with("docs/") && *it != SUMMARY)
    }

    fn missing_in_summary(&self) -> Vec<String> {
        let listed = self.linked(SUMMARY);
        self.book().filter(|it| !listed.contains(*it)).map(|it| format!("{it}: {SUMMARY} does not list it")).collect()
    }

    fn too_far_from(&self, start: &str) -> Vec<String> {
        let mut near = BTreeSet::from([start.to_owned()]);
        for _ in 0..CLICKS {
            let next: Vec<String> = near.iter().flat_map(|it| self.linked(it)).collect();
            near.extend(next);
        }
        let far = self.book().filter(|it| !near.contains(*it));
        far.map(|it| format!("{it}: more than {CLICKS} links from {start}")).collect()
    }
}

/// The path and the anchor that a link of a page means, unless it leads to another host.
fn local<'a>(page: &str, target: &'a str) -> Option<(String, Option<&'a str>)> {
    if target.contains("://") || target.starts_with("mailto:") {
        return None;
    }
    let (path, anchor) = target.split_once('#').map_or((target, None), |(path, anchor)| (path, Some(anchor)));
    if path.is_empty() {
        return Some((page.to_owned(), anchor));
    }
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "." | "" => {}
            ".." => parts.truncate(parts.len().saturating_sub(1)),
            part => parts.push(part),
        }
    }
    Some((parts.join("/"), anchor))
}

#[cfg(test)]
mod tests {
    use super::Pages;

    fn pages(texts: &[(&str, &str)]) -> Pages {
        let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
        Pages { texts, files: [String::from("clients/x.py")].into() }
    }

    #[test]
    fn whole_pages_have_no_faults() {
        let readme = "[book](docs/README.md) [code](clients/) [web](https://x)";
        let start = "[a](a.md#one) [b](sub/b.md)";
        let texts = [
            ("README.md", readme),
            ("docs/README.md", start),
            ("docs/SUMMARY.md", "[s](README.md) [a](a.md) [b](sub/b.md)"),
            ("docs/a.md", "# One\n[up](../README.md)"),
            ("docs/sub/b.md", "[a](../a.md) [here](#b)\n# B"),
        ];
        assert_eq!(pages(&texts).faults(), Vec::<String>::new());
    }

    #[test]
    fn what_is_wrong_is_found() {
        let texts = [
            ("README.md", "[a](docs/README.md)"),
            ("docs/README.md", "[a](a.md#two) [gone](gone.md)"),
            ("docs/SUMMARY.md", "[s](README.md) [a](a.md) [b](b.md) [c](c.md)"),
            ("docs/a.md", "# One\n[b](b.md)"),
            ("docs/b.md", "[c](c.md)"),
            ("docs/c.md", ""),
            ("docs/d.md", ""),
        ];
        assert_eq!(
            pages(&texts).faults(),
            [
                "docs/README.md:1: `a.md#two`: the page has no such heading",
                "docs/README.md:1: `gone.md`: there is no such file",
                "docs/d.md: docs/SUMMARY.md does not list it",
                "docs/c.md: more than 2 links from docs/README.md",
                "docs/d.md: more than 2 links from docs/README.md",
                "docs/b.md: more than 2 links from README.md",
                "docs/c.md: more than 2 links from README.md",
                "docs/d.md: more than 2 links from README.md",
            ]
        );
    }
}
