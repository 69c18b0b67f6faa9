//! Positions at which output may be split.

/// The format of shown output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Text: no character is split.
    Text,
    /// Raw bytes.
    Bytes,
}

/// Size of the longest character, in bytes.
pub(crate) const LONGEST: usize = 4;

/// Number of bytes of a piece that are shown, within `limit`.
///
/// A text ends with a complete character and has at least one, so that a reader progresses with any limit.
/// With `more`, other bytes may follow the piece; without it, an incomplete character at the end is final.
pub(crate) fn shown(bytes: &[u8], limit: usize, format: Format, more: bool) -> usize {
    let within = bytes.len().min(limit);
    if format == Format::Bytes {
        return within;
    }
    let begins = unfinished(&bytes[..within]);
    match begins {
        // No later bytes can complete it.
        _ if within == bytes.len() && !more => within,
        0 if within < bytes.len() && !(more && unfinished(bytes) == 0) => first_character(bytes),
        begins => begins,
    }
}

/// Start of an incomplete character at the end; the whole length if there is none.
fn unfinished(bytes: &[u8]) -> usize {
    let Some(last) = bytes.utf8_chunks().last() else { return 0 };
    let cut = last.invalid();
    // An invalid sequence is not the start of a character.
    let is_beginning = !cut.is_empty() && std::str::from_utf8(cut).is_err_and(|it| it.error_len().is_none());
    if is_beginning { bytes.len() - cut.len() } else { bytes.len() }
}

/// Size of the first character, or of the invalid sequence in its place.
fn first_character(bytes: &[u8]) -> usize {
    let within = &bytes[..bytes.len().min(LONGEST)];
    let Some(first) = within.utf8_chunks().next() else { return 0 };
    first.valid().chars().next().map_or(first.invalid().len(), char::len_utf8)
}

/// Number of bytes at the start of a piece that belong to an earlier character.
pub(crate) fn rest_of_a_character(bytes: &[u8]) -> usize {
    bytes.iter().take(LONGEST - 1).take_while(|it| **it & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, bytes: usize, limit: usize, more: bool) -> usize {
        shown(&text.as_bytes()[..bytes], limit, Format::Text, more)
    }

    #[test]
    fn a_character_is_not_split() {
        assert_eq!(check("größe", 3, 3, true), 2, "ö needs one byte more");
        assert_eq!(check("größe", 7, 4, true), 4);
        assert_eq!(check("größe", 7, 3, true), 2);
        assert_eq!(check("größe", 7, 100, true), 7);
    }

    #[test]
    fn a_reader_progresses_with_any_limit() {
        assert_eq!(check("€uro", 4, 1, true), 3);
        assert_eq!(shown(b"\xff\xfe\xfd", 1, Format::Text, true), 1);
        assert_eq!(shown(b"\xe2\x82", 1, Format::Text, true), 0, "the rest of the character may follow");
        assert_eq!(shown(b"\xe2\x82", 1, Format::Text, false), 2);
    }

    #[test]
    fn an_incomplete_character_is_withheld_while_more_bytes_may_follow() {
        assert_eq!(shown(b"ok \xe2\x82", 100, Format::Text, true), 3);
        assert_eq!(shown(b"ok \xe2\x82", 100, Format::Text, false), 5);
        assert_eq!(shown(b"\xe2\x82", 100, Format::Text, true), 0);
        assert_eq!(shown(b"ok \xe2\x82", 4, Format::Bytes, true), 4);
    }

    #[test]
    fn the_rest_of_a_character_at_the_start_is_counted() {
        assert_eq!(rest_of_a_character("€".as_bytes()), 0);
        assert_eq!(rest_of_a_character(&"€x".as_bytes()[1..]), 2);
        assert_eq!(rest_of_a_character(&[0x80; 9]), 3);
    }

    proptest! {
        #[test]
        fn joined_pages_are_the_whole_text(text in "\\PC{0,40}", limit in 1_usize..9) {
            let (bytes, mut at, mut pages) = (text.as_bytes(), 0, String::new());
            while at < bytes.len() {
                let piece = &bytes[at..bytes.len().min(at + limit.max(LONGEST))];
                let count = shown(piece, limit, Format::Text, at + piece.len() < bytes.len());
                prop_assert!(count > 0 && count <= limit.max(LONGEST));
                pages.push_str(std::str::from_utf8(&piece[..count]).unwrap());
                at += count;
            }
            prop_assert_eq!(pages, text);
        }

        #[test]
        fn any_bytes_can_be_read_to_the_end(bytes in proptest::collection::vec(any::<u8>(), 0..40), limit in 1_usize..9) {
            let mut at = 0;
            while at < bytes.len() {
                let piece = &bytes[at..bytes.len().min(at + limit.max(LONGEST))];
                let count = shown(piece, limit, Format::Text, at + piece.len() < bytes.len());
                prop_assert!(count > 0);
                at += count;
            }
            prop_assert_eq!(at, bytes.len());
        }
    }
}
