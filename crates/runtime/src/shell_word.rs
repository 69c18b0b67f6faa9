//! Words of command lines that a user copies into a shell.

/// A word for a POSIX shell, quoted unless it is plain. What a terminal would not show is replaced, so that nothing is run
/// that was not seen.
#[must_use]
pub fn shell_word(word: &str) -> String {
    // Only a zero byte cannot be quoted, and that is replaced, too.
    shlex::try_quote(&coracle_types::sanitize(word)).map(Into::into).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::shell_word;

    #[test]
    fn what_a_shell_would_act_on_is_quoted() {
        for (word, expected) in [
            ("feature/a-1", "feature/a-1"),
            ("a;touch x", "'a;touch x'"),
            ("$(id)", "'$(id)'"),
            ("`id`", "'`id`'"),
            ("it's", "\"it's\""),
            ("a\u{202e}b\0", "'a\u{fffd}b\u{fffd}'"),
        ] {
            assert_eq!(shell_word(word), expected);
            assert_eq!(shlex::split(&shell_word(word)).unwrap().len(), 1);
        }
    }
}
