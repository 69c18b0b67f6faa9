//! The role of a container that a session or sandbox gets automatically.

use serde::{Deserialize, Serialize};

/// The role of a container. Ending a snippet must not affect the agent's workspace, so each role has its own container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotRole {
    /// Files and commands.
    Workspace,
    /// Snippets of code.
    Run,
    /// The workflows of a sandbox. A sandbox is named by a key, and outlives every process. Its container is retained
    /// as well as its volume, so one that ended is started again.
    Sandbox,
}

impl SlotRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Run, Self::Sandbox];

    /// The word of files and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Workspace => "workspace",
            Self::Run => "run",
            Self::Sandbox => "sandbox",
        }
    }

    /// The part of names.
    #[must_use]
    pub fn short(self) -> &'static str {
        match self {
            Self::Workspace => "ws",
            Self::Run => "run",
            Self::Sandbox => "sbx",
        }
    }

    /// Whether its container is used again when it ended.
    #[must_use]
    pub fn is_started_again(self) -> bool {
        self == Self::Sandbox
    }
}
