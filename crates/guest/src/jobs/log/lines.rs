//! Assembles lines from chunks as they arrive.

use memchr::memchr;

use super::segment::{Chunk, newlines};

/// How many bytes of a line are searched.
const MAX_SEARCHED: usize = 64 << 10;

/// How many bytes of a line are returned.
const MAX_RETURNED: usize = 4 << 10;

/// A complete line, or the part of an unfinished one that has arrived.
#[derive(Debug)]
pub(super) struct LogLine<'a> {
    /// Offset of its first byte.
    pub(super) offset: u64,
    /// Counted from 1.
    pub(super) number: u64,
    /// The first 64 KiB, without the line ending.
    pub(super) text: &'a [u8],
    /// Offset of the next line.
    pub(super) end: u64,
}

/// A position in a stream, and the line around it as far as it has arrived.
#[derive(Debug)]
pub(super) struct LineCursor {
    offset: u64,
    /// 0 until the first chunk.
    number: u64,
    /// The part of this line in earlier chunks.
    buffered: Vec<u8>,
    at: u64,
    /// Whether the line has ended; the next one begins at `at`.
    ended: bool,
}

impl LineCursor {
    /// Starts at `offset`, which may be in the middle of a line.
    pub(super) fn from(offset: u64) -> Self {
        Self { offset, number: 0, buffered: Vec::new(), at: offset, ended: false }
    }

    /// Must be called before [`next`](Self::next) with a chunk. If bytes between it and the previous chunk are missing, the
    /// line that they began is lost.
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
            self.buffered.clear();
        }
        let rest = chunk.after(self.at);
        let Some(length) = memchr(b'\n', rest) else {
            self.buffer(rest);
            self.at += rest.len() as u64;
            return None;
        };
        self.at += length as u64 + 1;
        self.ended = true;
        let whole = self.buffered.is_empty();
        if !whole {
            self.buffer(&rest[..length]);
        }
        Some(self.line(if whole { &rest[..length] } else { &self.buffered }))
    }

    /// The last line, if it has not ended yet.
    pub(super) fn unfinished(&self) -> Option<LogLine<'_>> {
        (!self.ended && self.at > self.offset).then(|| self.line(&self.buffered))
    }

    fn line<'a>(&self, text: &'a [u8]) -> LogLine<'a> {
        let text = text.strip_suffix(b"\r").unwrap_or(text);
        LogLine { offset: self.offset, number: self.number, text, end: self.at }
    }

    fn buffer(&mut self, bytes: &[u8]) {
        self.buffered.extend_from_slice(&bytes[..bytes.len().min(MAX_SEARCHED - self.buffered.len())]);
    }
}

/// The returned part of a line, cut between characters.
pub(super) fn cut(line: &[u8]) -> &[u8] {
    if line.len() <= MAX_RETURNED {
        return line;
    }
    let inside = (0..3).take_while(|back| line[MAX_RETURNED - back] & 0xc0 == 0x80).count();
    &line[..MAX_RETURNED - inside]
}

/// A line as text of at most 4 KiB.
pub(super) fn text(line: &[u8]) -> String {
    let mut text = String::from_utf8_lossy(cut(line)).into_owned();
    // The replacement of an invalid byte is three bytes long.
    text.truncate(text.floor_char_boundary(MAX_RETURNED));
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
        assert!(text(&[0xff; 5000]).len() <= MAX_RETURNED);
        assert!(text(&[0x80; 5000]).len() <= MAX_RETURNED);
    }
}
