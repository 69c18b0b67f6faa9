//! The manifest of a save, which is stored beside its parts.

use coracle_types::{ContainerId, ContainerName, ContainerPath, EngineKind, Ids, RecordId};
use serde::{Deserialize, Serialize};

use crate::record::Record;

/// The version of the format.
const SCHEMA: u32 = 1;

/// Characters of the reason why something was left out, which may have a name.
const MAX_REASON: usize = 256;

/// Bytes of names in one list of a manifest. A hostile tree must not fill our memory with what was left out.
const MAX_NAMES: usize = 256 << 10;

/// One save: `manifest.json` in its directory. A directory without one was never finished.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SaveManifest {
    /// Version of the format.
    pub schema: u32,
    /// Name of the container.
    pub container: ContainerName,
    /// The engine's id of it.
    pub id: Option<ContainerId>,
    /// Our id of it.
    pub record_id: RecordId,
    /// Its engine.
    pub engine: EngineKind,
    /// Its image, by name.
    pub image: String,
    /// The session that made it.
    pub session: String,
    /// Where its commands ran.
    pub workdir: ContainerPath,
    /// Who ran them.
    pub exec_user: Option<Ids>,
    /// When the save began.
    pub at: jiff::Timestamp,
    /// What was saved.
    pub items: Vec<SavedItem>,
    /// Names of directories that were not searched, except those in a git tree.
    pub pruned: Vec<String>,
    /// Version of the tool that wrote this.
    pub tool_version: String,
}

/// What was saved of one place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedItem {
    /// The place inside.
    pub path: ContainerPath,
    /// What it is.
    pub kind: SavedKind,
    /// Files beside the manifest.
    pub parts: Vec<SavedPart>,
    /// Files in the archive.
    pub files: u64,
    /// Bytes of all parts.
    pub bytes: u64,
    /// The commit that was checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<String>,
    /// The branch that was checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub branch: Option<String>,
    /// What the bundle holds; missing without a bundle.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bundle: Option<Bundle>,
    /// Commits whose parents the repository did not have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shallow: Vec<String>,
    /// Tracked files that were deleted.
    #[serde(default, skip_serializing_if = "NameList::is_empty")]
    pub deleted: NameList,
    /// What was not saved, and why.
    #[serde(default, skip_serializing_if = "Omissions::is_empty")]
    pub left_out: Omissions,
    /// Of a workflow's worktree: the commit that it began from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_commit: Option<String>,
    /// Of a worktree: the commit that was checked out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Of a worktree: the reference in the bundle that has its files.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub salvage: Option<String>,
    /// Of a worktree or a repository: references and commits by which a save of the same work is found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<serde_json::Value>,
    /// Of a worktree: the first names of files that were not committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub changed: Option<Vec<String>>,
}

/// Kinds of what is saved.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SavedKind {
    /// A git work tree: a bundle, and an archive of what was not committed.
    Git,
    /// A git work tree as it lay there, `.git` included.
    Tree,
    /// Files in no git work tree.
    Files,
}

/// What a bundle holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Bundle {
    /// All refs with their history: it can be cloned.
    Whole,
    /// Only commits that were on no remote: it can be fetched where the remote's commits are.
    New,
}

/// A file beside the manifest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SavedPart {
    /// Its name.
    pub file: String,
    /// What it is.
    pub what: PartKind,
    /// Its length.
    pub bytes: u64,
    /// SHA-256 of it, in hex.
    pub sha256: String,
}

/// Kinds of parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PartKind {
    /// A git bundle.
    Bundle,
    /// A tar, whose first part of each name is that of the place.
    Archive,
    /// What was staged, as a patch to the commit.
    Staged,
}

impl PartKind {
    pub(super) fn ending(self) -> &'static str {
        match self {
            Self::Bundle => "bundle",
            Self::Archive => "tar",
            Self::Staged => "staged.patch",
        }
    }
}

