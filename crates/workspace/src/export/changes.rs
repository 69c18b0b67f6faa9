//! Compares a workspace with its import. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_archive::transfer::plain_name;
use coracle_protocol::workspace::{EntryKind, FileDigest};
use coracle_runtime::{Baseline, BaselineFile};
use serde::Serialize;

use crate::import::MODE;

/// A file that changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// Its path in the workspace.
    pub path: String,
    /// What it was.
    pub old: Option<BaselineFile>,
    /// What it is.
    pub new: Option<BaselineFile>,
}

/// How a file changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ChangeKind {
    /// It is new.
    Added,
    /// Its content or its permissions are others.
    Changed,
    /// It is gone.
    Deleted,
}

impl Change {
    /// How it changed.
    #[must_use]
    pub fn kind(&self) -> ChangeKind {
        match (&self.old, &self.new) {
            (None, _) => ChangeKind::Added,
            (Some(_), Some(_)) => ChangeKind::Changed,
            (Some(_), None) => ChangeKind::Deleted,
        }
    }
}

/// A file that is skipped, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SkippedFile {
    /// Its path in the workspace, as text.
    pub path: String,
    /// Why.
    pub reason: &'static str,
}

/// All that changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Changes {
    /// By path.
    pub files: Vec<Change>,
    /// What is no file that could travel.
    pub passed: Vec<SkippedFile>,
}

/// Compares the present files with the imported ones.
#[must_use]
pub fn changes(baseline: &Baseline, now: &[FileDigest]) -> Changes {
    let mut current: BTreeMap<&str, Option<BaselineFile>> = BTreeMap::new();
    let mut passed = Vec::new();
    for sum in now {
        let file = travels(sum).map_err(|reason| passed.push(SkippedFile { path: sum.path.clone(), reason })).ok();
        // A file that cannot be exported still has its name, so the imported one does not count as deleted.
        current.insert(&sum.path, file);
    }
    let mut files = Vec::new();
    for (path, new) in &current {
        let old = baseline.files.get(*path);
        if new.is_some() && new.as_ref() != old {
            files.push(Change { path: (*path).to_owned(), old: old.cloned(), new: new.clone() });
        }
    }
    let gone = baseline.files.iter().filter(|it| !current.contains_key(it.0.as_str()));
    files.extend(gone.map(|(path, old)| Change { path: path.clone(), old: Some(old.clone()), new: None }));
    files.sort_by(|one, other| one.path.split('/').cmp(other.path.split('/')));
    Changes { files, passed }
}

/// A regular file of a plain name, with the permissions that it keeps.
pub(super) fn travels(sum: &FileDigest) -> Result<BaselineFile, &'static str> {
    let none = sum.path.is_empty() || sum.path.contains('\0');
    if none || sum.odd || plain_name(Path::new(&sum.path)).is_none_or(|it| it != sum.path) {
        return Err("its name cannot be exported");
    }
    match (sum.kind, &sum.sha256) {
        (EntryKind::File, Some(sha256)) => {
            Ok(BaselineFile { sha256: sha256.clone(), mode: sum.mode & MODE, size: sum.size })
        }
        (EntryKind::File, None) => Err("it cannot be read"),
        (EntryKind::Symlink, _) => Err("it is a link"),
        _ => Err("it is neither a file nor a directory"),
    }
}
