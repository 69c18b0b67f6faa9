//! How uncommitted changes of a source directory are handled.

/// How uncommitted changes of a source directory are handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChanges {
    /// They are not searched for: another program may be writing in the directory.
    Ignored,
    /// A warning reports them.
    Reported,
    /// A worktree starts with them.
    Included,
}