/// The first names of a list and its length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameList {
    /// The first ones.
    pub names: Vec<String>,
    /// How many there are in all.
    pub count: u64,
}

impl NameList {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) fn add(&mut self, name: String) {
        self.count += 1;
        if self.names.iter().map(String::len).sum::<usize>() < MAX_NAMES && self.names.len() < 1000 {
            self.names.push(name);
        }
    }
}

/// What was not saved, as much as is worth telling.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omissions {
    /// The first ones.
    pub entries: Vec<Omission>,
    /// How many there are in all.
    pub count: u64,
}

/// One thing that was not saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Omission {
    /// Where it was.
    pub path: String,
    /// Why.
    pub reason: String,
}

impl Omissions {
    fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds one, if the list is not too long yet; it counts in any case.
    pub fn add(&mut self, path: &str, reason: impl Into<String>) {
        self.count += 1;
        let name_bytes: usize = self.entries.iter().map(|it| it.path.len() + it.reason.len()).sum();
        if name_bytes < MAX_NAMES && self.entries.len() < 1000 {
            let reason = reason.into().chars().take(MAX_REASON).collect();
            self.entries.push(Omission { path: path.to_owned(), reason });
        }
    }
}

impl SaveManifest {
    /// Of a container, without items.
    pub(super) fn new(record: &Record) -> Self {
        Self {
            schema: SCHEMA,
            container: record.name.clone(),
            id: record.id.clone(),
            record_id: record.record_id.clone(),
            engine: record.engine,
            image: record.image.clone(),
            session: record.session.clone(),
            workdir: record.workdir.clone(),
            exec_user: record.exec_user,
            at: jiff::Timestamp::now(),
            items: Vec::new(),
            pruned: Vec::new(),
            tool_version: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = serde_json::to_vec_pretty(self).expect("a manifest has string keys only");
        bytes.push(b'\n');
        bytes
    }

    /// Bytes of all that was saved.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.items.iter().map(|it| it.bytes).sum()
    }
}

impl SavedItem {
    /// Of a path, without parts.
    #[must_use]
    pub fn new(path: ContainerPath, kind: SavedKind) -> Self {
        Self {
            path,
            kind,
            parts: Vec::new(),
            files: 0,
            bytes: 0,
            head: None,
            branch: None,
            bundle: None,
            shallow: Vec::new(),
            deleted: NameList::default(),
            left_out: Omissions::default(),
            base_commit: None,
            commit: None,
            salvage: None,
            state: None,
            changed: None,
        }
    }

    /// What the first part of each name in the archive is.
    #[must_use]
    pub fn top(&self) -> &str {
        Some(self.path.file_name()).filter(|it| !it.is_empty()).unwrap_or("root")
    }

    /// The part of that kind.
    #[must_use]
    pub fn part(&self, what: PartKind) -> Option<&SavedPart> {
        self.parts.iter().find(|it| it.what == what)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_save_of_a_worktree_is_read_and_written_with_all_its_keys() {
        let part = json!({ "file": "a.bundle", "what": "bundle", "bytes": 9, "sha256": "00" });
        let saved = json!({
            "schema": 1, "container": "box", "id": null, "record_id": "0123456789abcdef0123456789abcdef",
            "engine": "docker", "image": "i", "session": "s", "workdir": "/workspace", "exec_user": "10002:10002",
            "at": "2026-01-01T00:00:00Z", "pruned": [], "tool_version": "0.1.0",
            "items": [{
                "path": "/workspace/worktrees/a", "kind": "git", "parts": [part], "files": 0, "bytes": 9,
                "branch": "coracle/a", "bundle": "new", "base_commit": "1", "commit": "2", "changed": ["x"],
                "salvage": "refs/coracle/salvage/a/1", "state": ["2", null, "3"],
            }],
        });
        let manifest = serde_json::from_value::<SaveManifest>(saved.clone()).unwrap();
        assert_eq!(serde_json::from_slice::<Value>(&manifest.to_bytes()).unwrap(), saved);
    }
}
