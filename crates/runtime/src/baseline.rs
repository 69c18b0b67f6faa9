//! The initial content of a workspace, which later changes are compared with.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The files that were copied into a workspace, and what of it was taken out since.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Baseline {
    /// Directories of the host that were copied.
    pub mounts: Vec<BaselineMount>,
    /// Files by their path in the workspace.
    pub files: BTreeMap<String, BaselineFile>,
    /// Files that the last export took, with their SHA-256: they are nowhere lost.
    #[serde(default)]
    pub exported: BTreeMap<String, String>,
}

/// A directory of the host that was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineMount {
    /// The user's name for it.
    pub name: String,
    /// Its real path.
    pub host: PathBuf,
    /// Its path in the workspace; empty for the workspace itself.
    pub at: String,
    /// Patterns of what was copied; none for all.
    pub include: Vec<String>,
    /// Patterns of what was not.
    pub exclude: Vec<String>,
    /// Number of copied files.
    pub files: u64,
    /// Their size in bytes.
    pub bytes: u64,
    /// Entries that were not copied.
    pub left_out: SkippedCounts,
}

/// Entries of a directory that were not copied, though its patterns include them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkippedCounts {
    /// Links that were not followed, or lead nowhere or in a circle.
    pub links: u64,
    /// Sockets, pipes and devices.
    pub special: u64,
    /// Names that are not UTF-8, and what is nested too deep.
    pub names: u64,
}

/// A file as it was copied.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BaselineFile {
    /// SHA-256 of its content, as hex.
    pub sha256: String,
    /// Permission bits.
    pub mode: u32,
    /// Bytes.
    pub size: u64,
}

impl Baseline {
    /// The directory that a path of the workspace belongs to, and the path in it.
    #[must_use]
    pub fn mount_of<'a>(&self, path: &'a str) -> Option<(usize, &'a str)> {
        let inner = |mount: &BaselineMount| match mount.at.as_str() {
            "" => Some(path),
            at => path.strip_prefix(at)?.strip_prefix('/'),
        };
        let within = self.mounts.iter().enumerate().filter_map(|(index, it)| Some((index, inner(it)?)));
        within.filter(|it| !it.1.is_empty()).min_by_key(|it| it.1.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mount(at: &str) -> BaselineMount {
        BaselineMount {
            name: at.into(),
            host: "/h".into(),
            at: at.into(),
            include: vec![],
            exclude: vec![],
            files: 0,
            bytes: 0,
            left_out: SkippedCounts::default(),
        }
    }

    #[test]
    fn a_path_belongs_to_the_innermost_directory() {
        let baseline = Baseline { mounts: vec![mount(""), mount("a"), mount("a/b")], ..Baseline::default() };
        for (path, of) in
            [("x", (0, "x")), ("a", (0, "a")), ("a/x", (1, "x")), ("a/b/c", (2, "c")), ("ab/c", (0, "ab/c"))]
        {
            assert_eq!(baseline.mount_of(path), Some(of), "{path}");
        }
        let narrow = Baseline { mounts: vec![mount("a")], ..Baseline::default() };
        assert_eq!(narrow.mount_of("b/a/x"), None);
    }
}
