//! Makes untrusted text safe for a terminal.

/// Whether a character controls a terminal, changes the display of other text, or is invisible: control characters,
/// those that change the direction of text, line separators, and all without width. A name with one is deceptive.
#[must_use]
pub fn is_deceptive(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}'
            | '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}'
            | '\u{3164}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}')
}

/// Replaces deceptive characters except for tabs and line ends.
#[must_use]
pub fn sanitize(text: &str) -> String {
    let shown = |c: char| if is_deceptive(c) && c != '\n' && c != '\t' { '\u{fffd}' } else { c };
    text.chars().map(shown).collect()
}

/// Escapes deceptive characters except for line ends: for messages, whose reader has to see them.
#[must_use]
pub fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        if is_deceptive(c) && c != '\n' { escaped.extend(c.escape_default()) } else { escaped.push(c) }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_that_control_a_terminal_or_are_invisible_are_replaced() {
        for c in
            "\u{1b}\u{7}\r\u{9b}\u{ad}\u{200b}\u{200d}\u{200e}\u{2028}\u{202e}\u{2060}\u{2066}\u{feff}\u{e0041}".chars()
        {
            assert_eq!(sanitize(&format!("a{c}b")), "a\u{fffd}b", "{}", c.escape_unicode());
            assert!(escape(&c.to_string()).starts_with('\\'), "{}", c.escape_unicode());
        }
        let plain = "a\tb\nc é ü 漢字 ع \u{1f980} é";
        assert_eq!(sanitize(plain), plain);
    }
}
