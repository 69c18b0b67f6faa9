//! The files of a workspace: what tools do with them, and what comes back.
//!
//! Paths here are relative to the workspace, parts joined by `/`; the empty one is the workspace itself. No part is empty,
//! `.` or `..`. A link is followed when it leads to something inside, also one that says where that is absolutely.

mod reply;
mod request;

use serde::{Deserialize, Serialize};

pub use self::reply::{
    ChangeReport, EntryKind, FileDigest, GrepMatch, LineEnding, StagedFile, TextRange, TrackedFile, WorkspaceEntry,
    WorkspaceError, WorkspaceErrorCode, WorkspaceReply, WriteReport,
};
pub use self::request::{OpenMode, SearchLimits, WorkspaceOp};
use super::UserSpec;

/// Bytes of a file that is written whole, of one that an edit makes, and of each of an edit's strings, at most.
pub const MAX_CONTENT: u64 = 32 << 20;

/// Bytes that an act may bring.
pub const MAX_BROUGHT: usize = 2 * MAX_CONTENT as usize;

/// Bytes of what is told of a workspace, at most. A guest tells less rather than more.
pub const MAX_TOLD: usize = 16 << 20;

/// Does something with the files below a directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRequest {
    /// Who does it.
    pub user: UserSpec,
    /// The workspace: an absolute path.
    pub root: String,
    /// What is done.
    pub act: WorkspaceOp,
}
