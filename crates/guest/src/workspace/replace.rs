//! A file's content is another one, at once.

use std::fs::File;

use rustix::fs::{Mode, OFlags, Stat, fchmod, fstat};
use rustix::io::Errno;

use super::WorkspaceOperation;
use super::deferred_sync::ReplacedFile;
use crate::files::error::OperationResult;
use crate::files::reopen;
use crate::files::resolve::{OpenEntry, ResolvedPath};
use crate::os::atomic::{AtomicFile, Durability, read_dir};
use crate::protocol::workspace::{WorkspaceEntry, WorkspaceErrorCode};

impl WorkspaceOperation<'_> {
    /// Puts a new file at a place, with what `fill` writes. `over`: one that is there gives way to it.
    pub(super) fn replace(
        &self,
        place: &ResolvedPath,
        (mode, over): (u32, bool),
        fill: impl FnOnce(&mut File) -> OperationResult<()>,
    ) -> OperationResult<(File, Stat)> {
        let mut new = AtomicFile::create(&place.dir, Mode::RUSR | Mode::WUSR)?;
        fill(new.file())?;
        // Never set-id, which would reach the host through a bind.
        fchmod(new.file(), Mode::from_raw_mode(mode & 0o777))?;
        let old = place.entry.as_ref().and_then(|it| it.fd.try_clone().ok());
        let bytes = place.entry.as_ref().map_or(0, OpenEntry::size);
        let file = new.commit(&place.name, over, Durability::Content)?;
        self.afterwards.add(ReplacedFile { dir: read_dir(&place.dir).ok(), old, bytes });
        let stat = fstat(&file)?;
        self.memory.met(&place.path, Some(&stat));
        Ok((file, stat))
    }

    /// The entry of a file after a change.
    pub(super) fn written(&self, path: &str, stat: &Stat, version: u64) -> WorkspaceEntry {
        WorkspaceEntry { version, ..self.item(path.to_owned(), stat, path.as_bytes()) }
    }
}

/// The user may write it: a rename would not ask.
pub(super) fn expect_writable(there: &OpenEntry) -> OperationResult<()> {
    match reopen(&there.fd, OFlags::WRONLY | OFlags::NONBLOCK) {
        // A program that runs cannot be written, but replaced.
        Ok(_) | Err(Errno::TXTBSY) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

/// Refuses anything but a free name or a regular file.
pub(super) fn expect_changeable(place: &ResolvedPath) -> OperationResult<()> {
    if place.is_root() {
        return Err(WorkspaceErrorCode::IsDirectory.into());
    }
    place.entry.as_ref().map_or(Ok(()), OpenEntry::expect_file)
}
