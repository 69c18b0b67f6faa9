//! Prose in plain technical English: how often the words of a private dialect stand in code, comments and pages, how often a
//! closure `|it|` stands inside another one, and how many references lead to a page or a section that does not exist.
//!
//! A figure may only fall. It is on the list with its last value, and the list follows once it fell by a tenth, so that not
//! every change of a text changes the list.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{Outcome, Project, head, numbers};
use crate::sources::Source;
use crate::text::{code, comments};

/// Words for which the field has others: reported, retained, requested, received, no one, again, fix, user.
const WORDS: &[&str] =
    &["anew", "asked", "heard", "kept", "mend", "mends", "nobody", "said", "somebody", "told", "whoever"];

/// `user` in the field.
const THE_PERSON: &str = "the person";

const NESTED: &str = "nested |it|";
const DANGLING: &str = "dangling reference";

/// Where the words are counted.
const PLACES: &[&str] =
    &["clients/", "crates/", "docs/", "tests/", "xtask/", "CHANGELOG.md", "CONTRIBUTING.md", "README.md"];

/// This file names the words.
const OWN_FILE: &str = "xtask/src/structure/rules/dialect.rs";

pub(super) fn check(project: &Project, list: &str) -> Outcome {
    compare(&count(&project.sources), list)
}

fn compare(counts: &BTreeMap<&str, usize>, list: &str) -> Outcome {
    let known = numbers(list);
    let (mut faults, mut remaining) = (vec![], head(list));
    for (key, count) in counts {
        let known = known.get(key).copied().unwrap_or(0);
        if *count > known {
            faults.push(format!("{key}: {count}, known {known}; `git diff` shows the new one: use the field's word"));
        }
        if count * 10 < known * 9 {
            faults.push(format!("{key}: {count} are left of {known}; `cargo xtask ratchet` notes that"));
        }
        if known.min(*count) > 0 {
            let _ = writeln!(remaining, "{key} {}", known.min(*count));
        }
    }
    Outcome { faults, list: remaining }
}

fn count(sources: &[Source]) -> BTreeMap<&'static str, usize> {
    let mut counts: BTreeMap<&str, usize> = WORDS.iter().map(|word| (*word, 0)).collect();
    counts.extend([(THE_PERSON, 0), (NESTED, 0), (DANGLING, 0)]);
    let pages = Pages::of(sources);
    let counted = sources.iter().filter(|source| PLACES.iter().any(|place| source.path.starts_with(place)));
    for source in counted.filter(|source| source.path != OWN_FILE) {
        count_words(&source.text, &mut counts);
        let is_rust = source.path.ends_with(".rs");
        if is_rust {
            *counts.entry(NESTED).or_default() += nested_closures(&code(&source.text));
        }
        if is_rust || source.path.ends_with(".md") {
            let prose = if is_rust { comments(&source.text) } else { outside_blocks(&source.text) };
            *counts.entry(DANGLING).or_default() += pages.dangling(&prose);
        }
    }
    counts
}

fn count_words(text: &str, counts: &mut BTreeMap<&'static str, usize>) {
    let mut previous = "";
    for word in text.split(|c: char| !c.is_ascii_alphanumeric()).filter(|word| !word.is_empty()) {
        if let Some(listed) = WORDS.iter().find(|listed| word.eq_ignore_ascii_case(listed)) {
            *counts.entry(listed).or_default() += 1;
        }
        if word.eq_ignore_ascii_case("person") && previous.eq_ignore_ascii_case("the") {
            *counts.entry(THE_PERSON).or_default() += 1;
        }
        previous = word;
    }
}

/// Closures `|it|` in the body of another one. A body ends with the bracket around it, or at a comma or semicolon beside it.
fn nested_closures(code: &str) -> usize {
    let (mut depth, mut bodies, mut nested) = (0, Vec::<usize>::new(), 0);
    for (at, c) in code.char_indices() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => {
                depth = usize::saturating_sub(depth, 1);
                bodies.retain(|body| *body <= depth);
            }
            ',' | ';' => bodies.retain(|body| *body < depth),
            '|' if code[at..].starts_with("|it|") => {
                nested += usize::from(!bodies.is_empty());
                bodies.push(depth);
            }
            _ => {}
        }
    }
    nested
}

/// A page of Markdown without its blocks of code.
fn outside_blocks(text: &str) -> String {
    text.split("```").step_by(2).collect()
}

/// The project's pages by their names, with the words that begin their lines: headings, rows and points.
struct Pages<'a>(BTreeMap<&'a str, BTreeSet<&'a str>>);

