//! Captures both ends of an output of any length.

use std::collections::VecDeque;

/// The first and the last bytes of a stream, and their number.
///
/// Memory is bounded by the limit: a flood of 10 GB needs as much as one of 10 MiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capture {
    keep_bytes: usize,
    head: Vec<u8>,
    tail: VecDeque<u8>,
    total_bytes: u64,
    /// Bytes were skipped: what follows is not part of the head.
    skipped: bool,
}

impl Capture {
    /// Creates a capture of at most that many bytes.
    #[must_use]
    pub fn new(keep_bytes: usize) -> Self {
        Self { keep_bytes, ..Self::default() }
    }

    /// Adds output.
    pub fn push(&mut self, bytes: &[u8]) {
        self.total_bytes = self.total_bytes.saturating_add(bytes.len() as u64);
        let head_room = if self.skipped { 0 } else { (self.keep_bytes / 2).saturating_sub(self.head.len()) };
        let to_head = bytes.len().min(head_room);
        self.head.extend_from_slice(&bytes[..to_head]);
        let room = self.keep_bytes - self.keep_bytes / 2;
        let rest = &bytes[to_head..];
        let rest = &rest[rest.len().saturating_sub(room)..];
        let excess = (self.tail.len() + rest.len()).saturating_sub(room);
        self.tail.drain(..excess);
        self.tail.extend(rest);
    }

    /// Skips that many bytes that were printed and are not available: the tail starts again after them.
    pub fn skip(&mut self, bytes: u64) {
        if bytes > 0 {
            self.total_bytes = self.total_bytes.saturating_add(bytes);
            self.skipped = true;
            self.tail.clear();
        }
    }

    /// Number of printed bytes.
    #[must_use]
    pub fn total_bytes(&self) -> u64 {
        self.total_bytes
    }

    /// Number of omitted bytes between the two ends.
    #[must_use]
    pub fn left_out(&self) -> u64 {
        self.total_bytes - (self.head.len() + self.tail.len()) as u64
    }

    /// The first bytes.
    #[must_use]
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// The bytes after the head, or after the cut.
    #[must_use]
    pub fn tail(&self) -> Vec<u8> {
        self.tail.iter().copied().collect()
    }

    /// All captured bytes: the whole stream if none were omitted.
    #[must_use]
    pub fn bytes(&self) -> Vec<u8> {
        [self.head.clone(), self.tail()].concat()
    }

    /// All captured bytes as text; invalid UTF-8 becomes U+FFFD.
    #[must_use]
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.bytes()).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Capture;

    fn capture(keep_bytes: usize, pieces: &[Vec<u8>]) -> Capture {
        let mut it = Capture::new(keep_bytes);
        pieces.iter().for_each(|piece| it.push(piece));
        it
    }

    #[test]
    fn the_memory_for_a_flood_is_bounded() {
        let mut it = Capture::new(1000);
        (0..10_000).for_each(|_| it.push(&[7; 8192]));
        assert!(it.head.capacity() + it.tail.capacity() <= 4096, "{}", it.tail.capacity());
        assert_eq!((it.total_bytes(), it.left_out()), (81_920_000, 81_919_000));
    }

    proptest! {
        #[test]
        fn it_is_both_ends_of_what_was_pushed(
            keep_bytes in 0usize..64,
            pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..40), 0..10),
        ) {
            let (it, all) = (capture(keep_bytes, &pieces), pieces.concat());
            prop_assert!(all.starts_with(it.head()));
            prop_assert!(all.ends_with(&it.tail()));
            prop_assert_eq!(it.bytes().len(), all.len().min(keep_bytes));
            prop_assert_eq!(it.total_bytes(), all.len() as u64);
        }

        #[test]
        fn around_gaps_it_is_the_start_and_the_end(
            keep_bytes in 0usize..32,
            pieces in proptest::collection::vec((any::<bool>(), proptest::collection::vec(1u8.., 0..20)), 0..10),
        ) {
            let mut it = Capture::new(keep_bytes);
            // What is skipped reads as zeros, of which there are none elsewhere.
            let mut all = Vec::new();
            for (skip, piece) in &pieces {
                if *skip {
                    it.skip(piece.len() as u64);
                    all.extend(vec![0; piece.len()]);
                } else {
                    it.push(piece);
                    all.extend(piece);
                }
            }
            prop_assert!(all.starts_with(it.head()));
            prop_assert!(all.ends_with(&it.tail()));
            prop_assert!(!it.bytes().contains(&0), "it contains no byte of a gap");
            prop_assert_eq!((it.total_bytes(), it.left_out()), (all.len() as u64, (all.len() - it.bytes().len()) as u64));
        }
    }
}
