//! Searches lines as they arrive.

use std::time::Instant;

use regex::bytes::Regex;

use super::Slice;
use super::lines::LineCursor;
use crate::protocol::LineMatch;

/// Waits for a line that matches, in both streams in order of arrival.
///
/// Each byte is searched once, except those of the last line: it is searched again whenever it has grown, up to 64 KiB,
/// because a prompt has no newline.
#[derive(Debug)]
pub(crate) struct Watch {
    pattern: Regex,
    lines: LineCursor,
    at: u64,
    /// The end of the last line when it was searched before it had ended.
    searched: u64,
}

impl Watch {
    /// Searches the output after `from` in [`StreamSelector::All`](crate::protocol::StreamSelector::All), existing and future.
    pub(crate) fn new(pattern: Regex, from: u64) -> Self {
        Self { pattern, lines: LineCursor::from(from), at: from, searched: 0 }
    }

    /// Offset of the next slice.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The first matching line in the slice, without context. Searches until the deadline, but at least one line.
    pub(crate) fn search(&mut self, slice: &Slice, until: Instant) -> Option<LineMatch> {
        if self.at > slice.end {
            return None;
        }
        for chunk in &slice.chunks {
            self.lines.join(chunk);
            while let Some(line) = self.lines.next(chunk) {
                self.at = line.end;
                if self.pattern.is_match(line.text) {
                    return Some(line.found());
                }
                if Instant::now() >= until {
                    return None;
                }
            }
        }
        self.at = slice.end;
        let line = self.lines.unfinished().filter(|it| slice.last && it.end > self.searched)?;
        self.searched = line.end;
        self.pattern.is_match(line.text).then(|| line.found())
    }
}
