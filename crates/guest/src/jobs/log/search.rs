//! Searches lines.

use std::collections::VecDeque;
use std::time::Instant;

use regex::bytes::Regex;

use super::Slice;
use super::lines::{LineCursor, LogLine, cut, text};
use crate::protocol::LineMatch;

/// No match is added to a result with this many bytes of text.
const MAX_RESULT_BYTES: usize = 128 << 10;

/// A search in progress. It finds lines that match, with `context` lines before and after each.
///
/// The line of `from` is searched only from there, and context does not include earlier lines. The first 64 KiB of a line
/// are searched and the first 4 KiB are returned. An unfinished last line is searched; unless it matched, the next search
/// starts at its beginning. The result is limited to 128 KiB of text, independent of the request's limit.
#[derive(Debug)]
pub(crate) struct LogSearch {
    lines: LineCursor,
    from: u64,
    at: u64,
    collector: MatchCollector,
    over: bool,
}

impl LogSearch {
    pub(crate) fn new(pattern: Regex, context: usize, most: usize, from: u64) -> Self {
        let collector = MatchCollector::new(pattern, context, most, from);
        Self { lines: LineCursor::from(from), from, at: from, collector, over: false }
    }

    /// Offset of the next slice.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// Whether the search is finished.
    pub(crate) fn is_over(&self) -> bool {
        self.over
    }

    /// Whether at least one line was searched, so that continuing makes progress.
    pub(crate) fn has_advanced(&self) -> bool {
        self.collector.searched > self.from
    }

    /// Searches the slice until the deadline, but at least one line, if one ends in the slice.
    pub(crate) fn search(&mut self, slice: &Slice, until: Instant) {
        for chunk in &slice.chunks {
            self.lines.join(chunk);
            while let Some(line) = self.lines.next(chunk) {
                self.collector.check_line(&line, true);
                self.at = line.end;
                self.over = self.collector.is_full();
                if self.over || Instant::now() >= until {
                    return;
                }
            }
        }
        self.at = slice.end;
        if slice.last {
            self.over = true;
            if let Some(line) = self.lines.unfinished() {
                self.collector.check_line(&line, false);
            }
        }
    }

    /// The matches; whether there is or may be a further one; and the offset at which to continue.
    pub(crate) fn into_result(self) -> (Vec<LineMatch>, bool, u64) {
        let MatchCollector { found, more, match_end, searched, .. } = self.collector;
        (found, more || !self.over, if more { match_end } else { searched })
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
    match_end: u64,
    /// The end of the part that need not be searched again.
    searched: u64,
}

impl MatchCollector {
    fn new(pattern: Regex, context: usize, most: usize, from: u64) -> Self {
        let (found, before) = (Vec::new(), VecDeque::new());
        Self { pattern, context, most, found, taken: 0, more: false, before, match_end: from, searched: from }
    }

    fn check_line(&mut self, line: &LogLine<'_>, ended: bool) {
        let full = self.found.len() >= self.most || self.taken >= MAX_RESULT_BYTES;
        let matches = !self.more && self.pattern.is_match(line.text);
        self.add_after(line);
        if matches && full {
            self.more = true;
        } else if matches {
            self.add(line);
            (self.match_end, self.searched) = (line.end, line.end);
        } else if ended {
            self.searched = line.end;
        }
        self.remember(line);
    }

    fn add(&mut self, line: &LogLine<'_>) {
        let found = LineMatch { before: self.before.iter().map(|it| text(it)).collect(), ..line.found() };
        self.taken += found.text.len() + found.before.iter().map(String::len).sum::<usize>();
        self.found.push(found);
    }

    fn add_after(&mut self, line: &LogLine<'_>) {
        if self.taken >= MAX_RESULT_BYTES {
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
        let mut buffer = oldest.unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(cut(line.text));
        self.before.push_back(buffer);
    }

    fn is_full(&self) -> bool {
        self.more
            && (self.taken >= MAX_RESULT_BYTES || self.found.last().is_none_or(|it| it.after.len() >= self.context))
    }
}

impl LogLine<'_> {
    /// The line as a match without context.
    pub(super) fn found(&self) -> LineMatch {
        let (before, after) = (Vec::new(), Vec::new());
        LineMatch { offset: self.offset, line: self.number, text: text(self.text), before, after }
    }
}
