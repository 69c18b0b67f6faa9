//! Reads lines of a text. The reply's limit bounds memory, independent of the size of file and lines.

use std::io::Read as _;
use std::os::fd::AsFd as _;

use memchr::memchr;
use rustix::fs::fstat;

use super::WorkspaceOperation;
use super::fingerprint::{MAX_READ, Print};
use super::read_range::READER;
use super::tracker::ContentSource;
use crate::files::error::OperationResult;
use crate::files::resolve::content;
use crate::protocol::workspace::{LineEnding, MAX_WORKSPACE_REPLY, TextRange, WorkspaceErrorCode};

/// Limit of lines in a reply, in bytes: a control character takes six in JSON.
const MAX_REPLY: usize = MAX_WORKSPACE_REPLY / 8;

/// Limit of lines in a reply.
const MAX_LINES: u64 = 100_000;

/// Bytes of one read of a file that is too large to be read at once.
const BLOCK: usize = 256 << 10;

impl WorkspaceOperation<'_> {
    pub(super) fn lines(&self, path: &str, (offset, limit, most): (u64, u64, u32)) -> OperationResult<TextRange> {
        let (entry, real) = self.root.open_path(path)?;
        let file = entry.read()?;
        let mut reader = LineReader::new(offset, limit.min(MAX_LINES), (most as usize).min(MAX_REPLY));
        let small = if entry.size() <= MAX_READ { content(&file, MAX_READ)? } else { None };
        let print = match small {
            Some(content) => {
                let text = str::from_utf8(&content).map_err(|_| WorkspaceErrorCode::Binary)?;
                reader.take(text.as_bytes());
                Print::of_content(&content, &fstat(&file)?)
            }
            None => {
                self.stream(&file, &mut reader)?;
                Print::of_stat(&fstat(file.as_fd())?)
            }
        };
        self.tracker.touch(&real, &print, READER, ContentSource::Tool);
        Ok(reader.end())
    }

    /// If the file grows concurrently, reads up to its initial size.
    fn stream(&self, file: &std::fs::File, reader: &mut LineReader) -> OperationResult<()> {
        let mut source = file.take(file.metadata()?.len());
        let (mut block, mut rest) = (vec![0; BLOCK], 0);
        while !self.stop.is_set() {
            let read = match source.read(&mut block[rest..]) {
                Err(err) if err.kind() == std::io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            let all = rest + read;
            let whole = match str::from_utf8(&block[..all]) {
                Ok(text) => text.len(),
                // A character may continue in the next block.
                Err(err) if err.error_len().is_none() && read > 0 => err.valid_up_to(),
                Err(_) => return Err(WorkspaceErrorCode::Binary.into()),
            };
            reader.take(&block[..whole]);
            if read == 0 {
                break;
            }
            block.copy_within(whole..all, 0);
            rest = all - whole;
        }
        Ok(())
    }
}

/// Collects the requested lines of a text.
#[derive(Debug)]
struct LineReader {
    offset: u64,
    limit: u64,
    most: usize,
    lines: Vec<String>,
    /// Bytes that still fit into the reply.
    room: usize,
    full: bool,
    cut: u64,
    /// The current line: its beginning, its length, and whether its last byte is `\r`.
    line: Vec<u8>,
    length: u64,
    returns: bool,
    /// Complete lines so far, and those that end in `\r\n`.
    ended: u64,
    crlf: u64,
    size: u64,
}

impl LineReader {
    fn new(offset: u64, limit: u64, most: usize) -> Self {
        Self {
            offset,
            limit,
            most,
            lines: Vec::new(),
            room: most,
            full: false,
            cut: 0,
            line: Vec::new(),
            length: 0,
            returns: false,
            ended: 0,
            crlf: 0,
            size: 0,
        }
    }

    fn take(&mut self, mut bytes: &[u8]) {
        self.size += bytes.len() as u64;
        while let Some(end) = memchr(b'\n', bytes) {
            self.add(&bytes[..end]);
            self.end_line(true);
            bytes = &bytes[end + 1..];
        }
        self.add(bytes);
    }

    fn wants(&self) -> bool {
        !self.full && self.ended >= self.offset && (self.lines.len() as u64) < self.limit
    }

    fn add(&mut self, part: &[u8]) {
        let Some(last) = part.last() else { return };
        self.returns = *last == b'\r';
        self.length += part.len() as u64;
        if self.wants() {
            // One byte more than fits, which may be a `\r`; the rest of the line is skipped.
            let room = (self.room + 1).saturating_sub(self.line.len());
            self.line.extend_from_slice(&part[..part.len().min(room)]);
        }
    }

    fn end_line(&mut self, newline: bool) {
        let returns = newline && self.returns;
        if self.wants() {
            self.push_line(self.length - u64::from(returns));
        }
        self.ended += 1;
        self.crlf += u64::from(returns);
        self.line.clear();
        (self.length, self.returns) = (0, false);
    }

