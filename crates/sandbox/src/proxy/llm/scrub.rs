//! Takes a key out of an answer that passes: a provider may show what it was given.

use coracle_runtime::Secret;

/// Looks for one value in a stream, and holds back only what may be its beginning.
#[derive(Debug)]
pub(crate) struct Scrub {
    value: Secret,
    held: Vec<u8>,
}

const INSTEAD: &[u8] = b"[redacted]";

/// A shorter value would be found everywhere.
const SHORTEST: usize = 8;

impl Scrub {
    /// Looks for a value.
    pub(crate) fn new(value: Secret) -> Self {
        let value = if value.len() < SHORTEST { Secret::from("") } else { value };
        Self { value, held: Vec::new() }
    }

    /// What may go on now.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        if self.value.is_empty() {
            return bytes.to_vec();
        }
        self.held.extend_from_slice(bytes);
        let mut out = Vec::with_capacity(self.held.len());
        let (mut rest, value) = (self.held.as_slice(), self.value.reveal());
        while let Some(at) = find(rest, value) {
            out.extend_from_slice(&rest[..at]);
            out.extend_from_slice(INSTEAD);
            rest = &rest[at + value.len()..];
        }
        let keep = begins(rest, value);
        out.extend_from_slice(&rest[..rest.len() - keep]);
        self.held = rest[rest.len() - keep..].to_vec();
        out
    }

    /// What was held back, at the end.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.held)
    }

    /// Whether it is in there.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        !self.value.is_empty() && find(bytes, self.value.reveal()).is_some()
    }
}

fn find(bytes: &[u8], value: &[u8]) -> Option<usize> {
    bytes.windows(value.len()).position(|it| it == value)
}

/// How many bytes at the end may be the beginning of the value.
fn begins(bytes: &[u8], value: &[u8]) -> usize {
    let most = bytes.len().min(value.len() - 1);
    (1..=most).rev().find(|count| bytes.ends_with(&value[..*count])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_no_beginning_goes_on_at_once() {
        let mut scrub = Scrub::new("sk-canary-1".into());
        assert_eq!(scrub.push(b"data: hello"), b"data: hello");
        assert_eq!(scrub.push(b" sk-can"), b" ");
        assert_eq!(scrub.push(b"dy "), b"sk-candy ");
        assert_eq!(scrub.push(b"sk-canary-1!"), b"[redacted]!");
        assert_eq!((scrub.push(b"sk-"), scrub.finish()), (vec![], b"sk-".to_vec()));
    }

    proptest! {
        #[test]
        fn the_value_never_passes_however_it_is_cut(
            around in proptest::collection::vec("[skcanry1 -]{0,12}", 1..4), cuts in proptest::collection::vec(1_usize..9, 1..40)
        ) {
            let text = around.join("sk-canary");
            let (mut scrub, mut out, mut rest) = (Scrub::new("sk-canary".into()), vec![], text.as_bytes());
            let mut cuts = cuts.into_iter().cycle();
            while !rest.is_empty() {
                let (piece, after) = rest.split_at(cuts.next().unwrap().min(rest.len()));
                out.extend(scrub.push(piece));
                rest = after;
            }
            out.extend(scrub.finish());
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace("sk-canary", "[redacted]"));
        }
    }
}
