//! Finds files whose path matches a pattern.

use rustix::fs::FileType;

use super::WorkspaceOperation;
use super::entry::{kind, text};
use crate::files::dir::join;
use crate::files::error::OperationResult;
use crate::files::gitignore::IgnoreRules;
use crate::files::resolve::{OpenEntry, open_entry};
use crate::files::walk::{TreeWalk, WalkEntry, WalkLimits};
use crate::protocol::patterns::Pattern;
use crate::protocol::workspace::{EntryKind, SearchLimits, WorkspaceEntry, WorkspaceReply};

/// Limit of files in a reply.
const MAX_FILES: usize = 100_000;

impl WorkspaceOperation<'_> {
    pub(super) fn glob(
        &self,
        path: &str,
        pattern: &str,
        gitignore: bool,
        bounds: SearchLimits,
    ) -> OperationResult<WorkspaceReply> {
        let pattern = Pattern::parse(pattern)?;
        let (entry, real) = self.root.open_path(path)?;
        entry.expect_dir()?;
        let ignored = gitignore.then(|| IgnoreRules::at(self.root.dir(), &real));
        let mut walk = TreeWalk::begin(&entry.fd, WalkLimits::sorted(bounds), ignored, self.stop)?;
        let git = pattern.names_git() || names_git(path);
        let (mut entries, mut omitted) = (Vec::new(), 0);
        while let Some(found) = walk.next(&|name, path| (git || name != b".git") && pattern.enters(path)) {
            if !pattern.matches(&found.path) {
                continue;
            }
            if entries.len() < (bounds.most as usize).min(MAX_FILES) {
                entries.extend(self.file(path, &real, &found));
            } else if found.kind == FileType::RegularFile || self.file(path, &real, &found).is_some() {
                omitted += 1;
            }
        }
        Ok(WorkspaceReply::Globbed { entries, omitted, complete: walk.is_complete() })
    }

    /// Returns a regular file of the walk, or a link to one.
    fn file(&self, path: &str, real: &[u8], found: &WalkEntry) -> Option<WorkspaceEntry> {
        if found.kind != FileType::RegularFile && found.kind != FileType::Symlink {
            return None;
        }
        let entry: OpenEntry = open_entry(&found.dir, &found.name).ok()??;
        let (stat, real) = self.follow(&join(real, &found.path), &entry).ok()??;
        if kind(&stat) != EntryKind::File {
            return None;
        }
        let (path, odd) = text(&join(path.as_bytes(), &found.path));
        Some(WorkspaceEntry { odd, ..self.item(path, &stat, &real) })
    }
}

/// Whether a path contains a directory `.git`.
pub(super) fn names_git(path: &str) -> bool {
    path.split('/').any(|it| it == ".git")
}
