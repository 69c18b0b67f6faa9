//! The result of committing files that an agent left uncommitted.

use serde::Serialize;

/// The author of the commit. The committer is Coracle.
#[derive(Clone, Debug)]
pub struct Author {
    /// A name.
    pub name: String,
    /// An address.
    pub email: String,
}

/// What happened to the uncommitted files.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Leftover {
    /// There were none.
    Nothing,
    /// They were committed.
    Committed {
        /// Its id.
        commit: String,
        /// The number of files.
        files: u64,
        /// The branch of the commit.
        branch: String,
    },
    /// They stay uncommitted.
    Kept {
        /// The reason.
        reason: String,
        /// The number of files.
        files: u64,
    },
}
