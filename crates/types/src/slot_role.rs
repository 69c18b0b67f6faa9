//! The purpose of a container that a session or sandbox gets without a request.

use serde::{Deserialize, Serialize};

/// The purpose of a slot. A snippet that is ended must not cost the agent its workspace, so each has a container of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotRole {
    /// Files and commands.
    Workspace,
    /// Snippets of code.
    Run,
    /// The workflows of a sandbox. A sandbox has a key for a name, and outlives every process. Its container is kept as
    /// well as its volume, so one that ended is started again.
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

    /// Its container is used again when it ended.
    #[must_use]
    pub fn is_started_again(self) -> bool {
        self == Self::Sandbox
    }
}
