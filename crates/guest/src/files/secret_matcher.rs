//! Searches files for secrets.

use std::fmt;

use aho_corasick::AhoCorasick;

use crate::protocol::secret_encodings::{self, MIN_BYTES};

/// Limit of all encoded forms in bytes. A search takes about thirty times as much memory.
const MAX_FORMS: usize = 512 << 10;

/// All encoded forms of a value have about this many times its bytes.
const FORMS: usize = 32;

/// Only the beginning of a longer value is searched for; every complete copy contains it.
const MAX_VALUE: usize = 1 << 10;

/// Length of the unencoded beginning that is searched for once the memory for forms is full.
const MIN_PREFIX: usize = 32;

/// Searches for values in all encodings that programs use. `Debug` prints none of them: they are secrets.
pub(crate) struct SecretMatcher(AhoCorasick);

impl SecretMatcher {
    /// Returns `None` if there is no value to search for: values of less than 8 bytes occur in any file by chance.
    pub(crate) fn new<'a>(values: impl Iterator<Item = &'a [u8]>) -> Option<Self> {
        let (mut patterns, mut room) = (Vec::new(), MAX_FORMS);
        for value in values.map(<[u8]>::trim_ascii).filter(|value| value.len() >= MIN_BYTES) {
            let begin = &value[..value.len().min(MAX_VALUE)];
            if begin.len() * FORMS > room {
                patterns.push(value[..value.len().min(MIN_PREFIX)].to_vec());
                continue;
            }
            let forms = secret_encodings::encode_all(begin);
            room = room.saturating_sub(forms.iter().map(Vec::len).sum());
            patterns.extend(forms);
        }
        (!patterns.is_empty())
            .then(|| Self(AhoCorasick::new(&patterns).expect("some MiB of patterns are not too many")))
    }

    pub(crate) fn is_in(&self, content: &[u8]) -> bool {
        self.0.is_match(content)
    }
}

impl fmt::Debug for SecretMatcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretMatcher")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_found_in_every_encoding_and_short_ones_are_ignored() {
        let values: [&[u8]; 3] = [b"hunter2hunter2\n", b"short", b"\xff\xfe\x00\x01binary"];
        let matcher = SecretMatcher::new(values.into_iter()).unwrap();
        for (content, found) in [
            (&b"key=hunter2hunter2;"[..], true),
            (b"68756e74657232" as &[u8], false),
            (b"68756e7465723268756e74657232", true),
            (b"eHh4aHVudGVyMmh1bnRlcjI=", true),
            (b"a\xff\xfe\x00\x01binary", true),
            (b"short", false),
            (b"hunter2hunter", false),
        ] {
            assert_eq!(matcher.is_in(content), found, "{}", content.escape_ascii());
        }
        assert!(SecretMatcher::new([&b"short"[..]].into_iter()).is_none());
    }

    #[test]
    fn memory_is_bounded_and_values_beyond_it_are_found_unencoded() {
        let values: Vec<Vec<u8>> = (0..200).map(|it| format!("{it:04}").repeat(250).into_bytes()).collect();
        let matcher = SecretMatcher::new(values.iter().map(Vec::as_slice)).unwrap();
        assert!(matcher.0.memory_usage() < 64 << 20, "{}", matcher.0.memory_usage());
        assert!(matcher.is_in(&values[199]) && matcher.is_in(&values[0]));
        assert!(matcher.is_in(hex::encode(&values[0]).as_bytes()));
    }
}
