//! Output of a command, cut to the size of an answer.

use coracle_types::Capture;

/// Bytes of a stream in an answer.
pub(crate) const INLINE: usize = 32 << 10;

/// Bytes of the end of a stream that was cut.
const TAIL: usize = 4 << 10;

/// Stands where a stream was cut. A program can print it, too: `truncated` is the truth.
const SENTINEL: &str = "[truncated]";

/// Bytes of each end of a stream that are retained while a command runs: as many as an answer has.
pub(crate) const KEEP: usize = 2 * INLINE;

/// A stream in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Inline {
    pub(crate) text: String,
    pub(crate) bytes: u64,
    pub(crate) truncated: bool,
    pub(crate) tail: Option<String>,
}

impl Inline {
    pub(crate) fn from_capture(capture: &Capture) -> Self {
        let bytes = capture.total_bytes();
        if bytes <= INLINE as u64 {
            return Self { text: capture.text(), bytes, truncated: false, tail: None };
        }
        let mut text = lossy_start(&capture.bytes()[..INLINE - SENTINEL.len()]);
        // What is no UTF-8 is longer as text.
        text.truncate(text.floor_char_boundary(INLINE - SENTINEL.len()));
        text.push_str(SENTINEL);
        let tail = capture.tail();
        let tail = lossy_end(&tail[tail.len().saturating_sub(TAIL)..]);
        Self { text, bytes, truncated: true, tail: Some(tail) }
    }

    /// Adds a line of Coracle's own.
    pub(crate) fn add_line(&mut self, line: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(line);
        self.text.push('\n');
    }
}

/// The first characters of a text, as many as given, the last ones being `...` when it is longer.
pub(crate) fn characters(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most - 3).chain("...".chars()).collect()
}

/// Without the character that was cut at the end.
fn lossy_start(bytes: &[u8]) -> String {
    let cut = bytes.utf8_chunks().last().map_or(0, |it| it.invalid().len());
    let whole = if cut < 4 { &bytes[..bytes.len() - cut] } else { bytes };
    String::from_utf8_lossy(whole).into_owned()
}

/// Without the rest of a character that was cut at the start.
fn lossy_end(bytes: &[u8]) -> String {
    let rest = bytes.iter().take(3).take_while(|it| **it & 0b1100_0000 == 0b1000_0000).count();
    String::from_utf8_lossy(&bytes[rest..]).into_owned()
}

#[cfg(test)]
mod tests {
    use coracle_types::Capture;

    use super::{INLINE, Inline, KEEP, SENTINEL, TAIL, characters};

    fn inline(bytes: &[u8]) -> Inline {
        let mut capture = Capture::new(KEEP);
        capture.push(bytes);
        Inline::from_capture(&capture)
    }

    #[test]
    fn w32_a_stream_is_whole_or_cut_between_characters_with_its_end() {
        assert_eq!(inline(b"a \n\n").text, "a \n\n");
        assert!(!inline(&[b'x'; INLINE]).truncated);
        let long = inline("ä".repeat(50 << 10).as_bytes());
        assert!(long.text.len() <= INLINE && long.text.len() > INLINE - 4, "{}", long.text.len());
        assert!(long.text.ends_with(&format!("ä{SENTINEL}")) && !long.text.contains('\u{fffd}'));
        assert_eq!((long.bytes, long.tail.unwrap()), (100 << 10, "ä".repeat(TAIL / 2)));
    }

    #[test]
    fn bytes_that_are_no_text_do_not_make_an_answer_longer() {
        let long = inline(&[0xff; 100 << 10]);
        assert!(long.text.len() <= INLINE, "{}", long.text.len());
    }

    #[test]
    fn few_characters_end_in_dots() {
        assert_eq!(characters("äöü", 3), "äöü");
        assert_eq!(characters("äöüß", 4), "äöüß");
        assert_eq!(characters("äöüßx", 4), "ä...");
    }
}
