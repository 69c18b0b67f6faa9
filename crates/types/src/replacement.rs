//! Replacements of a session's container.

use serde::{Deserialize, Serialize};

/// The reason for the replacement of a slot's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It ended, or its guest stopped answering.
    Crashed,
    /// The kernel killed it because of memory.
    Oom,
    /// Its node in the cluster does not answer.
    NodeLost,
    /// The engine no longer has it.
    Vanished,
    /// It was not used for long.
    Idle,
    /// Its settings have changed.
    SpecChanged,
    /// A command in it exceeded its time limit.
    Timeout,
    /// It had ended and was started again with its files.
    Restarted,
    /// It never became ready.
    NotReady,
    /// It reached its maximum age, and was removed with its files.
    Lifetime,
}

impl Reason {
    /// The word of messages.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crashed => "crashed",
            Self::Oom => "oom",
            Self::NodeLost => "node_lost",
            Self::Vanished => "vanished",
            Self::Idle => "idle",
            Self::SpecChanged => "spec_changed",
            Self::Timeout => "timeout",
            Self::Restarted => "restarted",
            Self::NotReady => "not_ready",
            Self::Lifetime => "lifetime",
        }
    }

    /// Whether it counts towards the crash loop limit.
    #[must_use]
    pub fn is_failure(self) -> bool {
        matches!(self, Self::Crashed | Self::Oom | Self::Vanished)
    }
}

/// A replacement, reported once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Replacement {
    /// The reason.
    pub reason: Reason,
    /// Exit code of PID 1, where it is known.
    pub exit_code: Option<i64>,
    /// The generation that was reported last.
    pub from: u32,
    /// The current generation.
    pub to: u32,
    /// The volume was removed as well.
    pub files_lost: bool,
}
