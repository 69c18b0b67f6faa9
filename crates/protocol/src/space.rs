//! The files of a workspace: what tools do with them, and what comes back.
//!
//! Paths here are relative to the workspace, parts joined by `/`; the empty one is the workspace itself. No part is empty,
//! `.` or `..`. A link is followed when it leads to something inside, also one that says where that is absolutely.

mod act;
mod done;

use serde::{Deserialize, Serialize};

pub use self::act::{Act, Bounds, How};
pub use self::done::{
    Changes, Done, Ending, Hit, Item, ItemKind, Staged, Sum, Text, Touch, Trouble, TroubleCode, Written,
};
use super::Who;
#[cfg(doc)]
use super::{Answer, Ask};

/// Bytes of a file that is written whole, of one that an edit makes, and of each of an edit's strings, at most.
pub const MAX_CONTENT: u64 = 32 << 20;

/// Bytes of what is told of a space, at most. A guest tells less rather than more.
pub const MAX_TOLD: usize = 16 << 20;

/// Does something with the files below a directory: [`Answer::Space`], then [`Done`] as data (JSON). Payload: what the act
/// takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Space {
    /// Who does it.
    pub user: Who,
    /// The workspace: an absolute path.
    pub root: String,
    /// What is done.
    pub act: Act,
    /// Bytes in the payload and what follows by [`Ask::More`], at most twice [`MAX_CONTENT`].
    pub bytes: u32,
}
