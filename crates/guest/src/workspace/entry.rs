//! Describes files in replies.

use rustix::fs::{FileType, Stat, fstat};

use super::WorkspaceOperation;
use crate::files::FinalLink;
use crate::files::error::OperationResult;
use crate::files::resolve::{OpenEntry, target};
use crate::protocol::workspace::{EntryKind, WorkspaceEntry, WorkspaceErrorCode};

impl WorkspaceOperation<'_> {
    /// Describes the entry at a path.
    pub(super) fn stat(&self, path: &str) -> OperationResult<WorkspaceEntry> {
        let (entry, real) = self.root.open_path(path)?;
        Ok(self.item(path.to_owned(), &entry.stat, &real))
    }

    /// Creates a directory.
    pub(super) fn make_dir(&self, path: &str, parents: bool, exist_ok: bool) -> OperationResult<WorkspaceEntry> {
        let mut resolved = self.root.resolve(path, FinalLink::Target, parents)?;
        if let Some(entry) = &resolved.entry {
            return match entry.expect_dir() {
                Ok(()) if exist_ok => Ok(self.item(path.to_owned(), &entry.stat, &resolved.path)),
                _ => Err(WorkspaceErrorCode::Exists.into()),
            };
        }
        rustix::fs::mkdirat(&resolved.dir, resolved.name.as_slice(), rustix::fs::Mode::from_raw_mode(0o777))?;
        if !resolved.refresh()? {
            return Err(WorkspaceErrorCode::Escape.into());
        }
        let entry = resolved.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?;
        entry.expect_dir()?;
        Ok(self.item(path.to_owned(), &entry.stat, &resolved.path))
    }

    /// An entry from its status; `real` is its path without links.
    pub(super) fn item(&self, path: String, stat: &Stat, real: &[u8]) -> WorkspaceEntry {
        let kind = kind(stat);
        let (mut size, mut version) = (0, 0);
        if kind == EntryKind::File {
            size = u64::try_from(stat.st_size).unwrap_or_default();
            version = str::from_utf8(real).map_or(1, |path| self.tracker.version(path));
        }
        WorkspaceEntry { path, kind, size, version, changed_ms: changed_ms(stat), target: None, odd: false }
    }

    /// The entry of a walk: its path for the caller, its path without links, and the open file.
    pub(super) fn listed(&self, path: &[u8], real: &[u8], entry: &OpenEntry) -> WorkspaceEntry {
        let (path, odd) = text(path);
        let mut item = match self.follow(real, entry) {
            Ok(Some((stat, real))) => self.item(path, &stat, &real),
            _ => {
                let item = self.item(path, &entry.stat, real);
                WorkspaceEntry { target: target(entry), ..item }
            }
        };
        item.odd = odd;
        item
    }

    /// The kind of an entry, or of a link's target inside, and its location; `None` for a dangling link.
    pub(super) fn follow(&self, real: &[u8], entry: &OpenEntry) -> OperationResult<Option<(Stat, Vec<u8>)>> {
        if !entry.is(FileType::Symlink) {
            return Ok(Some((entry.stat, real.to_vec())));
        }
        let resolved = self.root.resolve_listed(real, FinalLink::Target, false)?;
        let Some(found) = resolved.entry else { return Ok(None) };
        Ok(Some((fstat(&found.fd)?, resolved.path)))
    }
}

pub(super) fn kind(stat: &Stat) -> EntryKind {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => EntryKind::File,
        FileType::Directory => EntryKind::Directory,
        FileType::Symlink => EntryKind::Symlink,
        _ => EntryKind::Other,
    }
}

/// A path as text, and whether characters were replaced.
pub(super) fn text(path: &[u8]) -> (String, bool) {
    match str::from_utf8(path) {
        Ok(path) => (path.to_owned(), false),
        Err(_) => (String::from_utf8_lossy(path).into_owned(), true),
    }
}

fn changed_ms(stat: &Stat) -> i64 {
    stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000)
}
