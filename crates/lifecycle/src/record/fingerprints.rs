//! What is remembered of protected paths, to be compared with later.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// A protected path of a bind as it was when its container was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathFingerprint {
    /// The directory that is bound.
    pub(crate) root: PathBuf,
    /// Its path in there.
    pub(crate) path: String,
    /// Nothing, if it was not there.
    pub(crate) was: Option<Fingerprint>,
    /// It is writable inside, and only compared.
    #[serde(default)]
    pub(crate) writable: bool,
}

/// A file, a directory, a link or something else.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fingerprint {
    pub(crate) kind: FingerprintKind,
    pub(crate) inode: u64,
    /// Of its content; nothing when it is too much, or may not be read.
    pub(crate) sum: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FingerprintKind {
    File,
    Dir,
    Link,
    Other,
}
