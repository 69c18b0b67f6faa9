//! Replaces values that change from run to run by placeholders.

use std::collections::BTreeMap;
use std::path::Path;

use regex::{Captures, Regex};

/// Patterns of volatile values, and their placeholders. Of a pattern with a group `it` only the group is replaced. Ids are
/// numbered, so that equal ids stay equal.
const VOLATILE: &[(&str, &str)] = &[
    (r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]+)?Z", "<time>"),
    (r"[0-9]{8}T[0-9]{6}\.[0-9]{3}Z", "<time>"),
    (r"\b[0-9]{4}-[0-9]{2}-[0-9]{2} [0-9]{2}:[0-9]{2}:[0-9]{2}\b", "<time>"),
    (r"\b20[0-9]{2}-[0-9]{2}-[0-9]{2}\b", "<date>"),
    (r#""(duration_ms|durationMs|waited_ms)": ?(?<it>[0-9]+)"#, "<ms>"),
    (r#""boot": ?"(?<it>[0-9a-f-]+)""#, "<boot>"),
    (r#""(up_s|start|pid)": ?(?<it>[0-9]+)"#, "<number>"),
    (r"\b[0-9]+\.[0-9] s\b", "<duration>"),
    (r"exit code [0-9]+ after (?<it>[0-9]+ ms)", "<duration>"),
    (r"expires  in (?<it>[0-9]+ h)", "<duration>"),
    (r#"("host": |127\.0\.0\.1:)(?<it>[1-9][0-9]{4})\b"#, "<port>"),
    (r"\b(?<it>amd64|arm64)\b", "<arch>"),
    (r"(not )?found on the host", "<found on the host or not>"),
    // The size of a pack depends on the version of git.
    (r#""bytes": (?<it>[0-9]+),[ \n]+"files": [0-9]+,[ \n]+"kind": "git""#, "<bytes>"),
    (r#""bytes": (?<it>[0-9]+),[ \n]+"file": "<root>/work/commits[.]mbox""#, "<bytes>"),
    (r"\b(?<it>[0-9a-f]{64})\b", ID),
    (r"\b(?<it>[0-9a-f]{32})\b", ID),
    (r"\b(?<it>[0-9a-f]{16})\b", ID),
    (r"\b(?<it>[0-9a-f]{12})\b", ID),
    (r#""(job_id|output_id|run_id|runId)": "(?<it>[0-9a-f]+)""#, ID),
    (r"\b(coracle-lone|coracle-env|coracle-net)-(?<it>[0-9a-f]{6,8})\b", ID),
];

/// The placeholder of an id, which gets a number.
const ID: &str = "<id>";

/// Replaces ids, times, durations, free ports, the user's directory and the program's version by placeholders, and nothing
/// else.
pub(super) fn normalised(text: &str, root: &Path) -> String {
    let real = root.canonicalize().unwrap_or_else(|_| root.to_owned());
    let mut text = text.to_owned();
    for root in [real.as_path(), root] {
        text = text.replace(&root.display().to_string(), "<root>");
    }
    text = text.replace(env!("CARGO_PKG_VERSION"), "<version>");
    let mut ids = Ids::default();
    for (pattern, word) in VOLATILE {
        let pattern = regex(pattern);
        text = pattern.replace_all(&text, |found: &Captures<'_>| replaced(found, word, &mut ids)).into_owned();
    }
    ids.replace_known(text)
}

/// A pattern whose word boundaries are those of ASCII.
fn regex(pattern: &str) -> Regex {
    Regex::new(&pattern.replace(r"\b", r"(?-u:\b)")).expect("the patterns are right")
}

/// The whole match, with the placeholder in place of the volatile value.
fn replaced(found: &Captures<'_>, word: &str, ids: &mut Ids) -> String {
    let (whole, it) = (found.get_match(), found.name("it").unwrap_or_else(|| found.get_match()));
    let word = if word == ID { ids.word(it.as_str()) } else { word.to_owned() };
    let before = &whole.as_str()[..it.start() - whole.start()];
    let after = &whole.as_str()[it.end() - whole.start()..];
    format!("{before}{word}{after}")
}

/// Numbers of the ids found so far. An id and its first 12 digits have the same number.
#[derive(Debug, Default)]
struct Ids(BTreeMap<String, usize>);

/// Length of a short id.
const SHORT: usize = 12;

impl Ids {
    fn word(&mut self, id: &str) -> String {
        let (known, next) = (id[..id.len().min(SHORT)].to_owned(), self.0.len() + 1);
        let number = *self.0.entry(known).or_insert(next);
        if id.len() > SHORT { format!("<id {number} of {}>", id.len()) } else { format!("<id {number}>") }
    }

    /// Replaces known ids in places where no pattern finds them, such as messages.
    fn replace_known(&self, text: String) -> String {
        self.0.iter().fold(text, |text, (id, number)| {
            let word = regex(&format!(r"\b{id}\b"));
            word.replace_all(&text, format!("<id {number}>")).into_owned()
        })
    }
}

#[test]
fn ids_keep_their_identity_and_the_rest_its_words() {
    let long = "0123456789ab".repeat(5) + "0123";
    let text = format!(
        r#"{{"id": "{long}", "container_id": "{}", "job_id": "00c0ffee", "duration_ms": 12, "bytes": 20480}}
        job 00c0ffee of /tmp/x/work at 2026-01-02T03:04:05.678Z (1.2 s), image {}"#,
        &long[..12],
        "f".repeat(64)
    );
    let expected = r#"{"id": "<id 1 of 64>", "container_id": "<id 1>", "job_id": "<id 3>", "duration_ms": <ms>, "bytes": 20480}
        job <id 3> of <root>/work at <time> (<duration>), image <id 2 of 64>"#;
    assert_eq!(normalised(&text, Path::new("/tmp/x")), expected);
}
