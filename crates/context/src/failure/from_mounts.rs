//! Errors of copying host directories into a workspace and back, with hints.

use coracle_runtime::PolicyRefusal;
use coracle_workspace::{ApplyError, ImportError};

use super::{Code, Failure};

impl From<ImportError> for Failure {
    fn from(err: ImportError) -> Self {
        let message = err.to_string();
        match err {
            ImportError::Twice(path) => Self::new(Code::MountInvalid, message)
                .detail("path", path)
                .hint("give the mounts a `mount_path` each, or leave the file out with `exclude_glob`"),
            ImportError::Refused { path, problem } => {
                let refused = Self::from(PolicyRefusal { problems: vec![*problem] });
                refused
                    .with_message(message)
                    .detail("path", path)
                    .hint("leave the link out with `exclude_glob`, or `follow_symlinks` false")
            }
            ImportError::TooLarge { name, limit, of } => Self::new(Code::MountTooLarge, message)
                .detail("host_path", name)
                .detail("limit", limit)
                .detail("of", of)
                .hint("narrow it with `include_glob` and `exclude_glob`, or raise its `max_bytes`, `copy.max_bytes` or `copy.max_entries` in the configuration"),
            ImportError::Read { path, source } => Self::new(Code::MountFailed, message)
                .detail("path", path)
                .detail("why", source.to_string())
                .hint("see whether the file can be read, or leave it out with `exclude_glob`"),
            ImportError::Link(err) => Self::from(coracle_lifecycle::Error::from(err)),
            _ => Self::new(Code::MountFailed, message).hint("see whether the files fit into the workspace"),
        }
    }
}

impl From<ApplyError> for Failure {
    fn from(err: ApplyError) -> Self {
        let message = err.to_string();
        match err {
            ApplyError::Conflict(conflicts) => Self::new(Code::ApplyConflict, message)
                .detail("conflicts", conflicts)
                .hint("nothing was written; take them over by hand: `coracle workspace export` gives all files"),
            ApplyError::Gone(err) => Self::from(coracle_lifecycle::Error::from(err)),
            ApplyError::Changing(path) => {
                Self::new(Code::Busy, message).detail("path", path).hint("wait until nothing runs in the workspace")
            }
            ApplyError::TooLarge { .. } => Self::new(Code::ApplyFailed, message)
                .hint("nothing was written; raise `copy.max_bytes` or `copy.max_entries`"),
            ApplyError::Io { path, written, copies, source } => {
                let hint = match copies.first() {
                    None => {
                        "nothing was changed; see that the file can be written and the disk has room, then try again"
                            .to_owned()
                    }
                    Some(first) => format!(
                        "files of `written` could not be put back: copy them back from `{}`, then remove it",
                        first.display()
                    ),
                };
                let failure =
                    Self::new(Code::ApplyFailed, message).detail("path", path).detail("why", source.to_string());
                failure.detail("written", written).detail("copies", copies).hint(hint)
            }
            ApplyError::Link(err) => Self::from(coracle_lifecycle::Error::from(err)),
            other => Self::internal(other),
        }
    }
}
