//! Patterns of lines.

use regex::bytes::{Regex, RegexBuilder};

use crate::{ErrorCode, RpcError};

/// Bytes of a pattern, at most.
const MAX_PATTERN: usize = 1 << 10;

/// Bytes of a pattern when it is compiled, at most. Time is the product of this and of what is searched.
const COMPILED: usize = 256 << 10;

/// Bytes that a search may remember of what it has seen. Beyond them it becomes slow.
const REMEMBERED: usize = 2 << 20;

/// Compiles a pattern of a caller. It matches bytes, so no output is beyond it: `\w`, `\d`, `\b` and `ignore_case` know
/// ASCII, anything else of UTF-8 stands for its bytes, and `(?u)` asks for characters.
///
/// # Errors
/// [`ErrorCode::Invalid`] with the reason: it is no pattern, or longer than 1 KiB, or would be too large.
pub fn line_pattern(text: &str, ignore_case: bool) -> Result<Regex, RpcError> {
    if text.len() > MAX_PATTERN {
        let message = format!("a pattern of {} bytes; at most {MAX_PATTERN} are taken", text.len());
        return Err(RpcError::new(ErrorCode::Invalid, message));
    }
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).case_insensitive(ignore_case).size_limit(COMPILED).dfa_size_limit(REMEMBERED);
    builder.build().map_err(|err| {
        // The error of a parser draws the pattern with an arrow below it; the reason is the last line.
        let reason = match &err {
            regex::Error::CompiledTooBig(limit) => format!("it would take more than {limit} bytes"),
            _ => err.to_string().lines().last().unwrap_or_default().trim_start_matches("error: ").to_owned(),
        };
        RpcError::new(ErrorCode::Invalid, format!("`{text}` is not a pattern: {reason}"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_bytes() {
        for (text, line) in [
            (r"\d+ ms\b", &b"in 15 ms."[..]),
            ("^a.*z$", b"a\xff\xfez"),
            ("größe", "eine größe".as_bytes()),
            ("(?u)^[äö]$", "ö".as_bytes()),
            (r"\xff", b"\xff"),
        ] {
            assert!(line_pattern(text, false).unwrap().is_match(line), "{text}");
        }
        assert!(line_pattern("error", true).unwrap().is_match(b"ERROR"));
    }

    #[test]
    fn what_is_no_pattern_says_why() {
        let said = |text: &str| line_pattern(text, false).unwrap_err().message;
        assert_eq!(said("a("), "`a(` is not a pattern: unclosed group");
        let large = "`((a{99}){99}){99}` is not a pattern: it would take more than 262144 bytes";
        assert_eq!(said("((a{99}){99}){99}"), large);
        assert_eq!(said(&"a".repeat(1025)), "a pattern of 1025 bytes; at most 1024 are taken");
    }
}
