//! Redacts secrets in Coracle's own output: errors, reports, logs, audit.

mod stream_redactor;
mod tokens;

use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use aho_corasick::{AhoCorasick, AhoCorasickKind};
use coracle_protocol::secret_encodings::{self, MIN_BYTES};

pub use self::stream_redactor::StreamRedactor;
use crate::Secret;

/// Redacts live secrets in a text, in the forms that programs write them in.
///
/// Truncate a text after it was redacted, not before: half a secret is not found.
#[derive(Clone, Default)]
pub struct Redactor {
    /// Finds the forms of all values; `None` if there are none.
    finder: Option<AhoCorasick>,
    /// The name of the value for each of the finder's patterns.
    names: Arc<[Arc<str>]>,
    /// The values themselves, for truncated ones, which the finder does not match.
    patterns: Arc<[Vec<u8>]>,
}

impl Redactor {
    /// Adds values with the names that replace them. Ignores values of less than 8 bytes, not counting blanks around
    /// them.
    #[must_use]
    pub fn new(secrets: Vec<(String, Secret)>) -> Self {
        let (mut patterns, mut names) = (vec![], vec![]);
        for (name, secret) in secrets {
            let name: Arc<str> = name.into();
            let value = secret.reveal().trim_ascii();
            if value.len() >= MIN_BYTES {
                let forms = secret_encodings::encode_all(value);
                names.extend(std::iter::repeat_n(name, forms.len()));
                patterns.extend(forms);
            }
        }
        if patterns.is_empty() {
            return Self::default();
        }
        // The automaton that is built fastest, since one is built per call, for a few KiB.
        let mut builder = AhoCorasick::builder();
        let builder = builder.kind(Some(AhoCorasickKind::NoncontiguousNFA));
        let finder = builder.build(&patterns).expect("an environment is far smaller than 2 GiB");
        Self { finder: Some(finder), names: names.into(), patterns: patterns.into() }
    }

    /// The text with `[redacted:NAME]` for every value, and `://[redacted]@` for every user part of a URL.
    #[must_use]
    pub fn clean(&self, text: &str) -> String {
        without_url_users(&self.without_values(text))
    }

    /// Like [`clean`](Self::clean), and replaces any text that looks like a credential by `[redacted:token]`. For
    /// Coracle's own texts: in a command's output it would remove harmless text.
    #[must_use]
    pub fn clean_strictly(&self, text: &str) -> String {
        tokens::without(&self.clean(text))
    }

    fn without_values(&self, text: &str) -> String {
        let mut cleaned = String::with_capacity(text.len());
        let mut rest = 0;
        for (range, name) in self.found(text) {
            cleaned.push_str(&text[rest..range.start]);
            cleaned.push_str("[redacted:");
            cleaned.push_str(&name);
            cleaned.push(']');
            rest = range.end;
        }
        cleaned.push_str(&text[rest..]);
        cleaned
    }

    /// Positions of values, in order. Overlapping ones are merged under the name of the longest: no part of one
    /// remains.
    fn found(&self, text: &str) -> Vec<(Range<usize>, Arc<str>)> {
        // A value that is not UTF-8 may begin or end within a character.
        self.found_in(text.as_bytes(), |it| text.floor_char_boundary(it.start)..text.ceil_char_boundary(it.end))
    }

    fn found_in(&self, bytes: &[u8], widen: impl Fn(Range<usize>) -> Range<usize>) -> Vec<(Range<usize>, Arc<str>)> {
        let Some(finder) = &self.finder else { return vec![] };
        let mut all: Vec<_> = finder.find_overlapping_iter(bytes).map(|it| (it.range(), it.pattern())).collect();
        all.sort_by_key(|(range, _)| (range.start, std::cmp::Reverse(range.end)));
        let mut merged: Vec<(Range<usize>, usize, Arc<str>)> = vec![];
        for (range, pattern) in all {
            let whole = widen(range.clone());
            match merged.last_mut() {
                Some((last, longest, name)) if whole.start < last.end => {
                    last.end = last.end.max(whole.end);
                    if range.len() > *longest {
                        (*longest, *name) = (range.len(), self.names[pattern].clone());
                    }
                }
                _ => merged.push((whole, range.len(), self.names[pattern].clone())),
            }
        }
        merged.into_iter().map(|(range, _, name)| (range, name)).collect()
    }
}

impl fmt::Debug for Redactor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut names: Vec<_> = self.names.iter().collect();
        names.dedup();
        f.debug_tuple("Redactor").field(&names).finish()
    }
}

fn without_url_users(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        cleaned.push_str(before);
        let ends = |it: char| it.is_whitespace() || it.is_control() || "/?#\"<>\\`".contains(it);
        let authority = &after[..after.find(ends).unwrap_or(after.len())];
        let user = authority.rfind('@').unwrap_or(0);
        if user > 0 {
            cleaned.push_str("[redacted]");
        }
        rest = &after[user..];
    }
    cleaned + rest
}

#[cfg(test)]
mod tests;
