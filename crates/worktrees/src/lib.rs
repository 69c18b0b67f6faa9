//! One repository for many agents: a git worktree and a branch in the container for each workflow.
//!
//! [`WorktreeManager`] maintains a mirror of each repository on the host, fills the bare repository in a container from
//! it, and gives each workflow a worktree there. Commits leave the container as bundles, into a repository of Coracle
//! with nothing else in it, and only from there to a server.
//!
//! **Invariant:** git on the host opens only repositories of Coracle's, and the user's source to read from it.
//! **Invariant:** no credential enters a container.
//! **Invariant:** the branch, the server and the base commit are read from records of the host, never from a container.
//! **Invariant:** nothing is removed before its unsaved work is saved and checked.
//!
//! ```no_run
//! use coracle_types::failure::Failure;
//! use coracle_worktrees::create::{CreateRequest, Worktree};
//! use coracle_worktrees::{Workdir, WorktreeManager, WorktreeSettings};
//!
//! /// Creates the worktree of a workflow in a running container.
//! async fn start(container: &Workdir, request: &CreateRequest) -> Result<Worktree, Failure> {
//!     let worktrees = WorktreeManager::new(WorktreeSettings::new("/var/lib/coracle".into()))?;
//!     worktrees.create(container, request).await
//! }
//! ```

#![warn(missing_docs)]

mod checkout_failure;
mod git_output;
mod leftover;
mod local_repository;
mod names;
mod near_names;
mod nested_repository;
mod patch;
mod processes;
mod repository_source;
mod settings;
mod shared_dir;
mod stray_commits;
mod workflow_records;
mod worktree;

/// Creates worktrees, and the repository that they belong to.
pub mod create {
    pub use crate::worktree::create::{CreateRequest, Worktree};
    pub use crate::worktree::directory_copy::DirectoryCopy;
    pub use crate::worktree::init_repository::{RepositoryInfo, SetupRequest};
    pub use crate::worktree::source_changes::SourceChanges;
}

/// Lists worktrees with their states.
pub mod list {
    pub use crate::worktree::list::{WorktreeListing, WorktreeStatus};
}

/// Exports the work of a workflow: diffs, patches, checkouts on this host, pushes.
pub mod changes {
    pub use crate::git_output::FileChange;
    pub use crate::stray_commits::StrayCommits;
    pub use crate::worktree::apply::{ApplyMode, ApplyReport, ApplyRequest};
    pub use crate::worktree::diff::{Diff, DiffOptions};
    pub use crate::worktree::export::{ExportReport, PatchFormat};
    pub use crate::worktree::log::Commit;
    pub use crate::worktree::push::{PushReport, PushRequest};
}

/// Reads files of one commit, without a worktree.
pub mod commit_files {
    pub use crate::git_output::{CommitFile, CommitFileKind};
    pub use crate::worktree::inspect::{PackPaths, RepoCommit, pack_file};
}

/// Removes worktrees, and commits or saves their work.
pub mod remove {
    pub use crate::leftover::{Author, Leftover};
    pub use crate::worktree::item_save::SavedWork;
    pub use crate::worktree::remove::RemovalReport;
    pub use crate::worktree::remove_request::RemoveRequest;
}

/// A host directory with the files of a sandbox.
pub mod shared {
    pub use crate::shared_dir::{READ_ONLY, SharedDir};
}

pub use settings::WorktreeSettings;
pub use worktree::WorktreeManager;
pub use worktree::git_in_container::Workdir;
