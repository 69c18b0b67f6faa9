//! Why something was not done.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why something was not done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// What a caller can tell apart.
    pub code: ErrorCode,
    /// A sentence without a final period.
    pub message: String,
    /// What the sentence is about.
    #[serde(default)]
    pub about: BTreeMap<String, String>,
}

/// Bytes of a fault's message, at most.
const LONGEST_MESSAGE: usize = 4 << 10;

impl RpcError {
    /// A fault without details. What is said beyond 4 KiB is cut: it may quote anything, and goes into a header.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        Self { code, message, about: BTreeMap::new() }
    }
}

/// Faults that a caller can tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// What was asked for makes no sense.
    Invalid,
    /// The work directory is missing, or no directory.
    NoDirectory,
    /// A script needs `/bin/sh`, and there is none.
    NoShell,
    /// The program is missing or cannot be executed; only for a job.
    NoProgram,
    /// No such user.
    NoUser,
    /// The kernel takes no command of that length.
    TooLong,
    /// No job of that id.
    NoJob,
    /// A job of that id is there already.
    JobTaken,
    /// As many jobs run as may.
    TooMany,
    /// The process could not be started, by no fault of the command.
    CannotStart,
    /// The path is missing.
    NotFound,
    /// The path is there already.
    Exists,
    /// The user may not.
    Denied,
    /// It is a directory, or none, or no regular file.
    WrongKind,
    /// Reading or writing failed.
    Io,
    /// This guest does not know the request: it is older than who asks.
    Unsupported,
    /// As many bytes of requests are under way as may; the same may be asked again.
    Busy,
    /// The container's own files were removed from inside, as `rm -rf /` does.
    FilesRemoved,
    /// The mounts of the container were not compared yet, so nothing runs there.
    Locked,
    /// A code that this version does not know.
    #[serde(other)]
    Other,
}
