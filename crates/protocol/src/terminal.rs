//! Terminals: running commands to which users can attach.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::{ErrorCode, Lifetime};
use super::{JobInfo, TerminalSize};

/// Lists the commands that run on a terminal, oldest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListTerminals;

/// A command that runs on a terminal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TerminalInfo {
    /// The command.
    pub job: JobInfo,
    /// Size of its terminal.
    pub size: TerminalSize,
    /// Number of attached callers.
    pub attached: u32,
}

/// Attaches to the terminal of a command: sends input and sizes, and receives output. [`ErrorCode::NoJob`] for a command that
/// has ended, or has no terminal. Closing the channel does not affect the command, even with [`Lifetime::Foreground`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttachTerminal {
    /// The command's id.
    pub job: String,
    /// Size of the caller's terminal. The size always changes, so that a full-screen program redraws its screen.
    pub size: TerminalSize,
    /// How many bytes of the latest output are repeated first.
    pub replay: u64,
}