impl<'a> Pages<'a> {
    fn of(sources: &'a [Source]) -> Self {
        let mut pages: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for source in sources.iter().filter(|source| source.path.ends_with(".md")) {
            let first_words = source.text.lines().filter_map(|line| {
                line.trim_start_matches(['#', '|', '-', '*', ' ', '`']).split([' ', '*', '`', ':', '|']).next()
            });
            pages
                .entry(file_name(&source.path))
                .or_default()
                .extend(first_words.map(|word| word.trim_end_matches('.')));
        }
        Self(pages)
    }

    /// References to a page that is not there, such as `gone.md`, or to a section that it does not have: `page.md 9.2`.
    fn dangling(&self, prose: &str) -> usize {
        let words: Vec<&str> = prose.split_whitespace().collect();
        let is_dangling = |at: &usize| {
            let Some(name) = page_name(words[*at]) else { return false };
            let Some(first_words) = self.0.get(name) else { return true };
            let section = words.get(at + 1).filter(|_| words[*at].trim_matches('`').ends_with(".md"));
            let section = section.map(|next| next.trim_end_matches([')', '.', ',', ';', ':']));
            section.is_some_and(|section| is_number(section) && !first_words.contains(section))
        };
        (0..words.len()).filter(is_dangling).count()
    }
}

/// The file's name, if the word is the path of a page in the repository.
fn page_name(word: &str) -> Option<&str> {
    let path = word.rsplit_once("](").map_or(word, |(_, target)| target);
    let path = path.split('#').next()?.trim_matches(|c: char| !c.is_alphanumeric());
    let is_elsewhere = path.contains("://") || path.contains(['<', '*', '$']) || path.starts_with("target/");
    (path.ends_with(".md") && !is_elsewhere).then(|| file_name(path))
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// `9`, `9.2` or `I5`.
fn is_number(word: &str) -> bool {
    let digits = word.strip_prefix(|c: char| c.is_ascii_uppercase()).unwrap_or(word);
    digits.starts_with(|c: char| c.is_ascii_digit()) && digits.chars().all(|c| c.is_ascii_digit() || c == '.')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, text: &str) -> Source {
        Source { path: path.to_owned(), text: text.to_owned() }
    }

    #[test]
    fn words_are_counted_in_code_comments_and_pages() {
        let counts = count(&[
            source("crates/a/src/lib.rs", "/// What the\n/// Person was told.\nfn is_told() { \"kept\" }"),
            source("docs/a.md", "Nobody retold it to the personal account."),
            source("packaging/a.md", "told"),
        ]);
        let found: Vec<(&str, usize)> = counts.into_iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(found, [("kept", 1), ("nobody", 1), (THE_PERSON, 1), ("told", 2)]);
    }

    #[test]
    fn a_closure_inside_another_is_found() {
        for (text, expected) in [
            ("a.map(|it| it.b).filter(|it| it.c)", 0),
            ("a.map(|it| b(it).any(|it| it.c))", 1),
            ("a.map(|it| { let c = 1; d(|it| it, |it| it) })", 2),
            ("f(|it| a, |it| b); let c = |it| d; let e = |it| f;", 0),
            ("assert!(a.iter().all(|it| it.b.iter().all(|name| name.any(|it| c))))", 1),
        ] {
            assert_eq!(nested_closures(text), expected, "{text}");
        }
    }

    #[test]
    fn a_reference_that_leads_nowhere_is_found() {
        let page = "# Page\n## 2. Rules\n| I5 | yes |\n";
        for (comment, expected) in [
            ("see `docs/page.md`, page.md 2 and (page.md I5).", 0),
            ("see page.md 9.2 and (page.md I6).", 2),
            ("see gone.md, https://x/y.md and `target/z.md`", 1),
        ] {
            let code = format!("// {comment}\nlet it = \"no.md\";");
            let counts = count(&[source("docs/page.md", page), source("tests/a.rs", &code)]);
            assert_eq!(counts[DANGLING], expected, "{comment}");
        }
        assert_eq!(count(&[source("docs/a.md", "[a](b.md#c)\n```\nd.md\n```\n")])[DANGLING], 1);
    }

    #[test]
    fn a_figure_may_only_fall() {
        let counts = BTreeMap::from([("told", 101), ("kept", 99), ("said", 80), ("asked", 0)]);
        let outcome = compare(&counts, "# Head.\n\nasked 1\nkept 100\nsaid 100\ntold 100\n");
        assert_eq!(
            outcome.faults,
            [
                "asked: 0 are left of 1; `cargo xtask ratchet` notes that",
                "said: 80 are left of 100; `cargo xtask ratchet` notes that",
                "told: 101, known 100; `git diff` shows the new one: use the field's word",
            ]
        );
        assert_eq!(outcome.list, "# Head.\n\nkept 99\nsaid 80\ntold 100\n");
    }
}
