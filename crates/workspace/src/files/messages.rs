//! Messages for errors of files, as models know them (workspace.md 2.1 to 2.4).

use coracle_runtime::link::protocol::workspace::{WorkspaceError, WorkspaceErrorCode, WorkspaceReply};

use crate::{Code, Failure};

/// What the path of a missing file was expected to be.
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

/// The failure for an error of the guest at `path`.
pub(crate) fn failure(trouble: &WorkspaceError, path: &str, context: NotFoundContext) -> Failure {
    let (code, message) = words(trouble, path, context);
    let failure = Failure::new(code, message);
    match trouble.code {
        WorkspaceErrorCode::Ambiguous => {
            failure.detail("occurrences", trouble.occurrences).detail("line_numbers", &trouble.lines)
        }
        WorkspaceErrorCode::BadPattern => failure.detail("hint", HINT),
        _ => failure,
    }
}

const HINT: &str =
    "Rust's syntax: no look-around, no back-references; escape `(`, `[`, `{`, `.` and the like with `\\`";

fn words(trouble: &WorkspaceError, path: &str, context: NotFoundContext) -> (Code, String) {
    let detail = &trouble.detail;
    match (trouble.code, context) {
        (WorkspaceErrorCode::NotFound, NotFoundContext::File) => {
            (Code::FileNotFound, "File does not exist in the filesystem.".to_owned())
        }
        (WorkspaceErrorCode::NotFound, NotFoundContext::Directory) => {
            (Code::DirectoryNotFound, "Directory does not exist in the filesystem.".to_owned())
        }
        (WorkspaceErrorCode::NotFound, NotFoundContext::Path) => {
            (Code::PathNotFound, "Path does not exist in the filesystem.".to_owned())
        }
        (WorkspaceErrorCode::NotFound, NotFoundContext::Removed) => {
            (Code::NothingMatched, "No files matched the provided path.".to_owned())
        }
        (WorkspaceErrorCode::NotDirectory, NotFoundContext::Directory) => {
            (Code::NotADirectory, "Cannot list a file path; provide a directory.".to_owned())
        }
        (WorkspaceErrorCode::NotDirectory, _) => {
            (Code::NotADirectory, "A parent of the path is not a directory.".to_owned())
        }
        (WorkspaceErrorCode::Exists, _) => {
            (Code::FileExists, "File already exists; use edit_file to modify existing content.".to_owned())
        }
        (WorkspaceErrorCode::Escape, _) => (Code::PathEscape, format!("Path escapes the workspace: {path}.")),
        (WorkspaceErrorCode::IsDirectory, _) => (Code::IsADirectory, "Cannot read a directory; use ls.".to_owned()),
        (WorkspaceErrorCode::NotRegular, _) => (Code::NotRegular, "Not a regular file.".to_owned()),
        (WorkspaceErrorCode::Binary, _) => (
            Code::BinaryFile,
            format!(
                "Cannot read '{path}' as text: file contains binary content that cannot be decoded as utf-8. Use \
                 encoding=\"base64\" to read it as bytes."
            ),
        ),
        (WorkspaceErrorCode::TooLarge, _) => {
            (Code::ContentTooLarge, "Content exceeds maximum length of 32MB.".to_owned())
        }
        (WorkspaceErrorCode::NoMatch, _) => {
            (Code::OldStringNotFound, "old_string not found in the target file.".to_owned())
        }
        (WorkspaceErrorCode::Ambiguous, _) => {
            (Code::OldStringAmbiguous, "old_string must match exactly once unless replace_all is true.".to_owned())
        }
        (WorkspaceErrorCode::NotSeen, _) => {
            (Code::ReadRequired, format!("File '{path}' must be read before overwriting."))
        }
        (WorkspaceErrorCode::Stale, _) => {
            (Code::StaleRead, format!("File '{path}' changed since it was read; read it again."))
        }
        (WorkspaceErrorCode::Full, _) => (Code::DiskFull, "No space left in the workspace.".to_owned()),
        (WorkspaceErrorCode::NotEmpty, _) => (Code::RmIncomplete, "Removal is incomplete.".to_owned()),
        (WorkspaceErrorCode::Denied | WorkspaceErrorCode::ReadOnly, _) => {
            (Code::PermissionDenied, "The path is not writable for the session user.".to_owned())
        }
        (WorkspaceErrorCode::BadPattern, _) => (Code::InvalidRegex, format!("Invalid regular expression: {detail}")),
        (WorkspaceErrorCode::Io | WorkspaceErrorCode::Unknown, _) => {
            (Code::Internal, format!("The workspace failed for '{path}': {detail}."))
        }
    }
}

/// The failure for a reply of another kind than the request's.
pub(crate) fn unexpected(done: &WorkspaceReply) -> Failure {
    Failure::new(Code::Internal, format!("The guest answered something else: {done:.200?}."))
}
