//! Errors of calls.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The error of a call.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message}")]
pub struct RpcError {
    /// The code, for programs.
    pub code: ErrorCode,
    /// A sentence without a final period.
    pub message: String,
    /// Details.
    #[serde(default)]
    pub about: BTreeMap<String, String>,
}

/// Longest message in bytes.
const LONGEST_MESSAGE: usize = 4 << 10;

impl RpcError {
    /// An error without details. The message is cut at 4 KiB: it may quote anything, and must fit into a header.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        let mut message = message.into();
        message.truncate(message.floor_char_boundary(LONGEST_MESSAGE));
        Self { code, message, about: BTreeMap::new() }
    }
}

/// The kinds of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorCode {
    /// The request is invalid.
    Invalid,
    /// The working directory is missing, or not a directory.
    NoDirectory,
    /// A script needs `/bin/sh`, which does not exist.
    NoShell,
    /// The program is missing or cannot be executed; only for a job.
    NoProgram,
    /// No such user.
    NoUser,
    /// The command exceeds the kernel's limits.
    TooLong,
    /// No job of that id.
    NoJob,
    /// A job with that id exists already.
    JobTaken,
    /// The limit of running jobs is reached.
    TooMany,
    /// The process could not be started, for a reason other than the command.
    CannotStart,
    /// The path is missing.
    NotFound,
    /// The path exists already.
    Exists,
    /// The user lacks permission.
    Denied,
    /// It is a directory, is not a directory, or is not a regular file.
    WrongKind,
    /// Reading or writing failed.
    Io,
    /// This guest does not support the call: it is older than the caller.
    Unsupported,
    /// Concurrent requests have reached their limit of bytes; the call can be retried.
    Busy,
    /// The container's own files were removed from inside, for example by `rm -rf /`.
    FilesRemoved,
    /// The mounts of the container are not verified yet, so no command can run.
    Locked,
    /// A code that this version does not know.
    #[serde(other)]
    Other,
}
