//! Terminals: commands on one, that a person joins and leaves while they go on.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{ErrorCode, Lifetime};
use super::{JobInfo, TerminalSize};

/// The commands that run on a terminal, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTerminals;

/// A command that runs on a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalInfo {
    /// The command.
    pub job: JobInfo,
    /// Size of its terminal.
    pub size: TerminalSize,
    /// Callers that are attached now.
    pub attached: u32,
}

/// Joins a command on its terminal: input and sizes go to it, and its output comes. [`ErrorCode::NoJob`] for a command that
/// has ended, or has no terminal. Closing the channel leaves the command as it is, also one of [`Lifetime::Foreground`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachTerminal {
    /// Which.
    pub job: String,
    /// Size of the caller's terminal. A program that draws on the whole screen is made to draw anew.
    pub size: TerminalSize,
    /// Bytes of its latest output that come first.
    pub replay: u64,
}
