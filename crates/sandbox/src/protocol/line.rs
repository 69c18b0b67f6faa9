//! Bytes to lines, as they come.

use crate::{Code, Failure, Result};

/// Bytes of a line with its end, at most.
pub const MAX_LINE: usize = 4 << 20;

/// Takes bytes in pieces of any size and gives whole lines.
#[derive(Debug, Default)]
pub struct Lines {
    bytes: Vec<u8>,
    /// Where the next line begins, and up to where no end was found.
    at: usize,
    seen: usize,
}

impl Lines {
    /// Takes a piece. The caller takes all lines before the next piece.
    pub fn push(&mut self, piece: &[u8]) {
        self.bytes.drain(..self.at);
        self.seen -= self.at;
        self.at = 0;
        self.bytes.extend_from_slice(piece);
    }

    /// The next line without its end, if it is there.
    ///
    /// # Errors
    /// `malformed_frame` for one that is longer than [`MAX_LINE`].
    pub fn next_line(&mut self) -> Result<Option<&[u8]>> {
        let end = self.bytes[self.seen..].iter().position(|it| *it == b'\n').map(|it| self.seen + it);
        let length = end.unwrap_or(self.bytes.len()) - self.at;
        if length >= MAX_LINE {
            let message = format!("Malformed worker frame: a line is longer than {MAX_LINE} bytes");
            return Err(Failure::new(Code::MalformedFrame, message));
        }
        let Some(end) = end else {
            self.seen = self.bytes.len();
            return Ok(None);
        };
        let line = self.at..end;
        (self.at, self.seen) = (end + 1, end + 1);
        Ok(Some(&self.bytes[line]))
    }

    /// Whether a line was begun that has no end yet.
    #[must_use]
    pub fn is_within(&self) -> bool {
        self.at < self.bytes.len()
    }
}
