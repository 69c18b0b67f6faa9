//! Replaces a text in a file.

use std::borrow::Cow;
use std::io::Write as _;

use memchr::memchr_iter;
use memchr::memmem::Finder;

use super::WorkspaceOperation;
use super::write::WrittenContent;
use crate::files::error::OperationResult;
use crate::files::resolve::{ResolvedPath, content};
use crate::protocol::workspace::{MAX_CONTENT, WorkspaceError, WorkspaceErrorCode, WriteReport};

/// How many line numbers of an ambiguous text are reported.
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
        self.change(edit.path, false, |resolved| self.edit_at(edit, resolved))
    }

    fn edit_at(&self, edit: &Edit<'_>, resolved: &ResolvedPath) -> OperationResult<WriteReport> {
        let (file, stat) = self.old(resolved, edit.seen)?;
        let before = content(&file, MAX_CONTENT)?.ok_or(WorkspaceErrorCode::TooLarge)?;
        let edited = replaced(&before, edit.old, edit.new, edit.all)?;
        let done = if edited.content == before {
            self.report_file(edit.path, resolved, (file, stat), edit.tool)
                .map(|it| WriteReport { changed: false, ..it })
        } else {
            drop(before);
            let (_, stat) = self.replace(resolved, (stat.st_mode, true), |it| Ok(it.write_all(&edited.content)?))?;
            let written = WrittenContent { bytes: &edited.content, stat };
            Ok(self.report_content(edit.path, resolved, written, edit.tool))
        };
        done.map(|it| WriteReport { replaced: edited.count, adapted: edited.adapted, ..it })
    }
}

/// The content after an edit.
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
    let (mut edited, mut rest) = (Vec::with_capacity(size), 0);
    for at in finder.find_iter(content) {
        edited.extend_from_slice(&content[rest..at]);
        edited.extend_from_slice(&new);
        rest = at + old.len();
    }
    edited.extend_from_slice(&content[rest..]);
    Ok(EditedContent { content: edited, count: count as u64, adapted })
}

/// Whether the content has lines and all of them end in `\r\n`.
fn is_crlf(content: &[u8]) -> bool {
    let mut ends = memchr_iter(b'\n', content).peekable();
    ends.peek().is_some() && ends.all(|at| at > 0 && content[at - 1] == b'\r')
}

/// Converts line endings to `\r\n`.
fn crlf(text: &[u8]) -> Vec<u8> {
    let mut converted = Vec::with_capacity(text.len() + text.len() / 16);
    for (index, byte) in text.iter().enumerate() {
        if *byte == b'\n' && (index == 0 || text[index - 1] != b'\r') {
            converted.push(b'\r');
        }
        converted.push(*byte);
    }
    converted
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn edit(content: &str, old: &str, new: &str, all: bool) -> OperationResult<(String, u64, bool)> {
        let edited = replaced(content.as_bytes(), old.as_bytes(), new.as_bytes(), all)?;
        Ok((String::from_utf8(edited.content).unwrap(), edited.count, edited.adapted))
    }

    #[test]
    fn w20_the_line_endings_of_a_file_are_retained() {
        assert_eq!(edit("a\r\nb\r\n", "b", "c", false).unwrap(), ("a\r\nc\r\n".into(), 1, false));
        assert_eq!(edit("a\r\nb\r\n", "a\nb", "x\ny\nz", false).unwrap(), ("x\r\ny\r\nz\r\n".into(), 1, true));
        assert_eq!(edit("a\r\nb\n", "a\nb", "x", false).unwrap_err().0.code, WorkspaceErrorCode::NoMatch);
        assert_eq!(edit("a\r\nb\r\n", "a\r\nb", "x\ny", false).unwrap(), ("x\ny\r\n".into(), 1, false));
    }

    #[test]
    fn w25_an_ambiguous_text_is_reported_with_its_lines() {
        let error = edit("x\ny x\n\nx", "x", "z", false).unwrap_err().0;
        assert_eq!((error.code, error.occurrences, error.lines), (WorkspaceErrorCode::Ambiguous, 3, vec![1, 2, 4]));
        assert_eq!(edit("x\ny x\n\nx", "x", "z", true).unwrap(), ("z\ny z\n\nz".into(), 3, false));
        assert_eq!(edit("aaaa", "aa", "b", true).unwrap().0, "bb");
        assert_eq!(edit("a", "", "b", true).unwrap_err().0.code, WorkspaceErrorCode::NoMatch);
    }

    proptest! {
        #[test]
        fn replacing_all_is_like_the_standard_library(content in "[ab\n]{0,30}", old in "[ab\n]{1,3}", new in "[ab]{0,3}") {
            match edit(&content, &old, &new, true) {
                Ok((edited, count, _)) => {
                    prop_assert_eq!(edited, content.replace(&old, &new));
                    prop_assert_eq!(count, content.matches(&old).count() as u64);
                }
                Err(error) => {
                    prop_assert_eq!(error.0.code, WorkspaceErrorCode::NoMatch);
                    prop_assert!(!content.contains(&old));
                }
            }
        }
    }
}
