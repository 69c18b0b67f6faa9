//! What a person is to look at.

use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// Places that are reported.
pub(crate) const MOST: usize = 200;

/// A place that is to be looked at.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Finding {
    /// Where it is on the host.
    #[serde(serialize_with = "as_text")]
    pub path: PathBuf,
    /// Why.
    pub change: Change,
}

/// What is to be looked at about a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// A protected path that was not there.
    New,
    /// One that has another content.
    Changed,
    /// It was replaced by something else.
    Replaced,
    /// A repository in the repository.
    Repository,
    /// What the index calls a submodule.
    Submodule,
    /// A file that says which programs git runs on content.
    Gitattributes,
    /// A file that names submodules.
    Gitmodules,
    /// A device.
    Device,
    /// A pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A link that leads out of the directory.
    Link,
    /// A file of root in a directory of another user.
    Root,
    /// A file of root's that had a set-id bit, or has one.
    Setuid,
}

/// All that is to be looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Review {
    /// The places, in their order.
    pub findings: Vec<Finding>,
    /// There are more, or not all could be looked through.
    pub more: bool,
}

impl Review {
    pub(super) fn from_findings(mut findings: Vec<Finding>, more: bool) -> Self {
        findings.sort();
        findings.dedup();
        let more = more || findings.len() > MOST;
        findings.truncate(MOST);
        Self { findings, more }
    }
}

fn as_text<S: Serializer>(path: &Path, into: S) -> Result<S::Ok, S::Error> {
    into.serialize_str(&path.to_string_lossy())
}
