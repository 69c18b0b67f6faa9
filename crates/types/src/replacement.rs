//! Replacements of a session's container.

use serde::{Deserialize, Serialize};

/// The reason for the replacement of a slot's container.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It ended, or its guest fell silent.
    Crashed,
    /// The kernel ended it for memory.
    Oom,
    /// The node of the cluster that it was on does not answer.
    NodeLost,
    /// The engine does not have it any more.
    Vanished,
    /// It was not used for long.
    Idle,
    /// It would be made otherwise now.
    SpecChanged,
    /// A command in it exceeded its time limit.
    Timeout,
    /// It had ended and was started again, with the files that it had.
    Restarted,
    /// It was never fit for use.
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

    /// Counts towards the crash loop limit.
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
    /// The one that is there now.
    pub to: u32,
    /// The volume is gone as well.
    pub files_lost: bool,
}
