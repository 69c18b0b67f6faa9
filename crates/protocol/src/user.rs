//! Who does something inside, and what is made ready for them.

use serde::{Deserialize, Serialize};

#[cfg(doc)]
use super::MAX_SESSION;
use super::body::Bytes;

/// Who does something inside.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserSpec {
    /// Numbers. The group is that of the passwd entry when missing, else the same number.
    Ids {
        /// User.
        uid: u32,
        /// Group.
        gid: Option<u32>,
    },
    /// A name of the passwd file.
    Name(String),
}

/// Makes sure that a user has an entry and a home, and that a directory is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EnsureUser {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// A directory to be made for the user when it is missing.
    pub workdir: String,
    /// What is not the container's own: nothing at or below one of these gets another owner.
    pub bound: Vec<String>,
}

/// A user, and what it may do: seen by a process of that user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserInfo {
    /// Name.
    pub name: String,
    /// Home.
    pub home: String,
    /// Login shell; `/bin/sh` when the image has none at all.
    pub shell: String,
    /// Uid that the process saw.
    pub uid: u32,
    /// Gid that the process saw.
    pub gid: u32,
    /// It can read and enter the directory.
    pub readable: bool,
    /// It can write there.
    pub writable: bool,
}

/// Opens a socket inside for a program that may use this guest, as far as another user's files and commands go: once in the
/// life of a guest. The same again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenWorkerSocket {
    /// Who connects: user and group.
    pub worker: (u32, u32),
    /// Whose files and commands they are: user and group.
    pub agent: (u32, u32),
    /// The directory beneath which all of it lies.
    pub root: String,
}

/// A file on the container's own tmpfs, gone with the guest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PutSecret {
    /// Its path below `/.coracle/run`: parts of letters, digits, `.`, `_` and `-`. The first one is none that the guest
    /// uses itself: it neither begins with a dot nor is `sock` or `shell` or ends with `.sock`.
    pub name: String,
    /// Whose it is, and the directories on the way.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
    /// 0400 or 0600.
    pub mode: u32,
    /// At most [`MAX_SESSION`] bytes.
    pub content: Bytes,
    /// It lies in no directory of its own, and is for a command to come that has it among its `files`: unless that begins
    /// first, it is gone with the connection.
    pub lent: bool,
}

/// What all commands find in their environment from now on, above the guest's own and below theirs, in place of what was sent
/// before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SetSession {
    /// `NAME=value` each, at most [`MAX_SESSION`] bytes with a NUL each.
    pub variables: Vec<Bytes>,
}
