//! Segments of output in order of arrival: their bytes, and the lengths of the runs of each stream.
//!
//! The runs of the two streams alternate and the first is of standard output (and may be empty), so a run is encoded as its
//! length alone: seven bits per byte, lowest first. Even alternating single bytes need at most twice their size.

use std::borrow::Cow;
use std::iter;

use memchr::memchr_iter;

use crate::protocol::{Stream, StreamSelector};

/// Most bytes of an encoded length.
const RUN_BYTES: usize = 3;

/// Bytes and newlines of each stream before a position.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct LogPosition {
    bytes: [u64; 2],
    newlines: [u64; 2],
}

impl LogPosition {
    /// Advances past these bytes.
    pub(super) fn pass(&mut self, stream: Stream, bytes: &[u8]) {
        self.bytes[side(stream)] += bytes.len() as u64;
        self.newlines[side(stream)] += newlines(bytes);
    }

    pub(super) fn offset(&self, part: StreamSelector) -> u64 {
        select_count(part, self.bytes)
    }

    pub(super) fn newlines(&self, part: StreamSelector) -> u64 {
        select_count(part, self.newlines)
    }
}

fn select_count(part: StreamSelector, [stdout, stderr]: [u64; 2]) -> u64 {
    match part {
        StreamSelector::All => stdout + stderr,
        StreamSelector::Stdout => stdout,
        StreamSelector::Stderr => stderr,
    }
}

fn side(stream: Stream) -> usize {
    match stream {
        Stream::Stdout => 0,
        Stream::Stderr => 1,
    }
}

pub(super) fn newlines(bytes: &[u8]) -> u64 {
    memchr_iter(b'\n', bytes).count() as u64
}

/// The bytes of a stream in one segment.
#[derive(Debug)]
pub(super) struct Chunk<'a> {
    /// Bytes of the stream before it.
    pub(super) offset: u64,
    /// Newlines of the stream before it.
    pub(super) newlines: u64,
    pub(super) bytes: Cow<'a, [u8]>,
}

impl Chunk<'_> {
    /// A copy that owns its bytes.
    pub(super) fn into_owned(self) -> Chunk<'static> {
        Chunk { bytes: Cow::Owned(self.bytes.into_owned()), ..self }
    }

    pub(super) fn before(&self, offset: u64) -> &[u8] {
        &self.bytes[..self.within(offset)]
    }

    pub(super) fn after(&self, offset: u64) -> &[u8] {
        &self.bytes[self.within(offset)..]
    }

    fn within(&self, offset: u64) -> usize {
        let within = usize::try_from(offset.saturating_sub(self.offset)).unwrap_or(usize::MAX);
        within.min(self.bytes.len())
    }
}

/// A segment in a slot.
#[derive(Clone, Copy, Debug)]
pub(super) struct SealedSegment {
    pub(super) begin: LogPosition,
    pub(super) slot: u32,
    /// Bytes of output.
    pub(super) bytes: u16,
    /// Bytes of encoded runs, after the output.
    pub(super) runs: u16,
}

impl SealedSegment {
    pub(super) fn len(&self) -> usize {
        usize::from(self.bytes) + usize::from(self.runs)
    }

    /// Extracts the bytes of a stream from the content of the slot.
    pub(super) fn part_bytes(&self, part: StreamSelector, mut image: Vec<u8>) -> Vec<u8> {
        let runs = image.split_off(usize::from(self.bytes));
        match side_of(part) {
            None => image,
            Some(side) => filtered(side, &image, lengths(&runs)),
        }
    }
}

/// The segment to which output is appended.
#[derive(Debug, Default)]
pub(super) struct ActiveSegment {
    bytes: Vec<u8>,
    runs: Vec<u8>,
    /// The stream and the length of the last run, which is not in `runs` yet.
    side: usize,
    run: usize,
}

