//! The entry of a file in a reply.

use rustix::fs::{FileType, Stat, fstat};

use super::WorkspaceOperation;
use crate::files::FinalLink;
use crate::files::error::OperationResult;
use crate::files::resolve::{OpenEntry, target};
use crate::protocol::workspace::{EntryKind, WorkspaceEntry, WorkspaceErrorCode};

impl WorkspaceOperation<'_> {
    /// Describes the entry at a path.
    pub(super) fn stat(&self, path: &str) -> OperationResult<WorkspaceEntry> {
        let (there, real) = self.root.open_path(path)?;
        Ok(self.item(path.to_owned(), &there.stat, &real))
    }

    /// Makes a directory.
    pub(super) fn make_dir(&self, path: &str, parents: bool, exist_ok: bool) -> OperationResult<WorkspaceEntry> {
        let mut place = self.root.resolve(path, FinalLink::Target, parents)?;
        if let Some(there) = &place.entry {
            return match there.expect_dir() {
                Ok(()) if exist_ok => Ok(self.item(path.to_owned(), &there.stat, &place.path)),
                _ => Err(WorkspaceErrorCode::Exists.into()),
            };
        }
        rustix::fs::mkdirat(&place.dir, place.name.as_slice(), rustix::fs::Mode::from_raw_mode(0o777))?;
        if !place.refresh()? {
            return Err(WorkspaceErrorCode::Escape.into());
        }
        let there = place.entry.as_ref().ok_or(WorkspaceErrorCode::NotFound)?;
        there.expect_dir()?;
        Ok(self.item(path.to_owned(), &there.stat, &place.path))
    }

    /// An entry by its status; `real` is where it is without links.
    pub(super) fn item(&self, path: String, stat: &Stat, real: &[u8]) -> WorkspaceEntry {
        let kind = kind(stat);
        let (mut size, mut version) = (0, 0);
        if kind == EntryKind::File {
            size = u64::try_from(stat.st_size).unwrap_or_default();
            version = str::from_utf8(real).map_or(1, |it| self.memory.version(it));
        }
        WorkspaceEntry { path, kind, size, version, changed_ms: changed_ms(stat), target: None, odd: false }
    }

    /// The entry of a walk: its path for the caller, its path without links, and the open file.
    pub(super) fn met(&self, told: &[u8], real: &[u8], there: &OpenEntry) -> WorkspaceEntry {
        let (path, odd) = text(told);
        let mut item = match self.behind(real, there) {
            Ok(Some((stat, real))) => self.item(path, &stat, &real),
            _ => {
                let item = self.item(path, &there.stat, real);
                WorkspaceEntry { target: target(there), ..item }
            }
        };
        item.odd = odd;
        item
    }

    /// The kind of an entry, or of the target of a link inside, and its location; `None` for a dangling link.
    pub(super) fn behind(&self, real: &[u8], there: &OpenEntry) -> OperationResult<Option<(Stat, Vec<u8>)>> {
        if !there.is(FileType::Symlink) {
            return Ok(Some((there.stat, real.to_vec())));
        }
        let place = self.root.resolve_listed(real, FinalLink::Target, false)?;
        let Some(found) = place.entry else { return Ok(None) };
        Ok(Some((fstat(&found.fd)?, place.path)))
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

/// A path as text, and whether that is not all of it.
pub(super) fn text(path: &[u8]) -> (String, bool) {
    match str::from_utf8(path) {
        Ok(path) => (path.to_owned(), false),
        Err(_) => (String::from_utf8_lossy(path).into_owned(), true),
    }
}

fn changed_ms(stat: &Stat) -> i64 {
    stat.st_mtime.saturating_mul(1000).saturating_add(stat.st_mtime_nsec as i64 / 1_000_000)
}
