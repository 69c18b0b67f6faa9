//! Replacing a text in a file.

use std::borrow::Cow;
use std::io::Write as _;

use memchr::memchr_iter;
use memchr::memmem::Finder;

use super::WorkspaceOperation;
use super::write::WrittenContent;
use crate::files::error::OperationResult;
use crate::files::resolve::{ResolvedPath, content};
use crate::protocol::workspace::{MAX_CONTENT, WorkspaceError, WorkspaceErrorCode, WriteReport};

/// Limit of line numbers that are reported for a text with several occurrences.
const LINES: usize = 5;

/// The parameters of an edit.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edit<'a> {
    pub(super) path: &'a str,
    pub(super) old: &'a [u8],
    pub(super) new: &'a [u8],
    pub(super) all: bool,
    pub(super) seen: bool,
    pub(super) tool: &'a str,
}

impl WorkspaceOperation<'_> {
    pub(super) fn edit(&self, edit: &Edit<'_>) -> OperationResult<WriteReport> {
        if edit.old.len() as u64 > MAX_CONTENT || edit.new.len() as u64 > MAX_CONTENT {
            return Err(WorkspaceErrorCode::TooLarge.into());
        }
        self.change(edit.path, false, |place| self.edit_at(edit, place))
    }

    fn edit_at(&self, edit: &Edit<'_>, place: &ResolvedPath) -> OperationResult<WriteReport> {
        let (file, stat) = self.old(place, edit.seen)?;
        let before = content(&file, MAX_CONTENT)?.ok_or(WorkspaceErrorCode::TooLarge)?;
        let made = replaced(&before, edit.old, edit.new, edit.all)?;
        let done = if made.content == before {
            self.report_file(edit.path, place, (file, stat), edit.tool).map(|it| WriteReport { changed: false, ..it })
        } else {
            drop(before);
            let (_, stat) = self.replace(place, (stat.st_mode, true), |it| Ok(it.write_all(&made.content)?))?;
            let written = WrittenContent { bytes: &made.content, stat };
            Ok(self.report_content(edit.path, place, written, edit.tool))
        };
        done.map(|it| WriteReport { replaced: made.count, adapted: made.adapted, ..it })
    }
}

/// A content after an edit.
#[derive(Debug)]
struct EditedContent {
    content: Vec<u8>,
    count: u64,
    adapted: bool,
}

fn replaced(content: &[u8], old: &[u8], new: &[u8], all: bool) -> OperationResult<EditedContent> {
    if old.is_empty() {
        return Err(WorkspaceErrorCode::NoMatch.into());
    }
    let (mut old, mut new, mut adapted) = (Cow::Borrowed(old), Cow::Borrowed(new), false);
    let mut count = Finder::new(&*old).find_iter(content).count();
    if count == 0 && old.contains(&b'\n') && !old.contains(&b'\r') && is_crlf(content) {
        (old, new, adapted) = (Cow::Owned(crlf(&old)), Cow::Owned(crlf(&new)), true);
        count = Finder::new(&*old).find_iter(content).count();
    }
    let finder = Finder::new(&*old);
    if count == 0 {
        return Err(WorkspaceErrorCode::NoMatch.into());
    }
    if count > 1 && !all {
        let first: Vec<usize> = finder.find_iter(content).take(LINES).collect();
        let lines = first.iter().map(|at| 1 + memchr_iter(b'\n', &content[..*at]).count() as u64).collect();
        let ambiguous = WorkspaceError {
            occurrences: count as u64,
            lines,
            ..WorkspaceError::from_code(WorkspaceErrorCode::Ambiguous)
        };
        return Err(ambiguous.into());
    }
    let size = content.len() - count * old.len() + count.saturating_mul(new.len());
    if size as u64 > MAX_CONTENT {
        return Err(WorkspaceErrorCode::TooLarge.into());
    }
    let (mut made, mut rest) = (Vec::with_capacity(size), 0);
    for at in finder.find_iter(content) {
        made.extend_from_slice(&content[rest..at]);
        made.extend_from_slice(&new);
        rest = at + old.len();
    }
    made.extend_from_slice(&content[rest..]);
    Ok(EditedContent { content: made, count: count as u64, adapted })
}

/// Whether all its lines end in `\r\n`, and there are some.
fn is_crlf(content: &[u8]) -> bool {
    let mut ends = memchr_iter(b'\n', content).peekable();
    ends.peek().is_some() && ends.all(|at| at > 0 && content[at - 1] == b'\r')
}

/// Ends lines with `\r\n`.
fn crlf(text: &[u8]) -> Vec<u8> {
    let mut made = Vec::with_capacity(text.len() + text.len() / 16);
    for (index, byte) in text.iter().enumerate() {
        if *byte == b'\n' && (index == 0 || text[index - 1] != b'\r') {
            made.push(b'\r');
        }
        made.push(*byte);
    }
    made
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn made(content: &str, old: &str, new: &str, all: bool) -> OperationResult<(String, u64, bool)> {
        let made = replaced(content.as_bytes(), old.as_bytes(), new.as_bytes(), all)?;
        Ok((String::from_utf8(made.content).unwrap(), made.count, made.adapted))
    }

    #[test]
    fn w20_line_ends_of_a_file_are_kept() {
        assert_eq!(made("a\r\nb\r\n", "b", "c", false).unwrap(), ("a\r\nc\r\n".into(), 1, false));
        assert_eq!(made("a\r\nb\r\n", "a\nb", "x\ny\nz", false).unwrap(), ("x\r\ny\r\nz\r\n".into(), 1, true));
        assert_eq!(made("a\r\nb\n", "a\nb", "x", false).unwrap_err().0.code, WorkspaceErrorCode::NoMatch);
        assert_eq!(made("a\r\nb\r\n", "a\r\nb", "x\ny", false).unwrap(), ("x\ny\r\n".into(), 1, false));
    }

    #[test]
    fn w25_what_is_there_more_than_once_is_told_with_its_lines() {
        let trouble = made("x\ny x\n\nx", "x", "z", false).unwrap_err().0;
        assert_eq!(
            (trouble.code, trouble.occurrences, trouble.lines),
            (WorkspaceErrorCode::Ambiguous, 3, vec![1, 2, 4])
        );
        assert_eq!(made("x\ny x\n\nx", "x", "z", true).unwrap(), ("z\ny z\n\nz".into(), 3, false));
        assert_eq!(made("aaaa", "aa", "b", true).unwrap().0, "bb");
        assert_eq!(made("a", "", "b", true).unwrap_err().0.code, WorkspaceErrorCode::NoMatch);
    }

    proptest! {
        #[test]
        fn all_is_what_the_standard_library_does(content in "[ab\n]{0,30}", old in "[ab\n]{1,3}", new in "[ab]{0,3}") {
            match made(&content, &old, &new, true) {
                Ok((made, count, _)) => {
                    prop_assert_eq!(made, content.replace(&old, &new));
                    prop_assert_eq!(count, content.matches(&old).count() as u64);
                }
                Err(trouble) => {
                    prop_assert_eq!(trouble.0.code, WorkspaceErrorCode::NoMatch);
                    prop_assert!(!content.contains(&old));
                }
            }
        }
    }
}
