//! Redacts values in bytes that arrive in pieces, or were truncated.

use super::Redactor;

/// Minimum length of a truncated value: shorter matches are coincidental.
const LEAST: usize = 4;

impl Redactor {
    /// Whether it has no values.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.finder.is_none()
    }

    /// Length of the longest form of a value.
    #[must_use]
    pub fn longest(&self) -> usize {
        self.patterns.iter().map(Vec::len).max().unwrap_or(0)
    }

    /// Replaces every value by `[redacted:NAME]`. `before` and `after` are the bytes around them, which are not
    /// returned: they are used to find values that begin or end there.
    #[must_use]
    pub fn clean_between(&self, before: &[u8], bytes: &[u8], after: &[u8]) -> Vec<u8> {
        if self.is_empty() {
            return bytes.to_vec();
        }
        let (begin, end) = (before.len(), before.len() + bytes.len());
        let all = [before, bytes, after].concat();
        let (mut cleaned, mut rest) = (Vec::with_capacity(bytes.len()), begin);
        for (range, name) in self.found_in(&all, |it| it) {
            if range.end <= begin || range.start >= end {
                continue;
            }
            cleaned.extend_from_slice(&all[rest..range.start.max(begin)]);
            cleaned.extend_from_slice(format!("[redacted:{name}]").as_bytes());
            rest = range.end.min(end);
        }
        cleaned.extend_from_slice(&all[rest..end]);
        cleaned
    }

    /// Number of bytes at the end that may be the start of a value, including a value that they overlap.
    #[must_use]
    pub fn unfinished(&self, bytes: &[u8]) -> usize {
        self.unfinished_of(bytes, LEAST)
    }

    fn unfinished_of(&self, bytes: &[u8], least: usize) -> usize {
        let part = |it: &[u8]| (least..it.len()).rev().find(|length| bytes.ends_with(&it[..*length]));
        let end = bytes.len() - self.patterns.iter().filter_map(|it| part(it)).max().unwrap_or(0);
        // A value is not separated from one that it overlaps.
        let parted = self.found_in(bytes, |it| it).into_iter().find(|(it, _)| it.start < end && it.end > end);
        bytes.len() - parted.map_or(end, |(it, _)| it.start)
    }

    /// Number of bytes at the start that may be the end of a value, including a value that they overlap.
    #[must_use]
    pub fn left_over(&self, bytes: &[u8]) -> usize {
        let part = |it: &[u8]| (LEAST..it.len()).rev().find(|length| bytes.starts_with(&it[it.len() - length..]));
        let begin = self.patterns.iter().filter_map(|it| part(it)).max().unwrap_or(0);
        let parted = self.found_in(bytes, |it| it).into_iter().find(|(it, _)| it.start < begin && it.end > begin);
        parted.map_or(begin, |(it, _)| it.end)
    }

    /// A redactor for text that arrives in pieces.
    #[must_use]
    pub fn sieve(&self) -> StreamRedactor {
        StreamRedactor { redactor: self.clone(), held: Vec::new() }
    }
}

/// Redacts a stream piece by piece: bytes that may be the start of a value are held back until more arrives.
#[derive(Debug)]
pub struct StreamRedactor {
    redactor: Redactor,
    held: Vec<u8>,
}

impl StreamRedactor {
    /// Adds a piece, and returns the text that can be forwarded.
    pub fn push(&mut self, piece: &[u8]) -> Vec<u8> {
        self.held.extend_from_slice(piece);
        let safe = self.held.len() - self.redactor.unfinished_of(&self.held, 1);
        let rest = self.held.split_off(safe);
        let ready = std::mem::replace(&mut self.held, rest);
        self.redactor.clean_between(&[], &ready, &[])
    }

    /// Returns the text that was held back, at the end of the input.
    pub fn end(self) -> Vec<u8> {
        self.redactor.clean_between(&[], &self.held, &[])
    }
}
