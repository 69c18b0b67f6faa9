//! Settings of worktrees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// The user's settings of worktrees.
#[derive(Clone, Debug)]
pub struct WorktreeSettings {
    /// The state directory.
    pub state: PathBuf,
    /// Prefix of all branches of workflows: `coracle/`.
    pub branch_prefix: String,
    /// Directories below which local sources and targets of patches may be.
    pub allow_roots: Vec<PathBuf>,
    /// Whether plain `http` and private addresses are allowed (`images.git_allow_private`).
    pub allow_private: bool,
    /// Whether an unreachable remote is no failure if there is a mirror of it.
    pub offline_ok: bool,
    /// Whether received objects are checked (`worktree.fsck`).
    pub fsck: bool,
    /// Whether work may be discarded (`security.allow_discard`).
    pub allow_discard: bool,
    /// Timeout of a git command that reads or writes a whole repository (`sandbox.worktree.git_timeout`).
    pub git_timeout: Duration,
    /// Maximum size of the commits in one push or export (`sandbox.worktree.bundle_max`).
    pub bundle_max: u64,
    /// Maximum size of one save (`lifecycle.save_max`).
    pub save_max: u64,
    /// Directories of the user's `PATH` that no container can write to: their git is used if it is newer.
    pub programs: Vec<PathBuf>,
    /// The environment of the user's credential helper and SSH program.
    pub user_env: BTreeMap<String, OsString>,
}

impl WorktreeSettings {
    /// The defaults, which allow nothing that the user has to allow.
    #[must_use]
    pub fn new(state: PathBuf) -> Self {
        Self {
            state,
            branch_prefix: "coracle/".into(),
            allow_roots: Vec::new(),
            allow_private: false,
            offline_ok: true,
            fsck: true,
            allow_discard: false,
            git_timeout: Duration::from_secs(600),
            bundle_max: 1 << 30,
            save_max: 512 << 20,
            programs: Vec::new(),
            user_env: BTreeMap::new(),
        }
    }
}
