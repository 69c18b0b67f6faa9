//! Removes keys from a response: a server may echo them, in any encoding.

use coracle_types::{Redactor, Secret, StreamRedactor};
use hyper::HeaderMap;
use hyper::header::CONTENT_ENCODING;

/// Searches a stream for values, plain, encoded and reversed. Holds back only bytes that may be the start of one.
#[derive(Debug)]
pub(crate) struct Scrub {
    redactor: Redactor,
    stream: StreamRedactor,
}

/// The name in the replacement: `[redacted:key]`.
const NAME: &str = "key";

impl Scrub {
    /// Creates a filter for a value. A short value is ignored, since it would match everywhere.
    pub(crate) fn new(value: Secret) -> Self {
        Self::of(vec![(NAME.to_owned(), value)])
    }

    /// Creates a filter for several values with their names.
    pub(crate) fn of(mut values: Vec<(String, Secret)>) -> Self {
        let reverse = |value: &Secret| Secret::new(value.reveal().iter().rev().copied().collect());
        let reversed: Vec<_> = values.iter().map(|(name, value)| (name.clone(), reverse(value))).collect();
        values.extend(reversed);
        let redactor = Redactor::new(values);
        Self { stream: redactor.sieve(), redactor }
    }

    /// Filters bytes and returns those that can be forwarded.
    pub(crate) fn push(&mut self, bytes: &[u8]) -> Vec<u8> {
        self.stream.push(bytes)
    }

    /// Returns the rest at the end of the stream.
    pub(crate) fn finish(&mut self) -> Vec<u8> {
        std::mem::replace(&mut self.stream, self.redactor.sieve()).end()
    }

    /// Whether the bytes contain the value.
    pub(crate) fn is_in(&self, bytes: &[u8]) -> bool {
        self.redactor.clean_between(&[], bytes, &[]) != bytes
    }

    /// Whether a response is compressed, so that the value cannot be found.
    pub(crate) fn cannot_read(&self, headers: &HeaderMap) -> bool {
        let is_encoded = |it: &hyper::header::HeaderValue| !it.as_bytes().eq_ignore_ascii_case(b"identity");
        !self.redactor.is_empty() && headers.get_all(CONTENT_ENCODING).iter().any(is_encoded)
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use base64::prelude::{BASE64_STANDARD, BASE64_STANDARD_NO_PAD, BASE64_URL_SAFE, BASE64_URL_SAFE_NO_PAD};
    use proptest::prelude::*;

    use super::*;

    /// Contains characters that each encoding changes.
    const KEY: &str = "sk-c\"na/ry?~12+x>";

    /// Filters a text in pieces of a size.
    fn through(text: &[u8], size: usize) -> String {
        let mut scrub = Scrub::new(KEY.into());
        let mut out: Vec<u8> = text.chunks(size).flat_map(|piece| scrub.push(piece)).collect();
        out.extend(scrub.finish());
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn a_key_is_found_in_every_encoding_at_any_split_of_the_stream() {
        let mut forms = vec![
            ("plain", KEY.to_owned()),
            ("reversed", KEY.chars().rev().collect()),
            ("hex", hex::encode(KEY)),
            ("upper hex", hex::encode_upper(KEY)),
            ("all percent", KEY.bytes().map(|byte| format!("%{byte:02X}")).collect()),
            ("percent", "sk-c%22na%2Fry%3F~12%2Bx%3E".to_owned()),
            ("lower percent", "sk-c%22na%2fry%3f~12%2bx%3e".to_owned()),
            ("json", serde_json::to_string(KEY).unwrap()),
            ("json with slashes", "sk-c\\\"na\\/ry?~12+x>".to_owned()),
        ];
        for before in ["", "a", "ab"] {
            for engine in [&BASE64_STANDARD, &BASE64_URL_SAFE, &BASE64_STANDARD_NO_PAD, &BASE64_URL_SAFE_NO_PAD] {
                forms.push(("base64", engine.encode(format!("{before}{KEY}"))));
                forms.push(("base64 within", engine.encode(format!("{before}{KEY}more"))));
            }
        }
        for (name, form) in forms {
            for size in [1, 2, 3, 7, 4096] {
                let out = through(format!("data: {form}\n\n").as_bytes(), size);
                assert!(out.contains("[redacted:key]"), "{name}, pieces of {size}: {out}");
                // In base64, the characters at both ends contain bits of the neighbours and may remain.
                let longest = form.len().saturating_sub(8).max(5);
                let stays = (0..=form.len() - longest).any(|at| out.contains(&form[at..at + longest]));
                assert!(!stays, "{name}, pieces of {size}: {out}");
            }
        }
        assert_eq!(through(b"data: nothing of it", 3), "data: nothing of it");
    }

    #[test]
    fn a_compressed_response_is_refused() {
        let encoded = |encoding: &str| HeaderMap::from_iter([(CONTENT_ENCODING, encoding.parse().unwrap())]);
        let scrub = Scrub::new(KEY.into());
        assert!(scrub.cannot_read(&encoded("gzip")) && !scrub.cannot_read(&encoded("identity")));
        assert!(!scrub.cannot_read(&HeaderMap::new()));
        assert!(!Scrub::new("".into()).cannot_read(&encoded("gzip")), "without a key there is nothing to find");
    }

    proptest! {
        #[test]
        fn the_value_never_passes_wherever_it_is_split(
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
            prop_assert_eq!(String::from_utf8(out).unwrap(), text.replace("sk-canary", "[redacted:key]"));
        }
    }
}
