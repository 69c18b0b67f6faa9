//! What becomes of files that an agent left uncommitted.

use serde::Serialize;

/// Who the commit is by. It is committed by Coracle.
#[derive(Clone, Debug)]
pub struct Author {
    /// A name.
    pub name: String,
    /// An address.
    pub email: String,
}

/// What became of files that were not committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub enum Leftover {
    /// There were none.
    Nothing,
    /// They are in a commit.
    Committed {
        /// Its id.
        commit: String,
        /// Files that differed from the commit before.
        files: u64,
        /// The branch that it is on.
        branch: String,
    },
    /// They stay as they are.
    Kept {
        /// Why.
        reason: String,
        /// How many.
        files: u64,
    },
}
