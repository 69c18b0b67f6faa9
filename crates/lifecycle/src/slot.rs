//! Which container of a session.

use coracle_runtime::ContainerName;
use serde::{Deserialize, Serialize};

use crate::record::Role;

/// What a slot is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SlotRole {
    /// Files and commands.
    Workspace,
    /// Snippets of code.
    Run,
    /// The workflows of a sandbox, which is no agent's session: it has a key for a name, and outlives every process.
    /// What was installed in its container is kept as well as its volume, so one that ended is started again.
    Sandbox,
}

impl SlotRole {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Workspace, Self::Run, Self::Sandbox];

    /// The word of files and labels.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.role().as_str()
    }

    pub(crate) fn role(self) -> Role {
        match self {
            Self::Workspace => Role::Workspace,
            Self::Run => Role::Run,
            Self::Sandbox => Role::Sandbox,
        }
    }

    /// The part of names.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Workspace => "ws",
            Self::Run => "run",
            Self::Sandbox => "sbx",
        }
    }

    /// Its container is used again when it ended.
    pub(crate) fn is_started_again(self) -> bool {
        self == Self::Sandbox
    }
}

/// Which container of which slot.
#[derive(Clone, Copy, Debug)]
pub struct SlotId<'a> {
    /// The session.
    pub session: &'a ContainerName,
    /// Which of its slots.
    pub role: SlotRole,
    /// The how manieth container of that.
    pub generation: u32,
}
