//! Names for commands and for files on the host.

/// Whether a name needs no quotes in a command that is pasted into a shell: one word, no option, no expansion.
pub(crate) fn is_plain_word(text: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"-_./".contains(&b);
    !text.is_empty() && !text.starts_with('-') && text.bytes().all(is_plain)
}

/// Returns the name of a directory's archive on the host, which is short and plain for any name of the directory.
pub(crate) fn archive_name(top: &str) -> String {
    // Longer than any workflow's id, and short enough with its suffix for every file system.
    const MAX: usize = 100;
    let plain = |it: char| if it.is_ascii_alphanumeric() || "-_.".contains(it) { it } else { '_' };
    let name: String = top.trim_start_matches('.').chars().map(plain).take(MAX).collect();
    format!("{}.tar", if name.is_empty() { "directory" } else { &name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_a_short_and_plain_name() {
        assert_eq!(archive_name("w-1"), "w-1.tar");
        assert_eq!(archive_name(".orphans"), "orphans.tar");
        assert_eq!(archive_name("a\nb c"), "a_b_c.tar");
        assert_eq!(archive_name("..."), "directory.tar");
        for long in ["x".repeat(255), "\u{e4}".repeat(127)] {
            assert!(archive_name(&long).len() < 200, "{long}");
        }
    }
}
