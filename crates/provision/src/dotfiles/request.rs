//! Dotfiles that are to be set up.

use coracle_host::branch::BranchName;
use coracle_host::git_url::GitUrl;
use coracle_types::ContainerPath;

/// Dotfiles to clone and to set up, every default decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dotfiles {
    /// From where.
    pub url: GitUrl,
    /// Which branch or tag, if not the default one.
    pub branch: Option<BranchName>,
    /// To where: nothing is there, or an empty directory.
    pub target: ContainerPath,
    /// The script that sets them up, from the clone on; without one it is looked for.
    pub script: Option<String>,
}
