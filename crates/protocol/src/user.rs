//! Users, and calls that prepare a container for them.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::MAX_SESSION;
use super::body::Bytes;

/// A user of the container.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserSpec {
    /// Ids. A missing group is that of the passwd entry, or else the number of the user.
    Ids {
        /// The uid.
        uid: u32,
        /// The gid.
        gid: Option<u32>,
    },
    /// A name in the passwd file.
    Name(String),
}

/// Creates an entry and a home for a user, and a directory, if they are missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureUser {
    /// Its uid.
    pub uid: u32,
    /// Its gid.
    pub gid: u32,
    /// A directory to create for the user if it is missing.
    pub workdir: String,
    /// Bind mounts: nothing at or below one of these gets another owner.
    pub bound: Vec<String>,
}

/// A user, and its access to the directory, as checked by a process of that user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// Home.
    pub home: String,
    /// Login shell; `/bin/sh` if the image has none.
    pub shell: String,
    /// Uid of the process.
    pub uid: u32,
    /// Gid of the process.
    pub gid: u32,
    /// Whether it can read and enter the directory.
    pub readable: bool,
    /// Whether it can write in the directory.
    pub writable: bool,
}

/// Opens a socket inside for a program that may access another user's files and commands through this guest: once per run of
/// the guest. Repeating the same request changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWorkerSocket {
    /// The user that connects: uid and gid.
    pub worker: (u32, u32),
    /// The user whose files and commands are accessible: uid and gid.
    pub agent: (u32, u32),
    /// The directory beneath which all accessible paths are.
    pub root: String,
}

/// Writes a file on the container's own tmpfs, which is lost when the guest ends.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutSecret {
    /// Its path below `/.coracle/run`: parts of letters, digits, `.`, `_` and `-`. The first one is not reserved for the guest:
    /// it does not begin with a dot, is neither `sock` nor `shell`, and does not end with `.sock`.
    pub name: String,
    /// Owner of the file and of the directories on its path.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// 0400 or 0600.
    pub mode: u32,
    /// At most [`MAX_SESSION`] bytes.
    pub content: Bytes,
    /// Whether the file is for a future command that lists it in its `files`, and not in a subdirectory: unless that command
    /// starts, the file is removed with the connection.
    pub lent: bool,
}

/// Sets the environment variables of all commands from now on, overriding the guest's own and overridden by those of a
/// command. Replaces those sent before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSession {
    /// `NAME=value` each, at most [`MAX_SESSION`] bytes with a NUL each.
    pub variables: Vec<Bytes>,
}
