//! The files of a workspace: operations of tools, and their replies.
//!
//! Paths here are relative to the workspace, parts joined by `/`; the empty one is the workspace itself. No part is empty,
//! `.` or `..`. Links to targets inside are followed, also absolute ones.

mod reply;
mod request;

use serde::{Deserialize, Serialize};

pub use self::reply::{
    ChangeReport, EntryKind, FileDigest, GrepMatch, LineEnding, StagedFile, TextRange, TrackedFile, WorkspaceEntry,
    WorkspaceError, WorkspaceErrorCode, WorkspaceReply, WriteReport,
};
pub use self::request::{OpenMode, SearchLimits, WorkspaceOp};
use super::UserSpec;

/// Largest file that is written or edited, and longest string of an edit, in bytes.
pub const MAX_CONTENT: u64 = 32 << 20;

/// Longest request in bytes.
pub const MAX_WORKSPACE_REQUEST: usize = 2 * MAX_CONTENT as usize;

/// Longest reply in bytes. A guest omits entries beyond it.
pub const MAX_WORKSPACE_REPLY: usize = 16 << 20;

/// Executes an operation on the files below a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRequest {
    /// The user.
    pub user: UserSpec,
    /// The workspace: an absolute path.
    pub root: String,
    /// The operation.
    pub act: WorkspaceOp,
}
