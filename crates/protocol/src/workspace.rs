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
#[cfg(doc)]
use super::CallReply;
use super::UserSpec;

/// Bytes of a file that is written whole, of one that an edit makes, and of each of an edit's strings, at most.
pub const MAX_CONTENT: u64 = 32 << 20;

/// Bytes of what is told of a workspace, at most. A guest tells less rather than more.
pub const MAX_TOLD: usize = 16 << 20;

/// Does something with the files below a directory: [`CallReply::Space`], then [`WorkspaceReply`] as data (JSON). Payload: what the act
/// takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceRequest {
    /// Who does it.
    pub user: UserSpec,
    /// The workspace: an absolute path.
    pub root: String,
    /// What is done.
    pub act: WorkspaceOp,
    /// Bytes in the payload and what follows by [`Request::More`](crate::Request::More), at most twice [`MAX_CONTENT`].
    pub bytes: u32,
}
