//! Looking at lines as they come.

use regex::bytes::Regex;

use super::Log;
use super::lines::Lines;
use crate::wire::{Match, Part};

/// Waits for a line of both streams in order of arrival.
///
/// It looks at every byte once, but for those of the last line: that one is looked at again whenever it has grown, up to
/// 64 KiB, because a prompt has no newline.
#[derive(Debug)]
pub(crate) struct Watch {
    pattern: Regex,
    lines: Lines,
    /// The end of the last line when it was looked at before it had ended.
    looked: u64,
}

impl Watch {
    /// Looks at what lies behind `from`, in [`Part::All`], now or later.
    pub(crate) fn new(pattern: Regex, from: u64) -> Self {
        Self { pattern, lines: Lines::from(from), looked: 0 }
    }

    /// The first line that matches among those that came since the last call. It comes without context.
    pub(crate) fn look(&mut self, log: &Log) -> Option<Match> {
        if self.lines.at() > log.total(Part::All) {
            return None;
        }
        for chunk in log.chunks(Part::All, self.lines.at()) {
            self.lines.join(&chunk);
            while let Some(line) = self.lines.next(&chunk) {
                if self.pattern.is_match(line.text) {
                    return Some(line.found());
                }
            }
        }
        let line = self.lines.open().filter(|it| it.end > self.looked)?;
        self.looked = line.end;
        self.pattern.is_match(line.text).then(|| line.found())
    }
}
