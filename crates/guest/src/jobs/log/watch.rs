//! Looking at lines as they come.

use std::time::Instant;

use regex::bytes::Regex;

use super::Slice;
use super::lines::LineCursor;
use crate::protocol::LineMatch;

/// Waits for a line of both streams in order of arrival.
///
/// Searches every byte once, except those of the last line: that one is searched again whenever it has grown, up to 64
/// KiB, because a prompt has no newline.
#[derive(Debug)]
pub(crate) struct Watch {
    pattern: Regex,
    lines: LineCursor,
    at: u64,
    /// The end of the last line when it was looked at before it had ended.
    looked: u64,
}

impl Watch {
    /// Searches the output after `from`, in [`Part::All`](crate::protocol::Part::All), now or later.
    pub(crate) fn new(pattern: Regex, from: u64) -> Self {
        Self { pattern, lines: LineCursor::from(from), at: from, looked: 0 }
    }

    /// Offset of the next slice.
    pub(crate) fn at(&self) -> u64 {
        self.at
    }

    /// The first line that matches in the slice, which is looked at until then, but for one line at least. It comes
    /// without context.
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
        let line = self.lines.open().filter(|it| slice.last && it.end > self.looked)?;
        self.looked = line.end;
        self.pattern.is_match(line.text).then(|| line.found())
    }
}
