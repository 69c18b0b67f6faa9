//! The output of a shell, as a call returns it.

use super::shell::ShellEnd;

/// Maximum size of the text in one answer. Of longer output, the start and the end are shown.
const MOST: usize = 32 << 10;

/// Output of a shell.
#[derive(Debug)]
pub struct TerminalOutput {
    pub text: String,
    /// Number of printed bytes that are not in the text.
    pub omitted: u64,
    /// What a pattern matched.
    pub matched: Option<String>,
    pub screen: Option<String>,
    /// Row and column of the cursor, from 1.
    pub cursor: Option<[u16; 2]>,
    pub end: Option<ShellEnd>,
}

/// Returns the text without its middle, and the number of bytes left out.
pub(super) fn shortened(text: &str) -> (String, u64) {
    if text.len() <= MOST {
        return (text.to_owned(), 0);
    }
    let head = text.floor_char_boundary(MOST / 2);
    let tail = text.ceil_char_boundary(text.len() - MOST / 2);
    let left_out = tail - head;
    (format!("{}\n[{left_out} bytes left out]\n{}", &text[..head], &text[tail..]), left_out as u64)
}

#[cfg(test)]
mod tests {
    use super::{MOST, shortened};

    #[test]
    fn both_ends_of_a_long_text_are_shown() {
        assert_eq!(shortened("short"), ("short".to_owned(), 0));
        let long = format!("begin{}end", "\u{e4}".repeat(MOST));
        let (text, left_out) = shortened(&long);
        assert!(text.starts_with("begin") && text.ends_with("end") && text.len() < MOST + 60);
        assert!(left_out as usize >= long.len() - MOST && text.contains(&format!("[{left_out} bytes left out]")));
    }
}
