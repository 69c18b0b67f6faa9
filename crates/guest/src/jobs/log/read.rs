//! Reads retained output, by bytes and by lines.

use memchr::memchr_iter;

use super::OutputLog;
use super::segment::{Chunk, LogPosition};
use crate::protocol::{Position, StreamSelector};

/// A copy of some segments, which can be searched while others use the log.
#[derive(Debug)]
pub(crate) struct Slice {
    pub(super) chunks: Vec<Chunk<'static>>,
    /// Offset of the next page.
    pub(super) end: u64,
    /// Whether no output followed it yet.
    pub(super) last: bool,
}

impl OutputLog {
    /// Reads at most `limit` bytes from `offset`, or from the oldest retained byte; returns the offset of the first byte.
    pub(crate) fn read(&self, part: StreamSelector, offset: u64, limit: usize) -> (u64, Vec<u8>) {
        let mut begin = offset.clamp(self.first(part), self.total(part));
        let mut bytes = Vec::new();
        for chunk in self.chunks(part, begin) {
            if bytes.is_empty() {
                begin = begin.max(chunk.offset);
            }
            let at = begin + bytes.len() as u64;
            // After a slot that could not be read, a new page begins.
            if bytes.len() == limit || chunk.offset > at {
                break;
            }
            let rest = chunk.after(at);
            bytes.extend_from_slice(&rest[..rest.len().min(limit - bytes.len())]);
        }
        (begin, bytes)
    }

    /// The offset of a position. For an evicted line it is the oldest retained byte, for a future one the end.
    pub(crate) fn resolve(&self, part: StreamSelector, from: Position) -> u64 {
        let (first, total) = (self.first(part), self.total(part));
        let offset = match from {
            Position::Offset(offset) => {
                u64::try_from(offset).unwrap_or_else(|_| total.saturating_sub(offset.unsigned_abs()))
            }
            Position::Line(line) => self.after_newline(part, line.saturating_sub(1)),
        };
        offset.clamp(first, total)
    }

    /// The last lines of both streams in order of arrival: their offset in [`StreamSelector::All`], and their bytes. More than
    /// `limit` bytes are cut from the front, at the start of a character.
    pub(crate) fn tail(&self, lines: u64, limit: usize) -> (u64, Vec<u8>) {
        let (first, total) = (self.first(StreamSelector::All), self.total(StreamSelector::All));
        let unfinished =
            !matches!(self.read(StreamSelector::All, total.saturating_sub(1), 1).1.as_slice(), [] | [b'\n']);
        let all = self.end.newlines(StreamSelector::All) + u64::from(unfinished);
        let line = if lines == 0 {
            total
        } else {
            self.resolve(StreamSelector::All, Position::Line((all + 1).saturating_sub(lines)))
        };
        let (mut begin, mut bytes) =
            self.read(StreamSelector::All, line.max(total.saturating_sub(limit as u64)), limit);
        if begin > line || begin == first && first > 0 {
            let inside = bytes.iter().take(3).take_while(|it| **it & 0xc0 == 0x80).count();
            bytes.drain(..inside);
            begin += inside as u64;
        }
        (begin, bytes)
    }

    /// The offset after that newline, counted from 1; newline 0 is the beginning.
    fn after_newline(&self, part: StreamSelector, newline: u64) -> u64 {
        if newline <= self.oldest().newlines(part) {
            return 0;
        }
        if newline > self.end.newlines(part) {
            return self.total(part);
        }
        let index = self.last_segment(|it| it.newlines(part) < newline);
        let Some(chunk) = self.chunk(index, part) else { return self.begin_of(index).offset(part) };
        let within = usize::try_from(newline - chunk.newlines - 1).expect("a segment is 64 KiB");
        chunk.offset + memchr_iter(b'\n', &chunk.bytes).nth(within).map_or(0, |it| it as u64 + 1)
    }

    /// The bytes of a stream in each segment, starting with the segment of `offset`. Unreadable slots are skipped.
    pub(super) fn chunks(&self, part: StreamSelector, offset: u64) -> impl Iterator<Item = Chunk<'_>> {
        let index = self.last_segment(|it| it.offset(part) <= offset);
        (index..=self.sealed.len()).filter_map(move |index| self.chunk(index, part))
    }

    /// As [`chunks`](Self::chunks), but only of that many segments.
    pub(crate) fn slice(&self, part: StreamSelector, offset: u64, segments: usize) -> Slice {
        let index = self.last_segment(|it| it.offset(part) <= offset);
        let end_index = (index + segments).min(self.sealed.len() + 1);
        let last = end_index > self.sealed.len();
        let chunks = (index..end_index).filter_map(|it| self.chunk(it, part)).map(Chunk::into_owned).collect();
        let end = if last { self.total(part) } else { self.begin_of(end_index).offset(part) };
        Slice { chunks, end, last }
    }

    fn chunk(&self, index: usize, part: StreamSelector) -> Option<Chunk<'_>> {
        let begin = self.begin_of(index);
        let bytes = match self.sealed.get(index) {
            None => self.live.part_bytes(part),
            Some(_) if begin.offset(part) == self.begin_of(index + 1).offset(part) => Vec::new().into(),
            Some(it) => it.part_bytes(part, self.spill.read(it.slot, it.len())?).into(),
        };
        Some(Chunk { offset: begin.offset(part), newlines: begin.newlines(part), bytes })
    }

    /// The last segment whose beginning matches, if it matches for all before it; the oldest one if none matches.
    fn last_segment(&self, matches: impl Fn(&LogPosition) -> bool) -> usize {
        match matches(&self.begin) {
            true => self.sealed.len(),
            false => self.sealed.partition_point(|it| matches(&it.begin)).saturating_sub(1),
        }
    }

    pub(super) fn begin_of(&self, index: usize) -> &LogPosition {
        self.sealed.get(index).map_or(&self.begin, |it| &it.begin)
    }
}
