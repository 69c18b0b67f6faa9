//! What becomes of uncommitted changes in a source directory.

/// What is done about changes of a directory that are not committed there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceChanges {
    /// They are not looked for: another program may be writing in the directory.
    Unseen,
    /// A warning reports them.
    Told,
    /// A worktree begins with them.
    Taken,
}
