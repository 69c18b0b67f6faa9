//! What a command reads.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use crate::failure::Failure;

/// A call takes at most this much input.
const MAX_BYTES: usize = 4 << 20;

/// The bytes of `stdin` or `stdin_base64`; none when neither is given.
pub(super) fn bytes(text: Option<&str>, base64: Option<&str>) -> Result<Option<Vec<u8>>, Failure> {
    let bytes = match (text, base64) {
        (Some(_), Some(_)) => {
            return Err(Failure::conflicting(&["stdin", "stdin_base64"], "there is one standard input"));
        }
        (Some(text), None) => text.as_bytes().to_vec(),
        (None, Some(text)) => STANDARD.decode(text).map_err(|err| Failure::invalid("stdin_base64", err.to_string()))?,
        (None, None) => return Ok(None),
    };
    if bytes.len() > MAX_BYTES {
        return Err(
            Failure::invalid("stdin", "at most 4 MiB").hint("copy the data in with `copy_in` and read the file")
        );
    }
    Ok(Some(bytes))
}

#[cfg(test)]
mod tests {
    use super::{MAX_BYTES, bytes};

    #[test]
    fn input_is_text_or_base64_and_not_both() {
        assert_eq!(bytes(Some("hi"), None).unwrap(), Some(b"hi".to_vec()));
        assert_eq!(bytes(None, Some("/wA=")).unwrap(), Some(vec![0xff, 0]));
        assert_eq!(bytes(None, None).unwrap(), None);
        assert_eq!(bytes(Some("hi"), Some("/wA=")).unwrap_err().code.word(), "conflicting_fields");
        assert_eq!(bytes(None, Some("?")).unwrap_err().code.word(), "invalid_input");
        assert_eq!(bytes(Some(&"x".repeat(MAX_BYTES + 1)), None).unwrap_err().code.word(), "invalid_input");
    }
}
