//! Keys of `top`.

use coracle_context::Failure;

use crate::keyboard::Keyboard;

/// Splits input into keys: fast typing gives several together. The end of the input is an empty key.
pub(super) fn keys(mut typed: &[u8]) -> Vec<&[u8]> {
    let mut keys = Vec::new();
    loop {
        let length = match typed {
            [b'\x1b', b'[' | b'O', rest @ ..] => {
                let last = rest.iter().position(|it| (0x40..=0x7e).contains(it));
                last.map_or(typed.len(), |at| at + 3)
            }
            [_, ..] => 1,
            [] => 0,
        };
        let (key, rest) = typed.split_at(length);
        keys.push(key);
        if rest.is_empty() {
            return keys;
        }
        typed = rest;
    }
}

/// Whether a key ends `top` at any time: the end of the input, Ctrl-C, and `q` unless it answers a question.
pub(super) fn leaves(key: &[u8], has_question: bool) -> bool {
    matches!(key, b"" | b"\x03") || (!has_question && key == b"q")
}

/// Runs work while reading keys. `None` if a key ends `top`; else the result, and the typed keys.
pub(super) async fn beside_keys<T>(
    keyboard: &mut Keyboard,
    leaves: impl Fn(&[u8]) -> bool,
    work: impl Future<Output = T>,
) -> Result<Option<(T, Vec<u8>)>, Failure> {
    let mut work = std::pin::pin!(work);
    let (mut typed, mut is_open) = (Vec::new(), true);
    loop {
        let read = tokio::select! {
            done = &mut work => return Ok(Some((done, typed))),
            read = keyboard.next(), if is_open => read.map_err(Failure::internal)?,
        };
        if keys(&read).into_iter().any(&leaves) {
            return Ok(None);
        }
        is_open = !read.is_empty();
        typed.extend(read);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_come_at_once_are_taken_one_by_one() {
        assert_eq!(keys(b"lc\x1b[A\x1bOBq"), [&b"l"[..], b"c", b"\x1b[A", b"\x1bOB", b"q"]);
        assert_eq!(keys(b"\x1b"), [b"\x1b"]);
        assert_eq!(keys(b""), [b""]);
    }

    #[test]
    fn a_question_is_no_reason_to_stay_at_the_end_of_the_input() {
        assert!([b"q".as_slice(), b"\x03", b""].into_iter().all(|it| leaves(it, false)));
        assert!(leaves(b"\x03", true) && leaves(b"", true) && !leaves(b"q", true) && !leaves(b"y", false));
    }
}
