//! Messages for errors of files, as models know them.

use coracle_protocol::workspace::{WorkspaceError, WorkspaceErrorCode, WorkspaceReply};

use crate::{Code, Failure};

/// The expected kind of a missing file.
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
pub(crate) fn failure(err: &WorkspaceError, path: &str, missing: NotFoundContext) -> Failure {
    let (code, message) = message(err, path, missing);
    let failure = Failure::new(code, message);
    match err.code {
        WorkspaceErrorCode::Ambiguous => {
            failure.detail("occurrences", err.occurrences).detail("line_numbers", &err.lines)
        }
        WorkspaceErrorCode::BadPattern if code == Code::InvalidRegex => failure.detail("hint", HINT),
        _ => failure,
    }
}

const HINT: &str =
    "Rust's syntax: no look-around, no back-references; escape `(`, `[`, `{`, `.` and the like with `\\`";

fn message(err: &WorkspaceError, path: &str, missing: NotFoundContext) -> (Code, String) {
    use NotFoundContext::{Directory, File, Path, Removed};
    use WorkspaceErrorCode as E;
    let detail = &err.detail;
    let (code, text) = match (err.code, missing) {
        (E::NotFound, File) => (Code::FileNotFound, "File does not exist in the filesystem."),
        (E::NotFound, Directory) => (Code::DirectoryNotFound, "Directory does not exist in the filesystem."),
        (E::NotFound, Path) => (Code::PathNotFound, "Path does not exist in the filesystem."),
        (E::NotFound, Removed) => (Code::NothingMatched, "No files matched the provided path."),
        (E::NotDirectory, Directory) => (Code::NotADirectory, "Cannot list a file path; provide a directory."),
        (E::NotDirectory, _) => (Code::NotADirectory, "A parent of the path is not a directory."),
        (E::Exists, _) => (Code::FileExists, "File already exists; use edit_file to modify existing content."),
        (E::Escape, _) => return (Code::PathEscape, format!("Path escapes the workspace: {path}.")),
        (E::IsDirectory, _) => (Code::IsADirectory, "Cannot read a directory; use ls."),
        (E::NotRegular, _) => (Code::NotRegular, "Not a regular file."),
        (E::Binary, _) => {
            let message = format!(
                "Cannot read '{path}' as text: file contains binary content that cannot be decoded as utf-8. Use \
                 encoding=\"base64\" to read it as bytes."
            );
            return (Code::BinaryFile, message);
        }
        (E::TooLarge, _) => (Code::ContentTooLarge, "Content exceeds maximum length of 32MB."),
        (E::NoMatch, _) => (Code::OldStringNotFound, "old_string not found in the target file."),
        (E::Ambiguous, _) => {
            (Code::OldStringAmbiguous, "old_string must match exactly once unless replace_all is true.")
        }
        (E::NotSeen, _) => return (Code::ReadRequired, format!("File '{path}' must be read before overwriting.")),
        (E::Stale, _) => {
            return (Code::StaleRead, format!("File '{path}' changed since it was read; read it again."));
        }
        (E::Full, _) => (Code::DiskFull, "No space left in the workspace."),
        (E::NotEmpty, _) => (Code::RmIncomplete, "Removal is incomplete."),
        (E::Denied | E::ReadOnly, _) => (Code::PermissionDenied, "The path is not writable for the session user."),
        (E::BadPattern, Directory) => return (Code::InvalidPattern, format!("Invalid pattern: {detail}")),
        (E::BadPattern, _) => return (Code::InvalidRegex, format!("Invalid regular expression: {detail}")),
        (E::Io | E::Unknown, _) => {
            return (Code::Internal, format!("The workspace failed for '{path}': {detail}."));
        }
    };
    (code, text.to_owned())
}

/// The failure for a reply of another kind than the request's.
pub(crate) fn unexpected(done: &WorkspaceReply) -> Failure {
    Failure::new(Code::Internal, format!("The guest answered something else: {done:.200?}."))
}
