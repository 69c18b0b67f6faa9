//! What a page of Markdown links, and what can be linked in it.

use std::collections::BTreeMap;

/// A link of a page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PageLink {
    /// Line, counted from 1.
    pub(super) line: usize,
    pub(super) target: String,
}

/// The lines outside of fenced blocks, with their numbers.
fn prose(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut in_block = false;
    (1..).zip(text.lines()).filter(move |(_, line)| {
        let is_fence = line.trim_start().starts_with("```");
        in_block ^= is_fence;
        !in_block && !is_fence
    })
}

/// A line without its code spans: what looks like a link there is none.
fn without_code(line: &str) -> String {
    line.split('`').step_by(2).collect::<Vec<_>>().join("`")
}

/// All links and images of a page, those to other hosts too.
pub(super) fn links(text: &str) -> Vec<PageLink> {
    let mut links = Vec::new();
    for (number, line) in prose(text) {
        let line = without_code(line);
        let targets = line.split("](").skip(1).filter_map(|it| it.split_once(')'));
        links.extend(targets.map(|(target, _)| PageLink { line: number, target: target.to_owned() }));
    }
    links
}

/// The anchors of a page's headings, as GitHub and mdBook write them.
pub(super) fn anchors(text: &str) -> Vec<String> {
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    let is_heading = |line: &&str| line.starts_with('#') && line.trim_start_matches('#').starts_with(' ');
    let headings = prose(text).map(|it| it.1).filter(is_heading);
    let anchors = headings.map(|line| {
        let anchor = anchor(line.trim_start_matches('#').trim());
        let count = seen.entry(anchor.clone()).or_default();
        *count += 1;
        if *count == 1 { anchor } else { format!("{anchor}-{}", *count - 1) }
    });
    anchors.collect()
}

fn anchor(heading: &str) -> String {
    // Of a link in a heading its words count.
    let words: String = heading.split("](").enumerate().fold(String::new(), |words, (at, part)| match at {
        0 => part.to_owned(),
        _ => words + part.split_once(')').map_or(part, |it| it.1),
    });
    let lower = words.to_lowercase();
    let anchor = lower.chars().filter_map(|it| match it {
        ' ' => Some('-'),
        it if it.is_alphanumeric() || it == '-' || it == '_' => Some(it),
        _ => None,
    });
    anchor.collect()
}

#[cfg(test)]
mod tests {
    use super::{anchors, links};

    #[test]
    fn links_outside_of_code_are_found() {
        let text = "[a](b.md#c) and `[x](y)` and ![d](e.svg)\n```\n[no](no.md)\n```\n[f](https://g)\n";
        let found: Vec<_> = links(text).into_iter().map(|it| (it.line, it.target)).collect();
        assert_eq!(found, [(1, "b.md#c".into()), (1, "e.svg".into()), (5, "https://g".into())]);
    }

    #[test]
    fn anchors_are_those_of_github() {
        let text = "# The `a_b` engine: v2.0\n```sh\n# no\n```\n## Same\n## Same\n### [words](x.md) more\n#no\n";
        assert_eq!(anchors(text), ["the-a_b-engine-v20", "same", "same-1", "words-more"]);
    }
}
