//! Looking for lines.

use std::collections::VecDeque;
use std::time::Instant;

use regex::bytes::Regex;

use super::Slice;
use super::lines::{LineCursor, LogLine, cut, text};
use crate::protocol::LineMatch;

/// Bytes of text in an answer after which nothing is added.
const ANSWER: usize = 128 << 10;

/// A search under way, which finds lines that match, with so many lines before and after each.
///
/// The line of `from` is searched from there on, and nothing before it is part of the context. The first 64 KiB of a
/// line are searched and the first 4 KiB are returned. An unfinished last line is searched; unless it matched, the next
/// search starts at its beginning. The result is limited to 128 KiB of text, whatever the request's limit is.
#[derive(Debug)]
pub(crate) struct LogSearch {
    lines: LineCursor,
    from: u64,
    at: u64,
    haul: MatchCollector,
    over: bool,
}

impl LogSearch {
    pub(crate) fn new(pattern: Regex, context: usize, most: usize, from: u64) -> Self {
        let haul = MatchCollector::new(pattern, context, most, from);
        Self { lines: LineCursor::from(from), from, at: from, haul, over: false }
    }

    /// Offset of the next slice.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Nothing is left to look at.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// A line at least was looked at, so that going on is no standstill.
    pub(crate) fn has_advanced(&self) -> bool {
        self.haul.seen > self.from
    }

    /// Searches at least one line, if one ends in the slice, and all of the slice if there is time until then.
    pub(crate) fn search(&mut self, slice: &Slice, until: Instant) {
        for chunk in &slice.chunks {
            self.lines.join(chunk);
            while let Some(line) = self.lines.next(chunk) {
                self.haul.check_line(&line, true);
                self.at = line.end;
                self.over = self.haul.is_full();
                if self.over || Instant::now() >= until {
                    return;
                }
            }
        }
        self.at = slice.end;
        if slice.last {
            self.over = true;
            if let Some(line) = self.lines.open() {
                self.haul.check_line(&line, false);
            }
        }
    }

    /// The matches; whether there is or may be a further one; and where to continue.
    pub(crate) fn answer(self) -> (Vec<LineMatch>, bool, u64) {
        let MatchCollector { found, more, behind, seen, .. } = self.haul;
        (found, more || !self.over, if more { behind } else { seen })
    }
}

/// The matches of a search.
#[derive(Debug)]
struct MatchCollector {
    pattern: Regex,
    context: usize,
    most: usize,
    found: Vec<LineMatch>,
    /// Bytes of text in `found`.
    taken: usize,
    more: bool,
    /// The last lines, for the next match.
    before: VecDeque<Vec<u8>>,
    /// The end of the last line in `found`.
    behind: u64,
    /// The end of what has not to be looked at again.
    seen: u64,
}

impl MatchCollector {
    fn new(pattern: Regex, context: usize, most: usize, from: u64) -> Self {
        let (found, before) = (Vec::new(), VecDeque::new());
        Self { pattern, context, most, found, taken: 0, more: false, before, behind: from, seen: from }
    }

    fn check_line(&mut self, line: &LogLine<'_>, ended: bool) {
        let full = self.found.len() >= self.most || self.taken >= ANSWER;
        let matches = !self.more && self.pattern.is_match(line.text);
        self.add_after(line);
        if matches && full {
            self.more = true;
        } else if matches {
            self.add(line);
            (self.behind, self.seen) = (line.end, line.end);
        } else if ended {
            self.seen = line.end;
        }
        self.remember(line);
    }

    fn add(&mut self, line: &LogLine<'_>) {
        let found = LineMatch { before: self.before.iter().map(|it| text(it)).collect(), ..line.found() };
        self.taken += found.text.len() + found.before.iter().map(String::len).sum::<usize>();
        self.found.push(found);
    }

    fn add_after(&mut self, line: &LogLine<'_>) {
        if self.taken >= ANSWER {
            return;
        }
        let context = self.context;
        for found in self.found.iter_mut().rev().take_while(|it| it.after.len() < context) {
            found.after.push(text(line.text));
            self.taken += found.after.last().map_or(0, String::len);
        }
    }

    fn remember(&mut self, line: &LogLine<'_>) {
        if self.context == 0 {
            return;
        }
        let oldest = if self.before.len() == self.context { self.before.pop_front() } else { None };
        let mut room = oldest.unwrap_or_default();
        room.clear();
        room.extend_from_slice(cut(line.text));
        self.before.push_back(room);
    }

    fn is_full(&self) -> bool {
        self.more && (self.taken >= ANSWER || self.found.last().is_none_or(|it| it.after.len() >= self.context))
    }
}

impl LogLine<'_> {
    /// The line as a match without context.
    pub(super) fn found(&self) -> LineMatch {
        let (before, after) = (Vec::new(), Vec::new());
        LineMatch { offset: self.offset, line: self.number, text: text(self.text), before, after }
    }
}
