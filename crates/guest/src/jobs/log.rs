//! Retained output of commands, within bounds.
//!
//! A [`OutputLog`] is a sequence of segments of at most 64 KiB, in order of arrival. The last one lies in memory, the others
//! in slots of the [`Spill`] that all logs of a guest share; what stays in memory of them is where each begins, in bytes
//! and in lines, so that any place is found by looking into one segment. What is kept is always the end of the output,
//! without a gap: the oldest segment goes first.

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

/// Segments that are looked at in one go: 1 MiB.
pub(crate) const GO: usize = 16;

/// Bytes of a finished log that may stay in memory.
const SMALL: usize = 2 << 10;

/// The retained output of a command.
#[derive(Debug)]
pub(crate) struct OutputLog {
    spill: Arc<Spill>,
    keep_bytes: u64,
    sealed: VecDeque<SealedSegment>,
    live: ActiveSegment,
    /// The start of `live`.
    begin: LogPosition,
    end: LogPosition,
}

impl OutputLog {
    /// Keeps at most that many bytes.
    pub(crate) fn new(spill: Arc<Spill>, keep_bytes: u64) -> Self {
        let (begin, end) = (LogPosition::default(), LogPosition::default());
        Self { spill, keep_bytes, sealed: VecDeque::new(), live: ActiveSegment::default(), begin, end }
    }

    /// Takes what was printed next.
    pub(crate) fn append(&mut self, stream: Stream, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let count = self.live.push(stream, bytes, self.spill.slot_bytes());
            if count == 0 {
                // Half of what is there: half of a slot may be nothing less, when each byte is a run of its own.
                self.seal(self.live.len() / 2);
                continue;
            }
            self.end.pass(stream, &bytes[..count]);
            bytes = &bytes[count..];
            self.keep_within();
        }
    }

    /// No more comes: what lies in memory beyond 2 KiB goes to the spill.
    pub(crate) fn finish(&mut self) {
        if self.live.len() > SMALL {
            self.seal(SMALL);
        }
        self.live.shrink();
        self.sealed.shrink_to_fit();
    }

    /// Discards all retained output, and returns its size in bytes. Totals stay.
    pub(crate) fn discard(&mut self) -> u64 {
        let kept = self.kept();
        self.release();
        self.live = ActiveSegment::default();
        self.begin = self.end;
        kept
    }

    /// Bytes that came.
    pub(crate) fn total(&self, part: StreamSelector) -> u64 {
        self.end.offset(part)
    }

    /// The oldest byte that is kept.
    pub(crate) fn first(&self, part: StreamSelector) -> u64 {
        self.oldest().offset(part)
    }

    /// Bytes of both streams that are kept.
    pub(crate) fn kept(&self) -> u64 {
        self.total(StreamSelector::All) - self.first(StreamSelector::All)
    }

    /// Bytes of both streams that are not kept any more.
    pub(crate) fn dropped(&self) -> u64 {
        self.first(StreamSelector::All)
    }

    /// Bytes of memory that it holds.
    #[cfg(test)]
    pub(crate) fn memory(&self) -> usize {
        size_of::<Self>() + self.live.memory() + self.sealed.capacity() * size_of::<SealedSegment>()
    }

    fn oldest(&self) -> &LogPosition {
        self.sealed.front().map_or(&self.begin, |it| &it.begin)
    }

    fn keep_within(&mut self) {
        while self.kept() > self.keep_bytes && self.forget_oldest() {}
        if self.kept() > self.keep_bytes {
            // Only what is in memory is left. Half of it goes, so that not every byte moves all that are kept.
            self.forget_in_memory(usize::try_from(self.keep_bytes / 2).unwrap_or(usize::MAX));
        }
    }

    /// Empties the live segment into a slot. Without one, the last `rest` bytes stay in memory and all else is gone.
    fn seal(&mut self, rest: usize) {
        let begin = self.begin;
        let mut live = std::mem::take(&mut self.live);
        let (image, bytes, runs) = live.image();
        let slot = self.store(image);
        self.live = live;
        let Some(slot) = slot else {
            self.live.reopen(bytes);
            self.release();
            self.forget_in_memory(rest);
            return;
        };
        if self.sealed.len() == self.sealed.capacity() {
            // Doubling would leave half of it unused when the log is full.
            self.sealed.reserve_exact(self.sealed.len().clamp(4, 256));
        }
        self.sealed.push_back(SealedSegment { begin, slot, bytes, runs });
        self.live.clear();
        self.begin = self.end;
    }

    /// Puts a segment into a slot: a new one, else that of the oldest segment of this log.
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
            // A disk that is full still has the room of what lies on it.
            if !self.forget_oldest() {
                return None;
            }
        }
        None
    }

    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.sealed.pop_front() else { return false };
        self.spill.release(oldest.slot);
        true
    }

    fn forget_in_memory(&mut self, rest: usize) {
        let count = self.live.len().saturating_sub(rest);
        self.live.forget(count, &mut self.begin);
    }

    /// Gives back all slots, and their room on the disk.
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
