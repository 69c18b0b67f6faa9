//! Lines, put together from chunks as these come.

use memchr::memchr;

use super::segment::{Chunk, newlines};

/// Bytes of a line that are looked at.
const LOOK: usize = 64 << 10;

/// Bytes of a line that are shown.
const SHOW: usize = 4 << 10;

/// A line, or what there is of it yet.
#[derive(Debug)]
pub(super) struct LogLine<'a> {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Counted from 1.
    pub(super) number: u64,
    /// Without its end; its first 64 KiB.
    pub(super) text: &'a [u8],
    /// Offset of the next line.
    pub(super) end: u64,
}

/// A place in a part, and the line around it as far as it was seen.
#[derive(Debug)]
pub(super) struct LineCursor {
    offset: u64,
    /// 0 until the first chunk.
    number: u64,
    /// The part of this line in earlier chunks.
    held: Vec<u8>,
    at: u64,
    /// The line has ended; the next one begins at `at`.
    ended: bool,
}

impl LineCursor {
    /// The first line is what lies behind `offset`, also in the middle of one.
    pub(super) fn from(offset: u64) -> Self {
        Self { offset, number: 0, held: Vec::new(), at: offset, ended: false }
    }

    /// Must come before [`next`](Self::next) of a chunk. What lies between it and the last one is gone, and with it the
    /// beginning of its first line.
    pub(super) fn join(&mut self, chunk: &Chunk<'_>) {
        if self.at < chunk.offset {
            *self = Self::from(chunk.offset);
        }
        if self.number == 0 {
            self.number = chunk.newlines + newlines(chunk.before(self.at)) + 1;
        }
    }

    /// The next line that ends in the chunk.
    pub(super) fn next<'a>(&'a mut self, chunk: &'a Chunk<'_>) -> Option<LogLine<'a>> {
        if self.ended {
            (self.offset, self.number, self.ended) = (self.at, self.number + 1, false);
            self.held.clear();
        }
        let rest = chunk.behind(self.at);
        let Some(length) = memchr(b'\n', rest) else {
            self.hold(rest);
            self.at += rest.len() as u64;
            return None;
        };
        self.at += length as u64 + 1;
        self.ended = true;
        let whole = self.held.is_empty();
        if !whole {
            self.hold(&rest[..length]);
        }
        Some(self.line(if whole { &rest[..length] } else { &self.held }))
    }

    /// The last line, when it has not ended yet.
    pub(super) fn open(&self) -> Option<LogLine<'_>> {
        (!self.ended && self.at > self.offset).then(|| self.line(&self.held))
    }

    fn line<'a>(&self, text: &'a [u8]) -> LogLine<'a> {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        LogLine { offset: self.offset, number: self.number, text, end: self.at }
    }

    fn hold(&mut self, bytes: &[u8]) {
        self.held.extend_from_slice(&bytes[..bytes.len().min(LOOK - self.held.len())]);
    }
}

/// The shown part of a line, cut between characters.
pub(super) fn cut(line: &[u8]) -> &[u8] {
    if line.len() <= SHOW {
        return line;
    }
    let inside = (0..3).take_while(|back| line[SHOW - back] & 0xc0 == 0x80).count();
    &line[..SHOW - inside]
}

/// A line as text of at most 4 KiB.
pub(super) fn text(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(cut(line)).into_owned();
    // What is no UTF-8 becomes three times as long.
    text.truncate(text.floor_char_boundary(SHOW));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_between_characters() {
        for (line, length) in
            [("é".repeat(3000), 4096), (format!("a{}", "é".repeat(3000)), 4095), ("€".repeat(2000), 4095)]
        {
            let text = text(line.as_bytes());
            assert!(line.starts_with(&text) && text.len() == length, "{} of {}", text.len(), &line[..3]);
        }
        assert!(text(&[0xff; 5000]).len() <= SHOW);
        assert!(text(&[0x80; 5000]).len() <= SHOW);
    }
}