impl ActiveSegment {
    /// Appends as many of the bytes as fit into a segment of `most` bytes, and returns their number.
    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8], most: usize) -> usize {
        let switches = side(stream) != self.side;
        let taken = self.bytes.len() + self.runs.len() + if switches { 2 * RUN_BYTES } else { RUN_BYTES };
        let count = most.saturating_sub(taken).min(bytes.len());
        self.reserve(count, most);
        self.add(stream, &bytes[..count]);
        count
    }

    fn add(&mut self, stream: Stream, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        if side(stream) != self.side {
            push_length(&mut self.runs, self.run);
            (self.side, self.run) = (side(stream), 0);
        }
        self.bytes.extend_from_slice(bytes);
        self.run += bytes.len();
    }

    /// Limits the growth of the `Vec`, which would double beyond the size of a segment.
    fn reserve(&mut self, count: usize, most: usize) {
        let needed = self.bytes.len() + count;
        if needed > self.bytes.capacity() {
            let capacity = needed.max((2 * self.bytes.capacity()).min(most));
            self.bytes.reserve_exact(capacity - self.bytes.len());
        }
    }

    /// Its bytes followed by its runs, as written to a slot, and the number of each. Only [`reopen`](Self::reopen) and
    /// [`clear`](Self::clear) may follow.
    pub(super) fn image(&mut self) -> (&[u8], u16, u16) {
        let bytes = self.bytes.len();
        self.bytes.reserve_exact(self.runs.len() + RUN_BYTES);
        self.bytes.extend_from_slice(&self.runs);
        push_length(&mut self.bytes, self.run);
        let short = |count: usize| u16::try_from(count).expect("a segment is 64 KiB, and holds lengths of both");
        (&self.bytes, short(bytes), short(self.bytes.len() - bytes))
    }

    /// Removes the runs that [`image`](Self::image) appended to the bytes.
    pub(super) fn reopen(&mut self, bytes: u16) {
        self.bytes.truncate(usize::from(bytes));
    }

    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        (self.side, self.run) = (0, 0);
    }

    /// Removes the first bytes, and advances `begin` past them.
    pub(super) fn evict(&mut self, mut count: usize, begin: &mut LogPosition) {
        let old = std::mem::take(self);
        let mut rest = old.bytes.as_slice();
        for (run, stream) in old.lengths().zip([Stream::Stdout, Stream::Stderr].into_iter().cycle()) {
            let (bytes, others) = rest.split_at(run);
            let (evicted, retained) = bytes.split_at(count.min(run));
            begin.pass(stream, evicted);
            self.add(stream, retained);
            (rest, count) = (others, count - evicted.len());
        }
    }

    pub(super) fn shrink(&mut self) {
        self.bytes.shrink_to_fit();
        self.runs.shrink_to_fit();
    }

    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.bytes.capacity() + self.runs.capacity()
    }

    /// The bytes of a stream.
    pub(super) fn part_bytes(&self, part: StreamSelector) -> Cow<'_, [u8]> {
        match side_of(part) {
            None => Cow::Borrowed(&self.bytes),
            Some(side) => Cow::Owned(filtered(side, &self.bytes, self.lengths())),
        }
    }

    fn lengths(&self) -> impl Iterator<Item = usize> {
        lengths(&self.runs).chain(iter::once(self.run))
    }
}

fn side_of(part: StreamSelector) -> Option<usize> {
    match part {
        StreamSelector::All => None,
        StreamSelector::Stdout => Some(0),
        StreamSelector::Stderr => Some(1),
    }
}

/// The bytes of every other run.
fn filtered(side: usize, mut bytes: &[u8], lengths: impl Iterator<Item = usize>) -> Vec<u8> {
    let mut selected = Vec::new();
    for (at, length) in lengths.enumerate() {
        // The disk may return corrupted data; a length that does not fit must not panic.
        let (run, rest) = bytes.split_at(length.min(bytes.len()));
        if at % 2 == side {
            selected.extend_from_slice(run);
        }
        bytes = rest;
    }
    selected
}

fn push_length(to: &mut Vec<u8>, mut length: usize) {
    while length >= 0x80 {
        to.push(0x80 | (length & 0x7f) as u8);
        length >>= 7;
    }
    to.push(length as u8);
}

fn lengths(mut runs: &[u8]) -> impl Iterator<Item = usize> {
    iter::from_fn(move || {
        let (mut length, mut shift) = (0, 0);
        while let [byte, rest @ ..] = runs {
            runs = rest;
            length |= usize::from(byte & 0x7f) << shift;
            shift += 7;
            if *byte < 0x80 || shift >= 7 * RUN_BYTES {
                return Some(length);
            }
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn encoded_lengths_are_decoded() {
        let all = [0, 1, 127, 128, 16_383, 16_384, 65_535];
        let mut runs = Vec::new();
        all.into_iter().for_each(|it| push_length(&mut runs, it));
        assert_eq!(lengths(&runs).collect::<Vec<_>>(), all);
    }

    #[test]
    fn corrupted_runs_do_not_panic() {
        let sealed = SealedSegment { begin: LogPosition::default(), slot: 0, bytes: 3, runs: 5 };
        assert_eq!(
            sealed.part_bytes(StreamSelector::Stdout, vec![b'a', b'b', b'c', 0xff, 0xff, 0xff, 0xff, 0xff]),
            b"abc"
        );
    }

    #[test]
    fn a_full_segment_fits_into_its_slot() {
        for piece in [1, 2, 127, 128, 5000, 1 << 17] {
            let mut live = ActiveSegment::default();
            let mut turn = [Stream::Stderr, Stream::Stdout].into_iter().cycle();
            while live.push(turn.next().unwrap(), &vec![b'x'; piece], 64 << 10) > 0 {}
            let (bytes, runs) = (live.len(), live.memory());
            assert!(runs <= 160 << 10, "{piece}: {runs}");
            let image = live.image().0.len();
            assert!(image <= 64 << 10 && 2 * bytes >= (64 << 10) - 16, "{piece}: {image} {bytes}");
        }
    }
}
