//! Patterns of lines.

use regex::bytes::{Regex, RegexBuilder};

use crate::{ErrorCode, RpcError};

/// Longest pattern in bytes.
const MAX_PATTERN: usize = 1 << 10;

/// Largest compiled pattern in bytes. The time of a search is proportional to this and to the searched bytes.
const COMPILED: usize = 256 << 10;

/// Largest cache of a search in bytes. Beyond it the search becomes slow.
const CACHE: usize = 2 << 20;

/// Compiles a pattern of a caller. It matches bytes, so it can match any output: `\w`, `\d`, `\b` and `ignore_case` support
/// ASCII only, other characters stand for their UTF-8 bytes, and `(?u)` enables Unicode.
///
/// # Errors
/// [`ErrorCode::Invalid`] with the reason: the pattern is invalid, longer than 1 KiB, or too large when compiled.
pub fn line_pattern(text: &str, ignore_case: bool) -> Result<Regex, RpcError> {
    if text.len() > MAX_PATTERN {
        let message = format!("the pattern has {} bytes; the limit is {MAX_PATTERN}", text.len());
        return Err(RpcError::new(ErrorCode::Invalid, message));
    }
    let mut builder = RegexBuilder::new(text);
    builder.unicode(false).case_insensitive(ignore_case).size_limit(COMPILED).dfa_size_limit(CACHE);
    builder.build().map_err(|err| {
        // The parser's error shows the pattern with an arrow below it; the reason is in the last line.
        let reason = match &err {
            regex::Error::CompiledTooBig(limit) => format!("the compiled pattern exceeds {limit} bytes"),
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
    fn the_error_for_an_invalid_pattern_has_the_reason() {
        let message = |text: &str| line_pattern(text, false).unwrap_err().message;
        assert_eq!(message("a("), "`a(` is not a pattern: unclosed group");
        let large = "`((a{99}){99}){99}` is not a pattern: the compiled pattern exceeds 262144 bytes";
        assert_eq!(message("((a{99}){99}){99}"), large);
        assert_eq!(message(&"a".repeat(1025)), "the pattern has 1025 bytes; the limit is 1024");
    }
}
