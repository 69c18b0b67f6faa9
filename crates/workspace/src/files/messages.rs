//! What went wrong with a file, in the words that models know (workspace.md 2.1 to 2.4).

use coracle_runtime::link::wire::space::{Done, Trouble, TroubleCode};

use crate::{Code, Failure};

/// What it means that nothing is at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotFoundContext {
    /// A file was meant.
    File,
    /// A directory was meant.
    Directory,
    /// Either.
    Path,
    /// Something to be removed.
    Removed,
}

/// A trouble with what was named `path`.
pub(crate) fn failure(trouble: &Trouble, path: &str, context: NotFoundContext) -> Failure {
    let (code, message) = words(trouble, path, context);
    let failure = Failure::new(code, message);
    match trouble.code {
        TroubleCode::Ambiguous => {
            failure.detail("occurrences", trouble.occurrences).detail("line_numbers", &trouble.lines)
        }
        TroubleCode::BadPattern => failure.detail("hint", HINT),
        _ => failure,
    }
}

const HINT: &str =
    "Rust's syntax: no look-around, no back-references; escape `(`, `[`, `{`, `.` and the like with `\\`";

fn words(trouble: &Trouble, path: &str, context: NotFoundContext) -> (Code, String) {
    let detail = &trouble.detail;
    match (trouble.code, context) {
        (TroubleCode::NotFound, NotFoundContext::File) => {
            (Code::FileNotFound, "File does not exist in the filesystem.".to_owned())
        }
        (TroubleCode::NotFound, NotFoundContext::Directory) => {
            (Code::DirectoryNotFound, "Directory does not exist in the filesystem.".to_owned())
        }
        (TroubleCode::NotFound, NotFoundContext::Path) => {
            (Code::PathNotFound, "Path does not exist in the filesystem.".to_owned())
        }
        (TroubleCode::NotFound, NotFoundContext::Removed) => {
            (Code::NothingMatched, "No files matched the provided path.".to_owned())
        }
        (TroubleCode::NotDirectory, NotFoundContext::Directory) => {
            (Code::NotADirectory, "Cannot list a file path; provide a directory.".to_owned())
        }
        (TroubleCode::NotDirectory, _) => (Code::NotADirectory, "A parent of the path is not a directory.".to_owned()),
        (TroubleCode::Exists, _) => {
            (Code::FileExists, "File already exists; use edit_file to modify existing content.".to_owned())
        }
        (TroubleCode::Escape, _) => (Code::PathEscape, format!("Path escapes the workspace: {path}.")),
        (TroubleCode::IsDirectory, _) => (Code::IsADirectory, "Cannot read a directory; use ls.".to_owned()),
        (TroubleCode::NotRegular, _) => (Code::NotRegular, "Not a regular file.".to_owned()),
        (TroubleCode::Binary, _) => (
            Code::BinaryFile,
            format!(
                "Cannot read '{path}' as text: file contains binary content that cannot be decoded as utf-8. Use \
                 encoding=\"base64\" to read it as bytes."
            ),
        ),
        (TroubleCode::TooLarge, _) => (Code::ContentTooLarge, "Content exceeds maximum length of 32MB.".to_owned()),
        (TroubleCode::NoMatch, _) => (Code::OldStringNotFound, "old_string not found in the target file.".to_owned()),
        (TroubleCode::Ambiguous, _) => {
            (Code::OldStringAmbiguous, "old_string must match exactly once unless replace_all is true.".to_owned())
        }
        (TroubleCode::NotSeen, _) => (Code::ReadRequired, format!("File '{path}' must be read before overwriting.")),
        (TroubleCode::Stale, _) => {
            (Code::StaleRead, format!("File '{path}' changed since it was read; read it again."))
        }
        (TroubleCode::Full, _) => (Code::DiskFull, "No space left in the workspace.".to_owned()),
        (TroubleCode::NotEmpty, _) => (Code::RmIncomplete, "Removal is incomplete.".to_owned()),
        (TroubleCode::Denied | TroubleCode::ReadOnly, _) => {
            (Code::PermissionDenied, "The path is not writable for the session user.".to_owned())
        }
        (TroubleCode::BadPattern, _) => (Code::InvalidRegex, format!("Invalid regular expression: {detail}")),
        (TroubleCode::Io | TroubleCode::Unknown, _) => {
            (Code::Internal, format!("The workspace failed for '{path}': {detail}."))
        }
    }
}

/// The guest answered something else than was asked for, which none of ours does.
pub(crate) fn unexpected(done: &Done) -> Failure {
    Failure::new(Code::Internal, format!("The guest answered something else: {done:.200?}."))
}
