//! Settings of worktrees.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

/// What the user decided about worktrees.
#[derive(Clone, Debug)]
pub struct WorktreeSettings {
    /// `$STATE`.
    pub state: PathBuf,
    /// All branches of workflows begin with it: `coracle/`.
    pub branch_prefix: String,
    /// Directories beneath which a local source, or what a patch is applied to, may lie.
    pub allow_roots: Vec<PathBuf>,
    /// Plain `http`, and addresses that are not public (`images.git_allow_private`).
    pub allow_private: bool,
    /// A remote that cannot be reached is no failure while there is a mirror of it.
    pub offline_ok: bool,
    /// Objects are checked where they come in (`worktree.fsck`).
    pub fsck: bool,
    /// Work may be thrown away (`security.allow_discard`).
    pub allow_discard: bool,
    /// The limit of one git that reads or writes a whole repository (`sandbox.worktree.git_timeout`).
    pub git_timeout: Duration,
    /// Bytes of the commits that one push or export takes out (`sandbox.worktree.bundle_max`).
    pub bundle_max: u64,
    /// Bytes of one save (`lifecycle.save_max`).
    pub save_max: u64,
    /// Directories of the user's `PATH` that no container can write: git runs from there if it is newer.
    pub programs: Vec<PathBuf>,
    /// The person's environment, for their own credential helper and their ssh.
    pub person: BTreeMap<String, OsString>,
}

impl WorktreeSettings {
    /// The defaults, with nothing allowed that a person has to allow.
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
            person: BTreeMap::new(),
        }
    }
}
