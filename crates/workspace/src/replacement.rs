//! That a container took another's place, and why.

use serde::{Deserialize, Serialize};

/// A container that took another's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recreated {
    /// Why the other went.
    pub reason: Reason,
    /// How its PID 1 ended.
    pub exit_code: Option<i64>,
    /// The other's generation.
    pub from: u64,
    /// This one's.
    pub to: u64,
    /// The files of the workspace went with it.
    pub files_lost: bool,
}

/// Why a container went.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It ended, or did not answer.
    Crashed,
    /// The kernel ended it for memory.
    Oom,
    /// It was gone.
    Vanished,
    /// Nobody used it.
    Idle,
    /// Another one is wanted.
    SpecChanged,
    /// A run took too long.
    Timeout,
    /// It had been there for as long as it may.
    Lifetime,
}

impl Reason {
    /// The word in answers and events.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::Vanished => "vanished",
            Self::Idle => "idle",
            Self::SpecChanged => "spec_changed",
            Self::Timeout => "timeout",
            Self::Lifetime => "lifetime",
        }
    }
}
