//! Retains the output of commands, within limits.
//!
//! An [`OutputLog`] is a sequence of segments of at most 64 KiB, in order of arrival. The last one is in memory, the others
//! are in slots of the [`Spill`] that all logs of a guest share; memory contains only where each of them begins, in bytes and
//! in lines, so that any position is found by reading one segment. A log always retains the end of the output without a
//! gap: the oldest segment is evicted first.

mod lines;
mod read;
mod search;
mod segment;
mod spill;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::VecDeque;
use std::sync::Arc;

use self::segment::{ActiveSegment, LogPosition, SealedSegment};
use crate::protocol::{Stream, StreamSelector};

pub(crate) use self::read::Slice;
pub(crate) use self::search::LogSearch;
pub(crate) use self::spill::Spill;
pub(crate) use self::watch::Watch;

/// Segments in one slice: 1 MiB.
pub(crate) const SEGMENTS_PER_SLICE: usize = 16;

/// How many bytes of a finished log may stay in memory.
const SMALL: usize = 2 << 10;

/// The retained output of a command.
#[derive(Debug)]
pub(crate) struct OutputLog {
    spill: Arc<Spill>,
    max_bytes: u64,
    sealed: VecDeque<SealedSegment>,
    live: ActiveSegment,
    /// The start of `live`.
    begin: LogPosition,
    end: LogPosition,
}

impl OutputLog {
    /// Creates a log that retains at most `max_bytes`.
    pub(crate) fn new(spill: Arc<Spill>, max_bytes: u64) -> Self {
        let (begin, end) = (LogPosition::default(), LogPosition::default());
        Self { spill, max_bytes, sealed: VecDeque::new(), live: ActiveSegment::default(), begin, end }
    }

    /// Appends output.
    pub(crate) fn append(&mut self, stream: Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = self.live.push(stream, bytes, self.spill.slot_bytes());
            if count == 0 {
                // Seal only half of it: if each byte is a separate run, half of the content may already fill half of a slot.
                self.seal(self.live.len() / 2);
                continue;
            }
            self.end.pass(stream, &bytes[..count]);
            bytes = &bytes[count..];
            self.enforce_limit();
        }
    }

    /// Marks the end of the output: everything in memory beyond 2 KiB is moved to the spill.
    pub(crate) fn finish(&mut self) {
        if self.live.len() > SMALL {
            self.seal(SMALL);
        }
        self.live.shrink();
        self.sealed.shrink_to_fit();
    }

    /// Discards all retained output, and returns its size in bytes. Totals do not change.
    pub(crate) fn discard(&mut self) -> u64 {
        let retained = self.retained();
        self.release();
        self.live = ActiveSegment::default();
        self.begin = self.end;
        retained
    }

    /// Bytes that were printed.
    pub(crate) fn total(&self, part: StreamSelector) -> u64 {
        self.end.offset(part)
    }

    /// Offset of the oldest retained byte.
    pub(crate) fn first(&self, part: StreamSelector) -> u64 {
        self.oldest().offset(part)
    }

    /// Retained bytes of both streams.
    pub(crate) fn retained(&self) -> u64 {
        self.total(StreamSelector::All) - self.first(StreamSelector::All)
    }

    /// Bytes of both streams that are no longer retained.
    pub(crate) fn dropped(&self) -> u64 {
        self.first(StreamSelector::All)
    }

    /// Bytes of memory in use.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.live.memory() + self.sealed.capacity() * size_of::<SealedSegment>()
    }

    fn oldest(&self) -> &LogPosition {
        self.sealed.front().map_or(&self.begin, |it| &it.begin)
    }

    fn enforce_limit(&mut self) {
        while self.retained() > self.max_bytes && self.evict_oldest() {}
        if self.retained() > self.max_bytes {
            // Only the segment in memory is left. Evict half of it, so that not every byte moves all retained ones.
            self.evict_from_memory(usize::try_from(self.max_bytes / 2).unwrap_or(usize::MAX));
        }
    }

    /// Moves the segment in memory to a slot. Without a free slot, only its last `rest` bytes are retained.
    fn seal(&mut self, rest: usize) {
        let begin = self.begin;
        let mut live = std::mem::take(&mut self.live);
        let (image, bytes, runs) = live.image();
        let slot = self.store(image);
        self.live = live;
        let Some(slot) = slot else {
            self.live.reopen(bytes);
            self.release();
            self.evict_from_memory(rest);
            return;
        };
        if self.sealed.len() == self.sealed.capacity() {
            // Doubling the capacity would leave half of it unused when the log is full.
            self.sealed.reserve_exact(self.sealed.len().clamp(4, 256));
        }
        self.sealed.push_back(SealedSegment { begin, slot, bytes, runs });
        self.live.clear();
        self.begin = self.end;
    }

    /// Writes a segment to a slot: a new one, or else that of the oldest segment of this log.
    fn store(&mut self, image: &[u8]) -> Option<u32> {
        let mut attempts = 2;
        while attempts > 0 {
            if let Some(slot) = self.spill.take() {
                if self.spill.write(slot, image) {
                    return Some(slot);
                }
                self.spill.release(slot);
                attempts -= 1;
            }
            // On a full disk, the slots that are in use can still be reused.
            if !self.evict_oldest() {
                return None;
            }
        }
        None
    }

    fn evict_oldest(&mut self) -> bool {
        let Some(oldest) = self.sealed.pop_front() else { return false };
        self.spill.release(oldest.slot);
        true
    }

    fn evict_from_memory(&mut self, rest: usize) {
        let count = self.live.len().saturating_sub(rest);
        self.live.evict(count, &mut self.begin);
    }

    /// Releases all slots, and their space on the disk.
    fn release(&mut self) {
        for sealed in std::mem::take(&mut self.sealed) {
            self.spill.punch(sealed.slot);
            self.spill.release(sealed.slot);
        }
    }
}

impl Drop for OutputLog {
    fn drop(&mut self) {
        self.release();
    }
}
