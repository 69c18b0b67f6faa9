//! The dotfiles to set up.

use coracle_host::branch::BranchName;
use coracle_host::git_url::GitUrl;
use coracle_types::ContainerPath;

/// Dotfiles to clone and to set up, with all defaults resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dotfiles {
    /// The repository.
    pub url: GitUrl,
    /// The branch or tag, if not the default branch.
    pub branch: Option<BranchName>,
    /// The target: it does not exist, or is an empty directory.
    pub target: ContainerPath,
    /// The script that sets them up, relative to the clone; without one, the usual names are tried.
    pub script: Option<String>,
}
