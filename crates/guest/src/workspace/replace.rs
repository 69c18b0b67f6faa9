//! Replaces the content of a file atomically.

use std::fs::File;

use rustix::fs::{Mode, OFlags, Stat, fchmod, fstat};
use rustix::io::Errno;

use super::WorkspaceOperation;
use super::deferred_sync::ReplacedFile;
use crate::atomic::{AtomicFile, Durability, read_dir};
use crate::files::error::OperationResult;
use crate::files::reopen;
use crate::files::resolve::{OpenEntry, ResolvedPath};
use crate::protocol::workspace::{WorkspaceEntry, WorkspaceErrorCode};

impl WorkspaceOperation<'_> {
    /// Creates a file with the content that `fill` writes; with `over`, it replaces an existing one.
    pub(super) fn replace(
        &self,
        resolved: &ResolvedPath,
        (mode, over): (u32, bool),
        fill: impl FnOnce(&mut File) -> OperationResult<()>,
    ) -> OperationResult<(File, Stat)> {
        let mut new = AtomicFile::create(&resolved.dir, Mode::RUSR | Mode::WUSR)?;
        fill(new.file())?;
        // Never set-id, which would take effect on the host through a bind mount.
        fchmod(new.file(), Mode::from_raw_mode(mode & 0o777))?;
        let old = resolved.entry.as_ref().and_then(|it| it.fd.try_clone().ok());
        let bytes = resolved.entry.as_ref().map_or(0, OpenEntry::size);
        let file = new.commit(&resolved.name, over, Durability::Content)?;
        self.deferred.add(ReplacedFile { dir: read_dir(&resolved.dir).ok(), old, bytes });
        let stat = fstat(&file)?;
        self.tracker.record_change(&resolved.path, Some(&stat));
        Ok((file, stat))
    }

    /// The entry of a file after a change.
    pub(super) fn written(&self, path: &str, stat: &Stat, version: u64) -> WorkspaceEntry {
        WorkspaceEntry { version, ..self.item(path.to_owned(), stat, path.as_bytes()) }
    }
}

/// Checks that the user may write the file: renaming over it would not require that.
pub(super) fn expect_writable(entry: &OpenEntry) -> OperationResult<()> {
    match reopen(&entry.fd, OFlags::WRONLY | OFlags::NONBLOCK) {
        // A program that is being executed cannot be written, but replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Refuses anything but a free name or a regular file.
pub(super) fn expect_changeable(resolved: &ResolvedPath) -> OperationResult<()> {
    if resolved.is_root() {
        return Err(WorkspaceErrorCode::IsDirectory.into());
    }
    resolved.entry.as_ref().map_or(Ok(()), OpenEntry::expect_file)
}
