//! The code blocks of the README and the pages, and their commands.

use std::path::Path;

/// A fenced block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) page: String,
    pub(super) line: usize,
    pub(super) language: String,
    pub(super) text: String,
    /// Why it is not run, by the comment above it.
    pub(super) not_run: Option<String>,
}

/// A command of a block, and the output shown after it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Typed {
    pub(super) line: String,
    pub(super) shown: Vec<String>,
}

/// The beginning of the comment above a block that is not run.
const NOT_RUN: &str = "<!-- not run:";

/// All of the README and of the pages in `docs` and below it.
pub(super) fn blocks() -> Vec<Block> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (mut pages, mut folders) = (vec![root.join("README.md")], vec![root.join("docs")]);
    while let Some(folder) = folders.pop() {
        for path in std::fs::read_dir(folder).unwrap().map(|it| it.unwrap().path()) {
            match path.is_dir() {
                true => folders.push(path),
                false if path.extension().is_some_and(|it| it == "md") => pages.push(path),
                false => {}
            }
        }
    }
    pages.sort();
    let page = |path: &Path| path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
    pages.iter().flat_map(|it| blocks_of(&page(it), &std::fs::read_to_string(it).unwrap())).collect()
}

fn blocks_of(page: &str, text: &str) -> Vec<Block> {
    let (mut blocks, mut open, mut above) = (Vec::new(), None::<Block>, "");
    for (number, line) in text.lines().enumerate() {
        match (&mut open, line.strip_prefix("```")) {
            (None, Some(language)) => {
                let reason = above.strip_prefix(NOT_RUN).and_then(|it| it.strip_suffix("-->"));
                open = Some(Block {
                    page: page.to_owned(),
                    line: number + 1,
                    language: language.to_owned(),
                    text: String::new(),
                    not_run: reason.map(|it| it.trim().to_owned()),
                });
            }
            (Some(_), Some(_)) => blocks.extend(open.take()),
            (Some(block), None) => block.text += &format!("{line}\n"),
            (None, None) => {}
        }
        if !line.trim().is_empty() {
            above = line;
        }
    }
    blocks
}

impl Block {
    /// Its position.
    pub(super) fn at(&self) -> String {
        format!("{}:{}", self.page, self.line)
    }

    /// Whether a shell runs it.
    pub(super) fn is_typed(&self) -> bool {
        ["sh", "console"].contains(&self.language.as_str())
    }

    /// The commands of a block. A command continues while a quote is open.
    pub(super) fn typed(&self) -> Vec<Typed> {
        let mut typed: Vec<Typed> = Vec::new();
        for line in self.text.lines() {
            let open = typed.last_mut().filter(|it| is_open(&it.line));
            let new = match self.language.as_str() {
                "console" => line.strip_prefix("$ "),
                _ => Some(line).filter(|it| !it.trim().is_empty()),
            };
            match (open, new) {
                (Some(last), _) => last.line += &format!("\n{line}"),
                (None, Some(new)) => typed.push(Typed { line: new.to_owned(), shown: Vec::new() }),
                (None, None) => {
                    if let Some(last) = typed.last_mut() {
                        last.shown.push(line.to_owned());
                    }
                }
            }
        }
        typed
    }
}

/// Whether a quote of a line has no end yet.
fn is_open(line: &str) -> bool {
    let (mut quote, mut before) = (None, ' ');
    for it in line.chars() {
        match quote {
            None if it == '#' && before.is_whitespace() => return false,
            None if it == '\'' || it == '"' => quote = Some(it),
            Some(open) if it == open => quote = None,
            _ => {}
        }
        before = it;
    }
    quote.is_some()
}

/// Whether a line that a page shows is among what was printed. What differs from run to run does not count: words with
/// digits in them and everything behind them, and what `…` stands for.
pub(super) fn is_shown(expected: &str, printed: &str) -> bool {
    // Signs are others in a pipe than at a terminal.
    let is_sign = |word: &&str| !word.contains('…') && !word.contains(char::is_alphanumeric);
    let words = |line: &str| {
        let words = line.split_whitespace().filter(|it| !is_sign(it));
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    if let Some(kind) = event(expected) {
        return printed.lines().any(|it| event(it).as_ref() == Some(&kind));
    }
    let varies = |word: &String| {
        word.contains('…')
            || word.chars().any(|it| it.is_ascii_digit())
            || word.contains('/')
            || word.trim_end_matches(':').contains(':')
    };
    let fixed: Vec<String> = words(expected).into_iter().take_while(|it| !varies(it)).take(2).collect();
    let mut lines = printed.lines().map(words);
    match fixed.is_empty() {
        true => expected.trim() == "…" || expected.trim().is_empty() || lines.any(|it| !it.is_empty()),
        false => lines.any(|it| it.starts_with(&fixed)),
    }
}

/// The type of an event of `worker run`, if the line is one. The page has its fields in the order in which they are printed.
fn event(line: &str) -> Option<String> {
    let event: serde_json::Value = serde_json::from_str(line).ok().filter(|it: &serde_json::Value| it.is_object())?;
    event["type"].as_str().map(str::to_owned)
}

#[test]
fn a_block_says_what_it_types_and_why_it_is_not_run() {
    let text = "<!-- not run: it waits -->\n\n```sh\nwait\n```\ntext\n```console\n$ echo 'one\ntwo' # it's\none\ntwo\n$ true\n```\n";
    let [waits, echoes] = &blocks_of("page.md", text)[..] else { panic!("two") };
    assert_eq!((waits.not_run.as_deref(), waits.at().as_str()), (Some("it waits"), "page.md:3"));
    assert_eq!(echoes.not_run, None);
    let echo = Typed { line: "echo 'one\ntwo' # it's".into(), shown: vec!["one".into(), "two".into()] };
    assert_eq!(echoes.typed(), [echo, Typed { line: "true".into(), shown: vec![] }]);
}

#[test]
fn differences_between_runs_are_ignored() {
    let printed = "web is ready (3.1 s)\n  image    coracle-cache:x\n{\"content\":\"x\",\"type\":\"result\"}\n42\n";
    for expected in [
        "web is ready (1.6 s)",
        "✓ image coracle-cache:y",
        "  image  other:y",
        "{\"number\":7,\"type\":\"result\"}",
        "…",
        "41",
    ] {
        assert!(is_shown(expected, printed), "{expected}");
    }
    for expected in ["api is ready (1.6 s)", "  saved x", "{\"type\":\"started\"}"] {
        assert!(!is_shown(expected, printed), "{expected}");
    }
}