    fn push_line(&mut self, length: u64) {
        let first = self.lines.is_empty();
        let needed = length + u64::from(!first);
        if needed <= self.room as u64 {
            self.room -= usize::try_from(needed).unwrap_or(self.room);
            self.line.truncate(usize::try_from(length).unwrap_or(usize::MAX));
            self.lines.push(String::from_utf8_lossy(&self.line).into_owned());
            return;
        }
        self.full = true;
        if first {
            self.line.truncate(self.most);
            let fitting = match str::from_utf8(&self.line) {
                Ok(text) => text,
                Err(err) => str::from_utf8(&self.line[..err.valid_up_to()]).unwrap_or_default(),
            };
            self.cut = length - fitting.len() as u64;
            self.lines.push(fitting.to_owned());
        }
    }

    fn end(mut self) -> TextRange {
        let (newlines, final_newline) = (self.ended, self.ended > 0 && self.length == 0);
        if self.length > 0 {
            self.end_line(false);
        }
        let ending = match (newlines, self.crlf) {
            (0, _) => LineEnding::None,
            (_, 0) => LineEnding::Lf,
            (all, crlf) if all == crlf => LineEnding::Crlf,
            _ => LineEnding::Mixed,
        };
        let (total, offset) = (self.ended, self.offset.min(self.ended));
        TextRange { lines: self.lines, offset, total, cut: self.cut, size: self.size, ending, final_newline }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str, piece: usize, (offset, limit, most): (u64, u64, usize)) -> TextRange {
        let mut reader = LineReader::new(offset, limit, most);
        for piece in text.as_bytes().chunks(piece) {
            reader.take(piece);
        }
        reader.end()
    }

    #[test]
    fn w21_only_a_newline_ends_a_line() {
        let text = read("a\u{c}b\u{2028}c\rd\r\ne", 1, (0, 10, 100));
        assert_eq!(text.lines, ["a\u{c}b\u{2028}c\rd", "e"]);
        assert_eq!((text.total, text.ending, text.final_newline), (2, LineEnding::Crlf, false));
        let ends = [("", LineEnding::None, false), ("x", LineEnding::None, false), ("x\n", LineEnding::Lf, true)];
        for (content, ending, newline) in ends.into_iter().chain([("\r\n\n", LineEnding::Mixed, true)]) {
            let text = read(content, 3, (0, 10, 100));
            assert_eq!((text.ending, text.final_newline), (ending, newline), "{content:?}");
        }
    }

    #[test]
    fn w22_the_first_line_is_cut_and_no_other() {
        let text = read("äöü\nab\n", 1, (0, 10, 3));
        assert_eq!((text.lines, text.cut), (vec!["ä".to_owned()], 4));
        let text = read("ab\näöü\n", 1, (0, 10, 6));
        assert_eq!((text.lines, text.cut, text.total), (vec!["ab".to_owned()], 0, 2));
        assert_eq!(read("abc\r\n", 1, (0, 10, 3)).lines, ["abc"]);
        assert_eq!(read("abcd\r\n", 1, (0, 10, 3)).cut, 1);
    }

    proptest! {
        #[test]
        fn lines_are_those_between_newlines(
            text in "[ab\r\nä]{0,40}", piece in 1usize..50, offset in 0u64..6, limit in 0u64..6, most in 0usize..30,
        ) {
            // The definition: parts between newlines, the last one only if it is not empty, without `\r` at the end.
            let mut all: Vec<&str> = text.split('\n').collect();
            let last = all.pop().unwrap();
            let mut all: Vec<String> = all.iter().map(|it| it.strip_suffix('\r').unwrap_or(it).to_owned()).collect();
            if !last.is_empty() {
                all.push(last.to_owned());
            }
            let range = read(&text, piece, (offset, limit, most));
            prop_assert_eq!(range.total, all.len() as u64);
            prop_assert_eq!(range.offset, offset.min(range.total));
            let from = range.offset as usize;
            let mut size = 0;
            for (index, line) in range.lines.iter().enumerate() {
                let real = &all[from + index];
                if range.cut > 0 {
                    prop_assert_eq!((index, range.lines.len()), (0, 1));
                    prop_assert!(real.starts_with(line.as_str()));
                    prop_assert_eq!(real.len(), line.len() + range.cut as usize);
                } else {
                    prop_assert_eq!(line, real);
                }
                size += line.len() + usize::from(index > 0);
            }
            prop_assert!(size <= most && range.lines.len() as u64 <= limit);
            let next = all.get(from + range.lines.len());
            let stopped = range.lines.len() as u64 == limit || range.cut > 0;
            prop_assert!(stopped || next.is_none_or(|it| size + it.len() + usize::from(size > 0 || !range.lines.is_empty()) > most));
        }
    }
}
